/* SPDX-License-Identifier: Apache-2.0 */
/* Every registered optimizer against the same update in double, over 20 steps; a new one needs a
 * reference here. Splits of a range must not change a bit. */
#include <math.h>
#include <string.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/base/alloc.h"
#include "engine/run/optimizer.h"

extern "C" {
#define CRL_OPTIMIZER(name) extern const crl_optimizer crl_optimizer_##name;
#include "engine/run/optimizers.def"
#undef CRL_OPTIMIZER
}

namespace {

const std::vector<const crl_optimizer *> registered = {
#define CRL_OPTIMIZER(name) &crl_optimizer_##name,
#include "engine/run/optimizers.def"
#undef CRL_OPTIMIZER
};

using Setting = std::vector<std::pair<std::string, std::string>>;

/* What one step does to one element, in double. */
struct Element {
    double w, state[CRL_OPTIMIZER_MAX_STATES];
};
struct Step {
    int64_t step;
    double rate, scale;
    bool decay;
};
using Values = std::function<double(const char *)>;
using Reference = void (*)(Element *e, double dw, const Step &s, const Values &option);

void adamw(Element *e, double dw, const Step &s, const Values &option) {
    const double g = dw * s.scale, b1 = option("beta1"), b2 = option("beta2");
    const double steps = (double)s.step;
    e->w -= s.decay ? s.rate * option("weight_decay") * e->w : 0;
    e->state[0] = b1 * e->state[0] + (1 - b1) * g;
    e->state[1] = b2 * e->state[1] + (1 - b2) * g * g;
    const double m = e->state[0] / (1 - pow(b1, steps)), v = e->state[1] / (1 - pow(b2, steps));
    e->w -= s.rate * m / (sqrt(v) + option("epsilon"));
}

void sgd(Element *e, double dw, const Step &s, const Values &option) {
    const double momentum = option("momentum");
    const double g = dw * s.scale + (s.decay ? option("weight_decay") * e->w : 0);
    double move = g;
    if (momentum > 0) {
        e->state[0] = s.step == 1 ? g : momentum * e->state[0] + (1 - option("dampening")) * g;
        move = option("nesterov") != 0 ? g + momentum * e->state[0] : e->state[0];
    }
    e->w -= s.rate * move;
}

struct Known {
    Reference reference;
    std::vector<Setting> settings;
};

const std::map<std::string, Known> known = {
    {"adamw",
     {adamw,
      {{},
       {{"weight_decay", "0.3"}, {"beta1", "0.8"}, {"beta2", "0.95"}},
       {{"epsilon", "0.01"}, {"beta1", "0"}}}}},
    {"sgd",
     {sgd,
      {{},
       {{"weight_decay", "0.1"}},
       {{"momentum", "0.9"}, {"weight_decay", "0.01"}},
       {{"momentum", "0.9"}, {"dampening", "0.2"}},
       {{"momentum", "0.9"}, {"nesterov", "true"}, {"weight_decay", "0.1"}}}}},
};

/* An optimizer with its options and the float state of n elements. */
struct Trial {
    const crl_optimizer *optimizer;
    crl_arena arena = {};
    std::vector<char> options;
    std::vector<float> w, state[CRL_OPTIMIZER_MAX_STATES];
    int states = 0;

    Trial(const crl_optimizer *chosen, const Setting &setting, const std::vector<float> &start)
        : optimizer(chosen), options(chosen->options_bytes + 64), w(start) {
        EXPECT_EQ(crl_option_defaults(chosen->options, &arena, options.data()), CRL_STATUS_OK);
        for (const auto &[key, value] : setting) {
            EXPECT_EQ(
                crl_option_set(chosen->options, key.c_str(), value.c_str(), &arena, options.data()),
                CRL_STATUS_OK)
                << crl_error_message();
        }
        const char *name[CRL_OPTIMIZER_MAX_STATES] = {};
        states = chosen->states(options.data(), name);
        for (int i = 0; i < states; ++i) {
            EXPECT_NE(name[i], nullptr);
            state[i].resize(w.size());
        }
    }
    ~Trial() { crl_arena_fini(&arena); }
    Trial(const Trial &) = delete;
    Trial &operator=(const Trial &) = delete;

    double option(const char *name) const {
        const crl_option *row = crl_option_find(optimizer->options, name);
        const char *field = options.data() + row->offset;
        return row->type == &crl_option_bool ? *(const bool *)field : *(const double *)field;
    }

