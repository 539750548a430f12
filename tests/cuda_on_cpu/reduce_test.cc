// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_on_cpu/support.h"

namespace {

using namespace cuda_test;
const crl_reduce_ops &kCpu = *crl_kernels_cpu.reduce, &kCuda = *crl_kernels_cuda.reduce;

class CudaReduce : public Cuda {};

TEST_F(CudaReduce, AddHasTheCpusBits) {
    Random random(1);
    for (int64_t n : {1, 6, 2050}) {
        const Floats x = random_floats(random, n);
        Floats expected = random_floats(random, n);
        OnDevice<float> in(x), y(expected);
        EXPECT_OK(kCpu.add(nullptr, expected.data(), x.data(), n));
        EXPECT_OK(kCuda.add(stream, y.data(), in.data(), n));
        wait();
        EXPECT_TRUE(same_bits(y.get(), expected)) << n;
    }
}

double cpu_squares(const Floats &x) {
    double sum = -1;
    EXPECT_OK(kCpu.sum_squares(nullptr, x.data(), (int64_t)x.size(), &sum));
    return sum;
}

// Not close to the CPU's sum: the same, so that clipping by the norm gives the same factor.
TEST_F(CudaReduce, SumOfSquaresHasTheCpusBits) {
    Random random(2);
    for (int64_t n : {0, 1, 63, 64, 65, 4095, 4096, 4097, 70001, 4096 * 16 + 64 * 3 + 5}) {
        const Floats x = random_floats(random, n, -3, 5);
        const double expected = cpu_squares(x);
        for (int shift : {0, 1}) {
            OnDevice<float> on(x, shift);
            (void)same_in_any_order([&] {
                OnDevice<double> sum(1);
                EXPECT_OK(kCuda.sum_squares(stream, on.data(), n, sum.data()));
                wait();
                EXPECT_EQ(sum.get()[0], expected) << "n " << n << ", shift " << shift;
                return Floats();
            });
        }
    }
}

// More blocks than block sums are fetched at once, of numbers whose order of addition shows.
TEST_F(CudaReduce, SumOfSquaresAddsBlocksInOrder) {
    Random random(3);
    Floats x(4096 * 1100);
    for (size_t i = 0; i < x.size(); i += 64)
        x[i] = std::ldexp((float)random() * 0x1p-32f, (int)(random() % 40) - 20);
    OnDevice<float> on(x);
    OnDevice<double> sum(1);
    EXPECT_OK(kCuda.sum_squares(stream, on.data(), (int64_t)x.size(), sum.data()));
    wait();
    EXPECT_EQ(sum.get()[0], cpu_squares(x));
}

TEST_F(CudaReduce, ColumnSumIsTheCpus) {
    Random random(4);
    const int64_t sizes[][2] = {{1, 1},    {5, 7},    {127, 33}, {128, 32},
                                {129, 64}, {300, 70}, {10, 264}, {0, 3}};
    for (const Type &type : kTypes) {
        const crl_reduce_ops &cpu = *type.cpu->reduce, &cuda = *type.cuda->reduce;
        for (const auto &size : sizes) {
            const int64_t n = size[0], c = size[1];
            const Floats x = random_floats(random, n * c), before = random_floats(random, c);
            const OnHost host(type, x);
            std::vector<char> on_host(cpu.column_sum_scratch_bytes(n, c) + 1);
            for (bool accumulate : {false, true}) {
                Floats expected = before;
                EXPECT_OK(cpu.column_sum(nullptr, host.data(), expected.data(), n, c, accumulate,
                                         on_host.data()));
                const Floats y = same_in_any_order([&] {
                    OnDeviceAs in(type, x);
                    OnDevice<float> fresh(c), old(before);
                    OnDevice<char> scratch((int64_t)cuda.column_sum_scratch_bytes(n, c));
                    float *out = accumulate ? old.data() : fresh.data();
                    EXPECT_OK(
                        cuda.column_sum(stream, in.data(), out, n, c, accumulate, scratch.data()));
                    wait();
                    return accumulate ? old.get() : fresh.get();
                });
                EXPECT_LT(error(y, expected), 2e-6)
                    << type.name << " " << n << "x" << c << ", accumulate " << accumulate;
            }
        }
    }
}

} // namespace
