// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_on_cpu/support.h"

#include "engine/base/rng.h"

namespace {

using namespace cuda_test;
const crl_eltwise_ops &kCpu = *crl_kernels_cpu.eltwise, &kCuda = *crl_kernels_cuda.eltwise;
const int64_t kSizes[] = {1, 3, 4, 1023, 1024, 1029, 5000};

class CudaEltwise : public Cuda {};

TEST_F(CudaEltwise, ActivationsAreTheCpus) {
    Random random(1);
    for (int kind = 0; kind < CRL_ACTIVATION_COUNT; kind++) {
        for (int64_t n : kSizes) {
            SCOPED_TRACE(testing::Message() << "activation " << kind << ", n " << n);
            const crl_activation f = (crl_activation)kind;
            const Floats x = random_floats(random, n, -8, 8);
            Floats expected(x.size());
            EXPECT_OK(kCpu.activation(nullptr, f, x.data(), expected.data(), n));
            Floats shifted;
            for (int shift : {0, 1}) {
                const Floats y = same_in_any_order([&] {
                    OnDevice<float> in(x, shift), out(n, shift);
                    EXPECT_OK(kCuda.activation(stream, f, in.data(), out.data(), n));
                    wait();
                    return out.get();
                });
                EXPECT_LT(error(y, expected, 1), kind == CRL_ACTIVATION_RELU ? 1e-30 : 3e-7);
                EXPECT_TRUE(shift == 0 || same_bits(y, shifted)) << "alignment changes bits";
                shifted = y;
            }
            OnDevice<float> place(x);
            EXPECT_OK(kCuda.activation(stream, f, place.data(), place.data(), n));
            wait();
            EXPECT_TRUE(same_bits(place.get(), shifted)) << "in place";
        }
    }
}

TEST_F(CudaEltwise, ActivationGradientsAreTheCpus) {
    Random random(2);
    for (int kind = 0; kind < CRL_ACTIVATION_COUNT; kind++) {
        for (bool accumulate : {false, true}) {
            const int64_t n = 2055;
            const crl_activation f = (crl_activation)kind;
            const Floats x = random_floats(random, n, -12, 12), dy = random_floats(random, n);
            const Floats before = random_floats(random, n);
            Floats expected = before;
            EXPECT_OK(kCpu.activation_backward(nullptr, f, x.data(), dy.data(), expected.data(), n,
                                               accumulate));
            const Floats dx = same_in_any_order([&] {
                OnDevice<float> in(x), gradient(dy), fresh(n), old(before);
                float *out = accumulate ? old.data() : fresh.data();
                EXPECT_OK(kCuda.activation_backward(stream, f, in.data(), gradient.data(), out, n,
                                                    accumulate));
                wait();
                return accumulate ? old.get() : fresh.get();
            });
            EXPECT_LT(error(dx, expected), kind == CRL_ACTIVATION_RELU ? 1e-30 : 5e-7)
                << "activation " << kind << ", accumulate " << accumulate;
            OnDevice<float> in(x), place(dy);
            EXPECT_OK(kCuda.activation_backward(stream, f, in.data(), place.data(), place.data(), n,
                                                false));
            wait();
            EXPECT_TRUE(accumulate || same_bits(place.get(), dx)) << "in place";
        }
    }
}

TEST_F(CudaEltwise, NotANumberStays) {
    const Floats x = {NAN, INFINITY, -INFINITY, 0, -0.0f};
    for (int kind = 0; kind < CRL_ACTIVATION_COUNT; kind++) {
        OnDevice<float> in(x), out(5);
        EXPECT_OK(kCuda.activation(stream, (crl_activation)kind, in.data(), out.data(), 5));
        wait();
        EXPECT_TRUE(std::isnan(out.get()[0])) << kind;
        EXPECT_EQ(out.get()[1], INFINITY) << kind;
    }
}

TEST_F(CudaEltwise, AddAndCopyHaveTheCpusBits) {
    Random random(3);
    for (int64_t n : kSizes) {
        const Floats a = random_floats(random, n), b = random_floats(random, n);
        Floats sum(a.size());
        EXPECT_OK(kCpu.add(nullptr, a.data(), b.data(), sum.data(), n));
        for (int shift : {0, 3}) {
            const Floats y = same_in_any_order([&] {
                OnDevice<float> left(a, shift), right(b), out(n);
                EXPECT_OK(kCuda.add(stream, left.data(), right.data(), out.data(), n));
                wait();
                return out.get();
            });
            EXPECT_TRUE(same_bits(y, sum)) << n;
        }
        OnDevice<float> from(b), to(a), fresh(n);
        EXPECT_OK(kCuda.copy(stream, from.data(), to.data(), n, true));
        EXPECT_OK(kCuda.copy(stream, from.data(), fresh.data(), n, false));
        wait();
        EXPECT_TRUE(same_bits(to.get(), sum));
        EXPECT_TRUE(same_bits(fresh.get(), b));
    }
    EXPECT_OK(kCuda.add(stream, nullptr, nullptr, nullptr, 0));
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
    for (const Dropped &one : cases) {
        const int64_t n = one.samples * one.n;
        const Floats x = random_floats(random, n), before = random_floats(random, n);
        Floats expected = before;
        EXPECT_OK(kCpu.dropout(nullptr, &rng, one.p, x.data(), expected.data(), one.samples, one.n,
                               one.accumulate));
        const Floats y = same_in_any_order([&] {
            OnDevice<float> in(x), fresh(n), old(before);
            float *out = one.accumulate ? old.data() : fresh.data();
            EXPECT_OK(kCuda.dropout(stream, &rng, one.p, in.data(), out, one.samples, one.n,
                                    one.accumulate));
            wait();
            return one.accumulate ? old.get() : fresh.get();
        });
        EXPECT_TRUE(same_bits(y, expected)) << one.samples << "x" << one.n << " p " << one.p;
        OnDevice<float> place(x);
        if (!one.accumulate) {
            EXPECT_OK(kCuda.dropout(stream, &rng, one.p, place.data(), place.data(), one.samples,
                                    one.n, false));
            wait();
            EXPECT_TRUE(same_bits(place.get(), expected)) << "in place";
        }
    }
}

TEST_F(CudaEltwise, DropoutMaskIsThatOfTheStream) {
    crl_rng rng = {99, CRL_RNG_DROPOUT, 3, 2, 10};
    const int64_t samples = 3, n = 301;
    OnDevice<float> in(Floats((size_t)(samples * n), 1.0f)), out(samples * n);
    EXPECT_OK(kCuda.dropout(stream, &rng, 0.4, in.data(), out.data(), samples, n, false));
    wait();
    const Floats y = out.get();
    for (int64_t s = 0; s < samples; s++, rng.sample++) {
        for (int64_t i = 0; i < n; i++)
            EXPECT_EQ(y[(size_t)(s * n + i)] != 0, crl_rng_uniform(&rng, (uint64_t)i) >= 0.4f);
    }
    EXPECT_EQ(kCuda.dropout(stream, &rng, 1, in.data(), out.data(), samples, n, false),
              CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "dropout: probability is 1, expected 0 <= p < 1");
}

} // namespace
