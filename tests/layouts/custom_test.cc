// SPDX-License-Identifier: Apache-2.0
// The promise for what users bring themselves: schedules with a split backward, and graphs whose skips
// cross several cuts. Plug-ins made here are put into copies of the registries.
#include <gtest/gtest.h>

#include <cstring>

#include "engine/ir/schedule.h"
#include "tests/layouts/job.h"

namespace {

using job::Cuts;
using job::Sets;
using job::Train;
using job::Width;

const crl_schedule *Find(const char *name) {
    for (const void *const *at = crl_builtins()->schedules; *at; at++) {
        const auto *schedule = static_cast<const crl_schedule *>(*at);
        if (std::strcmp(schedule->name, name) == 0) {
            return schedule;
        }
    }
    return nullptr;
}

// 1F1B with every B as I, and its W `delay` compute actions of the position later (or at the end).
template <int delay> crl_status BuildSplit(crl_program **out, const crl_schedule_request *request) {
    crl_program *whole = nullptr, *split = nullptr;
    CRL_TRY(Find("1f1b")->build(&whole, request));
    CRL_TRY(crl_program_create(&split, whole->positions, whole->stages, whole->micro_batches));
    for (int p = 0; p < whole->positions; p++) {
        std::vector<crl_action> late;
        size_t done = 0;
        for (int i = 0; i < whole->position[p].count; i++) {
            crl_action action = whole->position[p].action[i];
            if (action.kind == CRL_ACTION_BACKWARD) {
                action.kind = CRL_ACTION_INPUT;
                late.push_back(action);
            }
            CRL_TRY(crl_program_append(split, p, action.kind, action.stage, action.micro_batch));
            if (late.size() > done + delay) {
                CRL_TRY(crl_program_append(split, p, CRL_ACTION_WEIGHT, late[done].stage,
                                           late[done].micro_batch));
                done++;
            }
        }
        for (; done < late.size(); done++) {
            CRL_TRY(crl_program_append(split, p, CRL_ACTION_WEIGHT, late[done].stage,
                                       late[done].micro_batch));
        }
    }
    crl_program_destroy(whole);
    *out = split;
    return CRL_STATUS_OK;
}

double NoBubble(const crl_schedule_request *) { return 1; }
int AllAtOnce(const crl_schedule_request *request, int) { return request->micro_batches; }

crl_schedule Split(const char *name, decltype(crl_schedule::build) build) {
    crl_schedule schedule = {};
    schedule.name = name;
    schedule.help = "";
    schedule.least_virtual = schedule.most_virtual = 1;
    schedule.build = build;
    schedule.bubble = NoBubble;
    schedule.peak_activations = AllAtOnce;
    return schedule;
}

const crl_schedule split_now = Split("split-now", BuildSplit<0>);
const crl_schedule split_late = Split("split-late", BuildSplit<2>);
const crl_schedule split_last = Split("split-last", BuildSplit<1000>);

// images -> a -> b -> c -> d -> e -> head; a is read again by c's, d's and e's sums, b by e's, and one
// value is added to itself.
crl_status BuildSkips(crl_model *model, const void *) {
    auto add = [&](const char *type, const char *name, std::vector<const char *> inputs,
                   double out = 0) {
        crl_layer_desc layer = {};
        layer.type = type;
        layer.name = name;
        for (size_t i = 0; i < inputs.size(); i++) {
            layer.input[i] = inputs[i];
        }
        if (out > 0) {
            layer.options[0] = {"out", out, nullptr};
        }
        return crl_model_add(model, &layer);
    };
    crl_layer_desc images = {}, labels = {};
    images.type = labels.type = "input";
    images.name = "images";
    images.options[0] = {"dims", 0, "4,4"};
    labels.name = "labels";
    labels.options[0] = {"dtype", 0, "i32"};
    labels.options[1] = {"dims", 0, ""};
    CRL_TRY(crl_model_add(model, &images));
    CRL_TRY(crl_model_add(model, &labels));
    CRL_TRY(add("flatten", "flat", {"images"}));
    CRL_TRY(add("linear", "a", {"flat"}, 12));
    CRL_TRY(add("relu", "ra", {"a"}));
    CRL_TRY(add("linear", "b", {"ra"}, 12));
    CRL_TRY(add("gelu", "gb", {"b"}));
    CRL_TRY(add("add", "twice", {"gb", "gb"}));
    CRL_TRY(add("linear", "c", {"twice"}, 12));
    CRL_TRY(add("add", "ca", {"c", "a"}));
    CRL_TRY(add("layernorm", "cn", {"ca"}));
    CRL_TRY(add("linear", "d", {"cn"}, 12));
    CRL_TRY(add("add", "da", {"d", "a"}));
    CRL_TRY(add("linear", "e", {"da"}, 12));
    CRL_TRY(add("add", "ea", {"e", "a"}));
    CRL_TRY(add("add", "eb", {"ea", "gb"}));
    CRL_TRY(add("linear", "head", {"eb"}, 10));
    return add("softmax_cross_entropy", "loss", {"head", "labels"});
}

const crl_model_def skips = {"skips", "", nullptr, 0, BuildSkips};

class Custom : public testing::Test {
  protected:
    Custom() : registries_(*crl_builtins()) {
        for (const void *const *at = crl_builtins()->schedules; *at; at++) {
            schedules_.push_back(*at);
        }
        schedules_.insert(schedules_.end(), {&split_now, &split_late, &split_last, nullptr});
        models_ = {&skips, nullptr};
        registries_.schedules = schedules_.data();
    }

