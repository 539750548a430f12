// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_on_cpu/support.h"

namespace {

using namespace cuda_test;
const crl_embedding_ops &kCpu = *crl_kernels_cpu.embedding, &kCuda = *crl_kernels_cuda.embedding;

struct Size {
    int64_t b, t, v, c, positions;
};
// Few words in many places, many words in few, more places than one tile, odd and wide rows.
const Size kSizes[] = {{1, 1, 1, 1, 1},
                       {2, 3, 5, 7, 4},
                       {4, 75, 3, 8, 75},
                       {3, 100, 40, 33, 128},
                       {2, 9, 50, 1100, 9}};

class CudaEmbedding : public Cuda {};

TEST_F(CudaEmbedding, ForwardHasTheCpusBits) {
    Random random(1);
    for (const Size &s : kSizes) {
        for (bool has_position : {false, true}) {
            const Ints tokens = random_ints(random, s.b * s.t, (int32_t)s.v);
            const Floats token = random_floats(random, s.v * s.c);
            const Floats position = random_floats(random, s.positions * s.c);
            Floats expected((size_t)(s.b * s.t * s.c));
            EXPECT_OK(kCpu.forward(nullptr, tokens.data(), token.data(),
                                   has_position ? position.data() : nullptr, expected.data(), s.b,
                                   s.t, s.v, s.c));
            const Floats y = same_in_any_order([&] {
                OnDevice<int32_t> index(tokens);
                OnDevice<float> table(token), shift(position), out(s.b * s.t * s.c);
                EXPECT_OK(kCuda.forward(stream, index.data(), table.data(),
                                        has_position ? shift.data() : nullptr, out.data(), s.b, s.t,
                                        s.v, s.c));
                wait();
                return out.get();
            });
            EXPECT_TRUE(same_bits(y, expected)) << "t " << s.t << ", c " << s.c;
        }
    }
}

TEST_F(CudaEmbedding, BackwardHasTheCpusBits) {
    Random random(2);
    for (const Size &s : kSizes) {
        for (bool accumulate : {false, true}) {
            const Ints tokens = random_ints(random, s.b * s.t, (int32_t)s.v);
            const Floats dy = random_floats(random, s.b * s.t * s.c);
            const Floats before = random_floats(random, s.v * s.c);
            const Floats before_position = random_floats(random, s.positions * s.c);
            Floats expected = before, position = before_position;
            EXPECT_OK(kCpu.backward(nullptr, tokens.data(), dy.data(), expected.data(),
                                    position.data(), s.b, s.t, s.v, s.c, s.positions, accumulate));
            expected.insert(expected.end(), position.begin(), position.end());
            const Floats got = same_in_any_order([&] {
                OnDevice<int32_t> index(tokens);
                OnDevice<float> gradient(dy), dtoken(before), dposition(before_position);
                EXPECT_OK(kCuda.backward(stream, index.data(), gradient.data(), dtoken.data(),
                                         dposition.data(), s.b, s.t, s.v, s.c, s.positions,
                                         accumulate));
                wait();
                Floats both = dtoken.get(), more = dposition.get();
                both.insert(both.end(), more.begin(), more.end());
                return both;
            });
            EXPECT_TRUE(same_bits(got, expected)) << "t " << s.t << ", c " << s.c;
        }
    }
}

TEST_F(CudaEmbedding, EitherGradientMayBeLeftOut) {
    OnDevice<int32_t> tokens(Ints{1, 1});
    OnDevice<float> dy(Floats{1, 2, 3, 4}), dtoken(6), dposition(4);
    EXPECT_OK(kCuda.backward(stream, tokens.data(), dy.data(), dtoken.data(), nullptr, 1, 2, 3, 2,
                             2, false));
    EXPECT_OK(kCuda.backward(stream, tokens.data(), dy.data(), nullptr, dposition.data(), 1, 2, 3,
                             2, 2, false));
    wait();
    EXPECT_EQ(dtoken.get(), (Floats{0, 0, 4, 6, 0, 0}));
    EXPECT_EQ(dposition.get(), (Floats{1, 2, 3, 4}));
}

// The same words as the CPU's, though only once somebody waits; and only once.
TEST_F(CudaEmbedding, TokenOutsideTheVocabularyIsRefused) {
    for (int32_t bad : {7, -3}) {
        const Ints tokens = {0, 1, 2, 3, bad, 6, 50, 0};
        const Floats table(14, 1.0f);
        Floats y(16);
        EXPECT_EQ(kCpu.forward(nullptr, tokens.data(), table.data(), nullptr, y.data(), 2, 4, 7, 2),
                  CRL_STATUS_INVALID);
        const std::string expected = crl_error_message();
        OnDevice<int32_t> index(tokens);
        OnDevice<float> on(table), out(16);
        EXPECT_OK(kCuda.forward(stream, index.data(), on.data(), nullptr, out.data(), 2, 4, 7, 2));
        EXPECT_EQ(crl_cuda_stream_wait(stream), CRL_STATUS_INVALID);
        EXPECT_EQ(crl_error_message(), expected);
        EXPECT_TRUE(std::isnan(out.get()[8]));
        EXPECT_EQ(out.get()[10], 1);
        wait();
    }
}

} // namespace
