// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/support.h"

#include <thread>

namespace {

using namespace kernels_test;
const crl_attention_ops &kOps = *crl_kernels_cpu.attention;

struct Case {
    crl_attention_config config;
    Floats qkv, dy;
    int64_t channels() const { return config.heads * config.head_channels; }
};

struct Result {
    Floats y, lse, dqkv;
};

struct Reference {
    std::vector<double> y, lse, dqkv;
};

Case make_case(Random &random, const crl_attention_config &config) {
    const int64_t n = config.b * config.t * config.heads * config.head_channels;
    return {config, random_floats(random, 3 * n, -2, 2), random_floats(random, n)};
}

// One head of one sample, by the definition.
void add_head(const Case &s, int64_t sample, int64_t head, Reference *out) {
    const int64_t t = s.config.t, d = s.config.head_channels, c = s.channels();
    const double scale = s.config.scale != 0 ? s.config.scale : 1 / std::sqrt((double)d);
    auto at = [&](int part, int64_t i, int64_t l) {
        return (size_t)((sample * t + i) * 3 * c + part * c + head * d + l);
    };
    auto in = [&](int part, int64_t i, int64_t l) { return s.qkv[(int64_t)at(part, i, l)]; };
    for (int64_t i = 0; i < t; i++) {
        const int64_t keys = s.config.causal ? i + 1 : t;
        const int64_t row = (sample * t + i) * c + head * d;
        std::vector<double> p((size_t)keys);
        double sum = 0, delta = 0;
        for (int64_t j = 0; j < keys; j++) {
            double score = 0;
            for (int64_t l = 0; l < d; l++)
                score += (double)in(0, i, l) * in(1, j, l);
            p[(size_t)j] = std::exp(score * scale);
            sum += p[(size_t)j];
        }
        out->lse[(size_t)((sample * s.config.heads + head) * t + i)] = std::log(sum);
        std::vector<double> dp((size_t)keys);
        for (int64_t j = 0; j < keys; j++) {
            p[(size_t)j] /= sum;
            for (int64_t l = 0; l < d; l++) {
                out->y[(size_t)(row + l)] += p[(size_t)j] * in(2, j, l);
                dp[(size_t)j] += (double)s.dy[row + l] * in(2, j, l);
            }
            delta += p[(size_t)j] * dp[(size_t)j];
        }
        for (int64_t j = 0; j < keys; j++) {
            const double ds = p[(size_t)j] * (dp[(size_t)j] - delta) * scale;
            for (int64_t l = 0; l < d; l++) {
                out->dqkv[at(0, i, l)] += ds * in(1, j, l);
                out->dqkv[at(1, j, l)] += ds * in(0, i, l);
                out->dqkv[at(2, j, l)] += p[(size_t)j] * s.dy[row + l];
            }
        }
    }
}

Reference reference(const Case &s) {
    Reference out = {std::vector<double>((size_t)s.dy.size()),
                     std::vector<double>((size_t)(s.config.b * s.config.heads * s.config.t)),
                     std::vector<double>((size_t)s.qkv.size())};
    for (int64_t sample = 0; sample < s.config.b; sample++) {
        for (int64_t head = 0; head < s.config.heads; head++)
            add_head(s, sample, head, &out);
    }
    return out;
}

Result run_with(const crl_attention *attention, const Case &s, bool accumulate) {
    Result out = {Floats(s.dy.size()), Floats(s.config.b * s.config.heads * s.config.t), s.qkv};
    if (!accumulate)
        std::fill(out.dqkv.begin(), out.dqkv.end(), NAN); // must not be read
    Floats forward((int64_t)(kOps.forward_scratch_bytes(attention) / sizeof(float)));
    Floats backward((int64_t)(kOps.backward_scratch_bytes(attention) / sizeof(float)));
    EXPECT_OK(kOps.forward(attention, nullptr, s.qkv.data(), out.y.data(), out.lse.data(),
                           forward.data()));
    EXPECT_OK(kOps.backward(attention, nullptr, s.qkv.data(), out.y.data(), out.lse.data(),
                            s.dy.data(), out.dqkv.data(), accumulate, backward.data()));
    return out;
}

Result run(const Case &s, bool accumulate) {
    crl_attention *attention = nullptr;
    EXPECT_OK(kOps.create(&attention, &s.config, nullptr));
    const Result out = run_with(attention, s, accumulate);
    kOps.destroy(attention);
    return out;
}

TEST(KernelsAttention, MatchesDouble) {
    Random random(1);
    for (int64_t t : {1, 5, 64, 65, 130}) {
        for (int64_t d : {1, 8, 16, 33, 64}) {
            for (bool causal : {false, true}) {
                const Case s =
                    make_case(random, {t > 64 ? 1 : 2, t, 2, d, d == 16 ? 0.2 : 0.0, causal});
                SCOPED_TRACE(testing::Message() << "T " << t << " D " << d << " " << causal);
                const Reference want = reference(s);
                Result out;
                for (bool accumulate : {false, true}) {
                    same_for_all_threads([&] {
                        out = run(s, accumulate);
                        return out.dqkv;
                    });
                    std::vector<double> dqkv = want.dqkv;
                    for (size_t i = 0; accumulate && i < dqkv.size(); i++)
                        dqkv[i] += s.qkv[(int64_t)i];
                    EXPECT_LT(error(out.dqkv, dqkv), 5e-6);
                }
                EXPECT_LT(error(out.y, want.y), 2e-6);
                EXPECT_LT(error(out.lse, want.lse), 2e-6);
            }
        }
    }
}

TEST(KernelsAttention, ForwardHasTheSameBitsForAllThreads) {
    Random random(2);
    for (int64_t t : {64, 200}) {
        const Case s = make_case(random, {2, t, 4, 64, 0, true});
        same_for_all_threads([&] { return run(s, false).y; });
        same_for_all_threads([&] { return run(s, false).lse; });
    }
}

TEST(KernelsAttention, LaterTokensDoNotReachEarlierOutputs) {
    Random random(3);
    Case s = make_case(random, {1, 130, 2, 16, 0, true});
    const Result before = run(s, false);
    for (int64_t i = 100 * 3 * s.channels(); i < s.qkv.size(); i++)
        s.qkv[i] = 1e6f;
    const Result after = run(s, false);
    EXPECT_EQ(
        std::memcmp(before.y.data(), after.y.data(), (size_t)(100 * s.channels()) * sizeof(float)),
        0);
}

TEST(KernelsAttention, RunsInSeveralThreadsAtOnce) {
    Random random(4);
    const Case s = make_case(random, {2, 130, 4, 64, 0, true});
    const Result expected = run(s, false);
    crl_attention *attention = nullptr;
    EXPECT_OK(kOps.create(&attention, &s.config, nullptr));
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; i++) {
        threads.emplace_back([&, i] {
            crl_kernels_set_threads(std::min(1 + i, kMaxThreads));
            for (int repeat = 0; repeat < 5; repeat++)
                EXPECT_TRUE(same_bits(expected.dqkv, run_with(attention, s, false).dqkv));
        });
    }
    for (std::thread &thread : threads)
        thread.join();
    kOps.destroy(attention);
}