    std::string Bits(const Sets &sets) const {
        const job::Outcome outcome = Train(sets, &registries_);
        EXPECT_EQ(outcome.status, CRL_STATUS_OK) << outcome.message << "\nwith " << sets.Text();
        return outcome.Bits();
    }

    Scratch scratch_;
    crl_registries registries_;
    std::vector<const void *> schedules_, models_;
};

TEST_F(Custom, SplitBackwardGivesTheSameBits) {
    const Sets base = job::Gpt(scratch_);
    const std::string one = Bits(base);
    for (const char *schedule : {"split-now", "split-late", "split-last"}) {
        for (const Sets &width : {Width(1, 1), Width(2, 1), Width(4, 1), Width(2, 2), Width(3, 4)}) {
            const Sets layout = width + Sets{{"parallel.schedule", schedule}};
            EXPECT_EQ(Bits(base + layout), one) << layout.Text();
        }
    }
}

TEST_F(Custom, SkipsOverSeveralCutsGiveTheSameBits) {
    registries_.models = models_.data();
    const std::string images = scratch_ / "images.idx", labels = scratch_ / "labels.idx";
    std::string pixels, classes;
    for (int i = 0; i < 40; i++) {
        for (int p = 0; p < 16; p++) {
            pixels += (char)(i * 37 + p * p * 11);
        }
        classes += (char)(i % 10);
    }
    write_text(images, data_files::Idx({40, 4, 4}, pixels));
    write_text(labels, data_files::Idx({40}, classes));
    const Sets base = {{"model.type", "skips"},
                       {"data.train", "[" + images + "," + labels + "]"},
                       {"train.global_batch", "16"},
                       {"train.micro_batch", "2"},
                       {"train.steps", "6"},
                       {"numerics.lanes", "4"},
                       {"run.threads", "1"},
                       {"run.directory", scratch_ / "run"}};
    const std::string one = Bits(base);
    std::vector<Sets> layouts;
    for (const char *cut : {"ra", "b", "gb", "twice", "c", "ca", "cn", "d", "da", "e", "ea", "eb",
                            "head", "loss"}) {
        layouts.push_back(Width(2, 1) + Cuts(std::string("[") + cut + "]"));
    }
    layouts.push_back(Width(4, 2) + Cuts("[b, ca, da]"));
    layouts.push_back(Width(3, 1) + Cuts("[twice, ea]"));
    layouts.push_back(Width(6, 1) + Cuts("[gb, twice, ca, da, ea]"));
    layouts.push_back(Width(2, 1) + Cuts("[twice, ca, da]") + job::Schedule("interleaved"));
    layouts.push_back(Width(4, 1) + Cuts("[twice, ca, da]") +
                      Sets{{"parallel.schedule", "split-late"}});
    for (const Sets &layout : layouts) {
        EXPECT_EQ(Bits(base + layout), one) << layout.Text();
    }
}

} // namespace