    crl_status update(const Step &s, const std::vector<float> &dw, size_t first, size_t last) {
        crl_optimizer_call call = {};
        call.options = options.data();
        call.kernels = &crl_kernels_cpu;
        call.step = s.step;
        call.learning_rate = s.rate;
        call.gradient_scale = s.scale;
        call.decay = s.decay;
        call.w = w.data() + first;
        call.dw = dw.data() + first;
        call.n = (int64_t)(last - first);
        for (int i = 0; i < states; ++i) {
            call.state[i] = state[i].data() + first;
        }
        return optimizer->update(&call);
    }
};

Step step_at(int64_t step, bool decay) {
    return {step, 0.01 * (1 + (double)(step % 3)), step % 2 ? 1.0 / 37 : 1.0 / 64, decay};
}

std::vector<float> random_values(std::mt19937 *random, size_t n, float spread) {
    std::vector<float> values(n);
    std::normal_distribution<float> normal(0, spread);
    std::generate(values.begin(), values.end(), [&] { return normal(*random); });
    return values;
}

void compare(const crl_optimizer *optimizer, const Known &with, const Setting &setting, bool decay,
             std::mt19937 *random) {
    const size_t n = 1003;
    const std::vector<float> start = random_values(random, n, 1);
    Trial run(optimizer, setting, start);
    std::vector<Element> expected(n);
    for (size_t i = 0; i < n; ++i) {
        expected[i].w = start[i];
    }
    const Values option = [&](const char *name) { return run.option(name); };
    for (int64_t step = 1; step <= 20; ++step) {
        const Step s = step_at(step, decay);
        std::vector<float> dw = random_values(random, n, 50);
        dw[7] = 0;
        ASSERT_EQ(run.update(s, dw, 0, n), CRL_STATUS_OK) << crl_error_message();
        for (size_t i = 0; i < n; ++i) {
            with.reference(&expected[i], dw[i], s, option);
        }
    }
    for (size_t i = 0; i < n; ++i) {
        ASSERT_NEAR(run.w[i], expected[i].w, 2e-6 * std::max(1.0, fabs(expected[i].w))) << i;
        for (int k = 0; k < run.states; ++k) {
            ASSERT_NEAR(run.state[k][i], expected[i].state[k],
                        4e-6 * std::max(1.0, fabs(expected[i].state[k])));
        }
    }
}

const unsigned kSeed = 20240607;

TEST(RunOptimizer, EveryOneMatchesItsReference) {
    std::mt19937 random(kSeed);
    for (const crl_optimizer *optimizer : registered) {
        ASSERT_EQ(known.count(optimizer->name), 1u)
            << optimizer->name << " has no reference in this test";
        const Known &with = known.at(optimizer->name);
        for (size_t i = 0; i < with.settings.size(); ++i) {
            for (const bool decay : {false, true}) {
                SCOPED_TRACE(std::string(optimizer->name) + ", setting " + std::to_string(i) +
                             (decay ? ", decay" : "") + ", seed " + std::to_string(kSeed));
                compare(optimizer, with, with.settings[i], decay, &random);
            }
        }
    }
}

TEST(RunOptimizer, SplitsGiveTheSameBits) {
    std::mt19937 random(kSeed);
    const size_t n = 5003;
    for (const crl_optimizer *optimizer : registered) {
        for (const Setting &setting : known.at(optimizer->name).settings) {
            const std::vector<float> start = random_values(&random, n, 1);
            Trial whole(optimizer, setting, start), split(optimizer, setting, start);
            for (int64_t step = 1; step <= 5; ++step) {
                const Step s = step_at(step, true);
                const std::vector<float> dw = random_values(&random, n, 50);
                ASSERT_EQ(whole.update(s, dw, 0, n), CRL_STATUS_OK);
                for (size_t first = 0; first < n;) {
                    const size_t last = std::min(n, first + random() % 400 + 1);
                    ASSERT_EQ(split.update(s, dw, first, last), CRL_STATUS_OK);
                    first = last;
                }
            }
            EXPECT_EQ(memcmp(whole.w.data(), split.w.data(), n * sizeof(float)), 0)
                << optimizer->name << ", seed " << kSeed;
            for (int k = 0; k < whole.states; ++k) {
                EXPECT_EQ(whole.state[k], split.state[k]) << optimizer->name;
            }
        }
    }
}

TEST(RunOptimizer, TablesAreComplete) {
    for (const crl_optimizer *optimizer : registered) {
        EXPECT_STRNE(optimizer->name, "");
        EXPECT_STRNE(optimizer->help, "");
        for (const crl_option *row = optimizer->options; row->name; ++row) {
            EXPECT_NE(row->value, nullptr) << row->name;
            EXPECT_NE(row->help, nullptr) << row->name;
            EXPECT_LT(row->offset, optimizer->options_bytes) << row->name;
        }
    }
}

TEST(RunOptimizer, AdamwRefusesABetaOfOne) {
    crl_arena arena = {};
    char options[256];
    EXPECT_EQ(crl_option_set(crl_optimizer_adamw.options, "beta1", "1", &arena, options),
              CRL_STATUS_INVALID);
    crl_arena_fini(&arena);
}

TEST(RunOptimizer, SgdRefusesNesterovWithoutMomentum) {
    const auto check = [](const Setting &setting, const char **option) {
        const Trial run(&crl_optimizer_sgd, setting, {1.0f});
        return crl_optimizer_sgd.check(run.options.data(), option);
    };
    const char *option = nullptr;
    EXPECT_EQ(check({{"nesterov", "true"}}, &option), CRL_STATUS_INVALID);
    EXPECT_STREQ(option, "nesterov");
    EXPECT_STREQ(crl_error_message(), "nesterov with momentum 0 and dampening 0, expected momentum "
                                      "above 0 and dampening 0");
}

} // namespace