// Arrays of a table's type, beside the f32 table on the same numbers.
Result run_typed(const crl_kernels &k, const Case &s, bool accumulate, int64_t offset) {
    const crl_attention_ops &ops = *k.attention;
    crl_attention *attention = nullptr;
    EXPECT_OK(ops.create(&attention, &s.config, nullptr));
    Typed qkv(k, s.qkv, offset), dy(k, s.dy, offset), y(k, s.dy.size(), offset);
    Typed dqkv = accumulate ? Typed(k, s.qkv, offset) : Typed(k, s.qkv.size(), offset);
    Floats lse(s.config.b * s.config.heads * s.config.t);
    Floats scratch((int64_t)(std::max(ops.forward_scratch_bytes(attention),
                                      ops.backward_scratch_bytes(attention)) /
                             sizeof(float)));
    std::fill(scratch.begin(), scratch.end(), NAN);
    EXPECT_OK(ops.forward(attention, nullptr, qkv.data(), y.data(), lse.data(), scratch.data()));
    EXPECT_OK(ops.backward(attention, nullptr, qkv.data(), y.data(), lse.data(), dy.data(),
                           dqkv.data(), accumulate, scratch.data()));
    ops.destroy(attention);
    return {y.floats(), lse, dqkv.floats()};
}

TEST(KernelsAttention, MatchesDoubleInSixteenBits) {
    Random random(5);
    for (const crl_kernels *k : narrow_tables()) {
        for (int64_t t : {1, 64, 130}) {
            for (int64_t d : {8, 33, 64}) {
                SCOPED_TRACE(testing::Message()
                             << crl_dtype_name(k->dtype) << " T " << t << " D " << d);
                Case s = make_case(random, {2, t, 2, d, 0, d != 8});
                s.qkv = rounded(*k, s.qkv);
                s.dy = rounded(*k, s.dy);
                const Reference want = reference(s);
                for (bool accumulate : {false, true}) {
                    Result out = run_typed(*k, s, accumulate, 1);
                    same_for_all_threads([&] {
                        const Result again = run_typed(*k, s, accumulate, 0);
                        EXPECT_TRUE(same_bits(again.y, out.y));
                        EXPECT_TRUE(same_bits(again.lse, out.lse));
                        EXPECT_TRUE(same_bits(again.dqkv, out.dqkv));
                        return again.dqkv;
                    });
                    std::vector<double> dqkv = want.dqkv;
                    for (size_t i = 0; accumulate && i < dqkv.size(); i++)
                        dqkv[i] += s.qkv[(int64_t)i];
                    // The gradient also has what y lost by rounding.
                    EXPECT_LT(error(out.dqkv, dqkv), 2 * rounding(*k));
                    EXPECT_LT(error(out.y, want.y), rounding(*k));
                    EXPECT_LT(error(out.lse, want.lse), 2e-6);
                }
            }
        }
    }
}

TEST(KernelsAttention, RejectsImpossibleSizes) {
    crl_attention *attention = nullptr;
    const crl_attention_config empty = {1, 0, 1, 1, 0, true};
    EXPECT_EQ(kOps.create(&attention, &empty, nullptr), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "attention: batch 1, sequence 0, heads 1, head channels 1, "
                                      "expected 1 or more each");
    EXPECT_EQ(attention, nullptr);
}

} // namespace
