// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/support.h"

namespace {

using namespace kernels_test;
const crl_reduce_ops &kOps = *crl_kernels_cpu.reduce;

TEST(KernelsReduce, SumSquaresMatchesAndDoesNotDependOnAlignment) {
    Random random(1);
    for (int64_t n : {0, 1, 17, 4096, 4097, 100000, 2500000}) {
        const Floats x = random_floats(random, n);
        double expected = 0;
        for (double v : doubles(x))
            expected += v * v;
        const Floats sum = same_for_all_threads([&] {
            double out = -1;
            EXPECT_OK(kOps.sum_squares(nullptr, x.data(), n, &out));
            Floats bits(2);
            std::memcpy(bits.data(), &out, sizeof out);
            return bits;
        });
        double out;
        std::memcpy(&out, sum.data(), sizeof out);
        EXPECT_NEAR(out, expected, 1e-12 * expected);
        Floats shifted(n + 3);
        std::copy(x.data(), x.data() + n, shifted.data() + 3);
        double moved = -1;
        EXPECT_OK(kOps.sum_squares(nullptr, shifted.data() + 3, n, &moved));
        EXPECT_EQ(moved, out);
    }
}

TEST(KernelsReduce, ColumnSumMatchesDouble) {
    Random random(2);
    const int64_t sizes[][2] = {{1, 1}, {5, 7}, {65, 33}, {1000, 1}, {256, 768}, {130, 257}};
    for (const auto &size : sizes) {
        const int64_t n = size[0], c = size[1];
        const Floats x = random_floats(random, n * c), before = random_floats(random, c);
        for (bool accumulate : {false, true}) {
            std::vector<double> expected((size_t)c);
            for (int64_t j = 0; j < c; j++) {
                expected[(size_t)j] = accumulate ? before[j] : 0;
                for (int64_t i = 0; i < n; i++)
                    expected[(size_t)j] += x[i * c + j];
            }
            const Floats y = same_for_all_threads([&] {
                Floats out = accumulate ? before : Floats(c);
                Floats scratch((int64_t)kOps.column_sum_scratch_bytes(n, c));
                EXPECT_OK(kOps.column_sum(nullptr, x.data(), out.data(), n, c, accumulate,
                                          scratch.data()));
                return out;
            });
            EXPECT_LT(error(y, expected), 3e-6) << n << "x" << c;
        }
    }
}

TEST(KernelsReduce, AddIsTheSameForEverySplit) {
    Random random(3);
    const Floats x = random_floats(random, 50001), before = random_floats(random, 50001);
    const Floats whole = same_for_all_threads([&] {
        Floats y = before;
        EXPECT_OK(kOps.add(nullptr, y.data(), x.data(), y.size()));
        return y;
    });
    Floats parts = before;
    for (int64_t i = 0; i < parts.size(); i += 1001)
        EXPECT_OK(kOps.add(nullptr, parts.data() + i, x.data() + i,
                           std::min<int64_t>(1001, parts.size() - i)));
    EXPECT_TRUE(same_bits(whole, parts));
}

} // namespace
