// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_on_cpu/support.h"

namespace {

using namespace cuda_test;

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
    for (const Type &type : kTypes) {
        for (const Size &s : kSizes) {
            for (bool has_position : {false, true}) {
                const Ints tokens = random_ints(random, s.b * s.t, (int32_t)s.v);
                const Floats token = random_floats(random, s.v * s.c);
                const Floats position = random_floats(random, s.positions * s.c);
                const OnHost token_host(type, token), position_host(type, position);
                OnHost expected(type, s.b * s.t * s.c);
                EXPECT_OK(
                    type.cpu->embedding->forward(nullptr, tokens.data(), token_host.data(),
                                                 has_position ? position_host.data() : nullptr,
                                                 expected.data(), s.b, s.t, s.v, s.c));
                const Floats y = same_in_any_order([&] {
                    OnDevice<int32_t> index(tokens);
                    OnDeviceAs table(type, token), shift(type, position);
                    OnDeviceAs out(type, s.b * s.t * s.c);
                    EXPECT_OK(type.cuda->embedding->forward(stream, index.data(), table.data(),
                                                            has_position ? shift.data() : nullptr,
                                                            out.data(), s.b, s.t, s.v, s.c));
                    wait();
                    return out.get();
                });
                EXPECT_TRUE(same_bits(y, expected.get()))
                    << type.name << ", t " << s.t << ", c " << s.c;
            }
        }
    }
}

TEST_F(CudaEmbedding, BackwardHasTheCpusBits) {
    Random random(2);
    for (const Type &type : kTypes) {
        for (const Size &s : kSizes) {
            for (bool accumulate : {false, true}) {
                const Ints tokens = random_ints(random, s.b * s.t, (int32_t)s.v);
                const Floats dy = random_floats(random, s.b * s.t * s.c);
                const Floats before = random_floats(random, s.v * s.c);
                const Floats before_position = random_floats(random, s.positions * s.c);
                const OnHost host(type, dy);
                Floats expected = before, position = before_position;
                EXPECT_OK(type.cpu->embedding->backward(nullptr, tokens.data(), host.data(),
                                                        expected.data(), position.data(), s.b, s.t,
                                                        s.v, s.c, s.positions, accumulate));
                const Floats got = same_in_any_order([&] {
                    OnDevice<int32_t> index(tokens);
                    OnDeviceAs gradient(type, dy);
                    OnDevice<float> dtoken(before), dposition(before_position);
                    EXPECT_OK(type.cuda->embedding->backward(
                        stream, index.data(), gradient.data(), dtoken.data(), dposition.data(), s.b,
                        s.t, s.v, s.c, s.positions, accumulate));
                    wait();
                    return joined(dtoken.get(), dposition.get());
                });
                EXPECT_TRUE(same_bits(got, joined(expected, position)))
                    << type.name << ", t " << s.t << ", c " << s.c;
            }
        }
    }
}

TEST_F(CudaEmbedding, EitherGradientMayBeLeftOut) {
    for (const Type &type : kTypes) {
        const crl_embedding_ops &cuda = *type.cuda->embedding;
        OnDevice<int32_t> tokens(Ints{1, 1});
        OnDeviceAs dy(type, Floats{1, 2, 3, 4});
        OnDevice<float> dtoken(6), dposition(4);
        EXPECT_OK(cuda.backward(stream, tokens.data(), dy.data(), dtoken.data(), nullptr, 1, 2, 3,
                                2, 2, false));
        EXPECT_OK(cuda.backward(stream, tokens.data(), dy.data(), nullptr, dposition.data(), 1, 2,
                                3, 2, 2, false));
        wait();
        EXPECT_EQ(dtoken.get(), (Floats{0, 0, 4, 6, 0, 0}));
        EXPECT_EQ(dposition.get(), (Floats{1, 2, 3, 4}));
    }
}

// The same words as the CPU's, though only once somebody waits; and only once.
TEST_F(CudaEmbedding, TokenOutsideTheVocabularyIsRefused) {
    for (const Type &type : kTypes) {
        for (int32_t bad : {7, -3}) {
            const Ints tokens = {0, 1, 2, 3, bad, 6, 50, 0};
            const Floats table(14, 1.0f);
            OnHost host(type, table), y(type, 16);
            EXPECT_EQ(type.cpu->embedding->forward(nullptr, tokens.data(), host.data(), nullptr,
                                                   y.data(), 2, 4, 7, 2),
                      CRL_STATUS_INVALID);
            const std::string expected = crl_error_message();
            OnDevice<int32_t> index(tokens);
            OnDeviceAs on(type, table), out(type, 16);
            EXPECT_OK(type.cuda->embedding->forward(stream, index.data(), on.data(), nullptr,
                                                    out.data(), 2, 4, 7, 2));
            EXPECT_EQ(crl_device_stream_wait(&crl_device_cuda, stream), CRL_STATUS_INVALID);
            EXPECT_EQ(crl_error_message(), expected);
            EXPECT_TRUE(std::isnan(out.get()[8]));
            EXPECT_EQ(out.get()[10], 1);
            wait();
        }
    }
}

} // namespace
