// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_on_cpu/support.h"

namespace {

using namespace cuda_test;
const int64_t kSizes[][2] = {{1, 1}, {3, 5}, {4, 64}, {2, 1030}, {3, 2056}};

class CudaSwiglu : public Cuda {};

TEST_F(CudaSwiglu, ForwardIsTheCpus) {
    Random random(1);
    for (const Type &type : kTypes) {
        for (const auto &size : kSizes) {
            const int64_t n = size[0], c = size[1];
            SCOPED_TRACE(testing::Message() << type.name << ", " << n << "x" << c);
            const Floats x = random_floats(random, n * 2 * c, -9, 9);
            const OnHost host(type, x);
            OnHost expected(type, n * c);
            EXPECT_OK(type.cpu->eltwise->swiglu(nullptr, host.data(), expected.data(), n, c));
            Floats aligned;
            for (int shift : {0, 1}) {
                const Floats y = same_in_any_order([&] {
                    OnDeviceAs in(type, x, shift), out(type, n * c);
                    EXPECT_OK(type.cuda->eltwise->swiglu(stream, in.data(), out.data(), n, c));
                    wait();
                    return out.get();
                });
                EXPECT_LT(error_as(type, y, expected.get(), 1), 5e-7);
                EXPECT_TRUE(shift == 0 || same_bits(y, aligned)) << "alignment changes bits";
                aligned = y;
            }
        }
    }
}

TEST_F(CudaSwiglu, GradientIsTheCpus) {
    Random random(2);
    for (const Type &type : kTypes) {
        for (const auto &size : kSizes) {
            const int64_t n = size[0], c = size[1];
            const Floats x = random_floats(random, n * 2 * c, -9, 9);
            const Floats dy = random_floats(random, n * c);
            const Floats before = random_floats(random, n * 2 * c);
            const OnHost x_host(type, x), dy_host(type, dy);
            for (bool accumulate : {false, true}) {
                OnHost expected(type, before);
                EXPECT_OK(type.cpu->eltwise->swiglu_backward(nullptr, x_host.data(), dy_host.data(),
                                                             expected.data(), n, c, accumulate));
                const Floats dx = same_in_any_order([&] {
                    OnDeviceAs in(type, x), gradient(type, dy), fresh(type, n * 2 * c);
                    OnDeviceAs old(type, before);
                    OnDeviceAs &out = accumulate ? old : fresh;
                    EXPECT_OK(type.cuda->eltwise->swiglu_backward(
                        stream, in.data(), gradient.data(), out.data(), n, c, accumulate));
                    wait();
                    return out.get();
                });
                EXPECT_LT(error_as(type, dx, expected.get(), 1), 8e-7)
                    << type.name << ", " << n << "x" << c << ", adding " << accumulate;
            }
        }
    }
}

// Where e^-u overflows, value and slope are their limits.
TEST_F(CudaSwiglu, FarFromZeroIsTheLimit) {
    const Floats x = {-INFINITY, -200, 100, NAN, 1, 1, 2, 1}; // u, then what it is a gate of
    for (const Type &type : kTypes) {
        OnDeviceAs in(type, x), dy(type, Floats{1, 1, 1, 1}), y(type, 4), dx(type, 8);
        EXPECT_OK(type.cuda->eltwise->swiglu(stream, in.data(), y.data(), 1, 4));
        EXPECT_OK(type.cuda->eltwise->swiglu_backward(stream, in.data(), dy.data(), dx.data(), 1, 4,
                                                      false));
        wait();
        const Floats value = y.get(), slope = dx.get();
        EXPECT_TRUE(std::fabs(value[0]) < 1e-30 && std::fabs(value[1]) < 1e-30) << type.name;
        EXPECT_TRUE(value[2] == 200 && std::isnan(value[3])) << type.name;
        EXPECT_TRUE(std::fabs(slope[0]) < 1e-30 && std::fabs(slope[1]) < 1e-30) << type.name;
        EXPECT_TRUE(slope[2] == 2 && slope[6] == 100 && std::isnan(slope[3])) << type.name;
    }
    EXPECT_OK(kTypes[0].cuda->eltwise->swiglu(stream, nullptr, nullptr, 0, 4));
}

} // namespace
