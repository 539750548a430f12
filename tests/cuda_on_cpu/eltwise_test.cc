// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_on_cpu/support.h"

#include "engine/base/rng.h"

namespace {

using namespace cuda_test;
const int64_t kSizes[] = {1, 3, 4, 8, 1023, 1024, 1029, 5000};

class CudaEltwise : public Cuda {
  protected:
    void activation_gradient(Random &random, const Type &type, crl_activation f, bool accumulate);
};

TEST_F(CudaEltwise, ActivationsAreTheCpus) {
    Random random(1);
    for (const Type &type : kTypes) {
        const crl_eltwise_ops &cpu = *type.cpu->eltwise, &cuda = *type.cuda->eltwise;
        for (int kind = 0; kind < CRL_ACTIVATION_COUNT; kind++) {
            for (int64_t n : kSizes) {
                SCOPED_TRACE(testing::Message() << type.name << ", kind " << kind << ", n " << n);
                const crl_activation f = (crl_activation)kind;
                const Floats x = random_floats(random, n, -8, 8);
                const OnHost host(type, x);
                OnHost expected(type, n);
                EXPECT_OK(cpu.activation(nullptr, f, host.data(), expected.data(), n));
                Floats shifted;
                for (int shift : {0, 1}) {
                    const Floats y = same_in_any_order([&] {
                        OnDeviceAs in(type, x, shift), out(type, n, shift);
                        EXPECT_OK(cuda.activation(stream, f, in.data(), out.data(), n));
                        wait();
                        return out.get();
                    });
                    EXPECT_TRUE(kind != CRL_ACTIVATION_RELU || same_bits(y, expected.get()));
                    EXPECT_LT(error_as(type, y, expected.get(), 1), 3e-7);
                    EXPECT_TRUE(shift == 0 || same_bits(y, shifted)) << "alignment changes bits";
                    shifted = y;
                }
                OnDeviceAs place(type, x);
                EXPECT_OK(cuda.activation(stream, f, place.data(), place.data(), n));
                wait();
                EXPECT_TRUE(same_bits(place.get(), shifted)) << "in place";
            }
        }
    }
}

void CudaEltwise::activation_gradient(Random &random, const Type &type, crl_activation f,
                                      bool accumulate) {
    const int64_t n = 2055;
    const Floats x = random_floats(random, n, -12, 12), dy = random_floats(random, n);
    const Floats before = random_floats(random, n);
    const OnHost x_host(type, x), dy_host(type, dy);
    OnHost expected(type, before);
    EXPECT_OK(type.cpu->eltwise->activation_backward(nullptr, f, x_host.data(), dy_host.data(),
                                                     expected.data(), n, accumulate));
    const auto run = [&](bool in_place) {
        OnDeviceAs in(type, x), gradient(type, dy), fresh(type, n), old(type, before);
        OnDeviceAs &out = in_place ? gradient : accumulate ? old : fresh;
        EXPECT_OK(type.cuda->eltwise->activation_backward(stream, f, in.data(), gradient.data(),
                                                          out.data(), n, accumulate));
        wait();
        return out.get();
    };
    const Floats dx = same_in_any_order([&] { return run(false); });
    EXPECT_TRUE(f != CRL_ACTIVATION_RELU || same_bits(dx, expected.get()));
    EXPECT_LT(error_as(type, dx, expected.get(), 1), 5e-7);
    EXPECT_TRUE(accumulate || same_bits(run(true), dx)) << "in place";
}

TEST_F(CudaEltwise, ActivationGradientsAreTheCpus) {
    Random random(2);
    for (const Type &type : kTypes) {
        for (int kind = 0; kind < CRL_ACTIVATION_COUNT; kind++) {
            for (bool accumulate : {false, true}) {
                SCOPED_TRACE(testing::Message()
                             << type.name << ", kind " << kind << ", accumulate " << accumulate);
                activation_gradient(random, type, (crl_activation)kind, accumulate);
            }
        }
    }
}

TEST_F(CudaEltwise, NotANumberStays) {
    const Floats x = {NAN, INFINITY, -INFINITY, 0, -0.0f};
    for (const Type &type : kTypes) {
        for (int kind = 0; kind < CRL_ACTIVATION_COUNT; kind++) {
            OnDeviceAs in(type, x), out(type, 5);
            EXPECT_OK(type.cuda->eltwise->activation(stream, (crl_activation)kind, in.data(),
                                                     out.data(), 5));
            wait();
            EXPECT_TRUE(std::isnan(out.get()[0])) << type.name << kind;
            EXPECT_EQ(out.get()[1], INFINITY) << type.name << kind;
        }
    }
}

TEST_F(CudaEltwise, AddAndCopyHaveTheCpusBits) {
    Random random(3);
    for (const Type &type : kTypes) {
        const crl_eltwise_ops &cuda = *type.cuda->eltwise;
        for (int64_t n : kSizes) {
            const Floats a = random_floats(random, n), b = random_floats(random, n);
            const OnHost a_host(type, a), b_host(type, b);
            OnHost sum(type, n);
            EXPECT_OK(type.cpu->eltwise->add(nullptr, a_host.data(), b_host.data(), sum.data(), n));
            for (int shift : {0, 3}) {
                const Floats y = same_in_any_order([&] {
                    OnDeviceAs left(type, a, shift), right(type, b), out(type, n);
                    EXPECT_OK(cuda.add(stream, left.data(), right.data(), out.data(), n));
                    wait();
                    return out.get();
                });
                EXPECT_TRUE(same_bits(y, sum.get())) << type.name << n;
            }
            OnDeviceAs from(type, b), to(type, a), fresh(type, n);
            EXPECT_OK(cuda.copy(stream, from.data(), to.data(), n, true));
            EXPECT_OK(cuda.copy(stream, from.data(), fresh.data(), n, false));
            wait();
            EXPECT_TRUE(same_bits(to.get(), sum.get()));
            EXPECT_TRUE(same_bits(fresh.get(), b_host.get()));
        }
        EXPECT_OK(cuda.add(stream, nullptr, nullptr, nullptr, 0));
    }
}

struct Dropped {
    int64_t samples, n;
    double p;
    bool accumulate;
};

TEST_F(CudaEltwise, DropoutHasTheCpusBits) {
    Random random(4);
    const crl_rng rng = {0x123456789abcdefull, CRL_RNG_DROPOUT, 77, 5, 1000};
    const Dropped cases[] = {{1, 1, 0.5, false},   {3, 7, 0.1, false},    {2, 4096, 0.1, true},
                             {5, 1027, 0.9, true}, {4, 1028, 0.3, false}, {2, 33, 0, true}};
    for (const Type &type : kTypes) {
        for (const Dropped &one : cases) {
            const int64_t n = one.samples * one.n;
            const Floats x = random_floats(random, n), before = random_floats(random, n);
            const OnHost host(type, x);
            OnHost expected(type, before);
            EXPECT_OK(type.cpu->eltwise->dropout(nullptr, &rng, one.p, host.data(), expected.data(),
                                                 one.samples, one.n, one.accumulate));
            const auto run = [&](bool in_place) {
                OnDeviceAs in(type, x), fresh(type, n), old(type, before);
                OnDeviceAs &out = in_place ? in : one.accumulate ? old : fresh;
                EXPECT_OK(type.cuda->eltwise->dropout(stream, &rng, one.p, in.data(), out.data(),
                                                      one.samples, one.n, one.accumulate));
                wait();
                return out.get();
            };
            const Floats y = same_in_any_order([&] { return run(false); });
            EXPECT_TRUE(same_bits(y, expected.get()))
                << type.name << ", " << one.samples << "x" << one.n << " p " << one.p;
            EXPECT_TRUE(one.accumulate || same_bits(run(true), y)) << "in place";
        }
    }
}

TEST_F(CudaEltwise, DropoutMaskIsThatOfTheStream) {
    const int64_t samples = 3, n = 301;
    for (const Type &type : kTypes) {
        const crl_eltwise_ops &cuda = *type.cuda->eltwise;
        crl_rng rng = {99, CRL_RNG_DROPOUT, 3, 2, 10};
        OnDeviceAs in(type, Floats((size_t)(samples * n), 1.0f)), out(type, samples * n);
        EXPECT_OK(cuda.dropout(stream, &rng, 0.4, in.data(), out.data(), samples, n, false));
        wait();
        const Floats y = out.get();
        for (int64_t s = 0; s < samples; s++, rng.sample++) {
            for (int64_t i = 0; i < n; i++)
                EXPECT_EQ(y[(size_t)(s * n + i)] != 0, crl_rng_uniform(&rng, (uint64_t)i) >= 0.4f);
        }
        EXPECT_EQ(cuda.dropout(stream, &rng, 1, in.data(), out.data(), samples, n, false),
                  CRL_STATUS_INVALID);
        EXPECT_STREQ(crl_error_message(), "dropout: probability is 1, expected 0 <= p < 1");
    }
}

} // namespace
