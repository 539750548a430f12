// SPDX-License-Identifier: Apache-2.0
// What the tests of CUDA kernels share. They are compiled twice: with the emulation, whose checks
// must find nothing in any order of execution, and with CUDA itself for a machine that has a GPU.
#pragma once

#include <gtest/gtest.h>

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "engine/kernels/cuda/cuda.h"
#ifdef CUDA_ON_CPU
#include "tests/cuda_on_cpu/cuda_on_cpu.h"
#endif

namespace cuda_test {

#define EXPECT_OK(call)   EXPECT_EQ((call), CRL_STATUS_OK) << crl_error_message()
#define EXPECT_CUDA(call) EXPECT_EQ((call), cudaSuccess)

using Floats = std::vector<float>;
using Ints = std::vector<int32_t>;
using Random = std::mt19937;

inline Floats random_floats(Random &random, int64_t n, float low = -1, float high = 1) {
    std::uniform_real_distribution<float> draw(low, high);
    Floats x((size_t)n);
    for (float &value : x)
        value = draw(random);
    return x;
}

inline Ints random_ints(Random &random, int64_t n, int32_t end) {
    Ints x((size_t)n);
    for (int32_t &value : x)
        value = (int32_t)(random() % (uint32_t)end);
    return x;
}

// An array of the device that begins `shift` elements behind an aligned address. Unless it is given
// values it has none: NaN under the emulation.
template <typename T> class OnDevice {
  public:
    explicit OnDevice(int64_t n, int shift = 0) : n_((size_t)n), shift_(shift) {
        EXPECT_CUDA(cudaMalloc(&memory_, (n_ + (size_t)shift) * sizeof(T)));
    }
    explicit OnDevice(const std::vector<T> &x, int shift = 0) : OnDevice((int64_t)x.size(), shift) {
        EXPECT_CUDA(cudaMemcpy(data(), x.data(), n_ * sizeof(T), cudaMemcpyHostToDevice));
    }
    OnDevice(const OnDevice &) = delete;
    OnDevice &operator=(const OnDevice &) = delete;
    ~OnDevice() { EXPECT_CUDA(cudaFree(memory_)); }
    T *data() { return (T *)memory_ + shift_; }
    std::vector<T> get() {
        std::vector<T> x(n_);
        EXPECT_CUDA(cudaMemcpy(x.data(), data(), n_ * sizeof(T), cudaMemcpyDeviceToHost));
        return x;
    }

  private:
    size_t n_;
    int shift_;
    void *memory_ = nullptr;
};

inline bool same_bits(const Floats &a, const Floats &b) {
    return a.size() == b.size() &&
           (a.empty() || std::memcmp(a.data(), b.data(), a.size() * 4) == 0);
}

// The largest difference, relative to the largest value expected (or to `largest`, if that is
// more).
inline double error(const Floats &x, const Floats &expected, double largest = 0) {
    EXPECT_EQ(x.size(), expected.size());
    double difference = 0;
    for (size_t i = 0; i < x.size() && i < expected.size(); i++) {
        largest = std::max(largest, std::fabs((double)expected[i]));
        const double d = std::fabs((double)x[i] - (double)expected[i]);
        if (!(d <= difference)) // NaN gets in
            difference = d;
    }
    return largest > 0 ? difference / largest : difference;
}

class Cuda : public ::testing::Test {
  protected:
    void SetUp() override { expect_ok(crl_cuda_stream_create(&stream)); }
    void TearDown() override {
        crl_cuda_stream_destroy(stream);
        expect_no_problems();
    }
    static void expect_no_problems() {
#ifdef CUDA_ON_CPU
        EXPECT_EQ(cuda_on_cpu::take_problems(), "");
#endif
    }
    void wait() {
        EXPECT_OK(crl_cuda_stream_wait(stream));
    }

    // `run` returns its result, which must have the same bits whatever order things run in.
    Floats same_in_any_order(const std::function<Floats()> &run) {
#ifdef CUDA_ON_CPU
        const Floats first = run();
        const uint32_t seed = seed_++;
        cuda_on_cpu::set_order(cuda_on_cpu::Order::kReverse);
        EXPECT_TRUE(same_bits(first, run())) << "in reverse order";
        cuda_on_cpu::set_order(cuda_on_cpu::Order::kRandom, seed);
        EXPECT_TRUE(same_bits(first, run())) << "in random order, seed " << seed;
        cuda_on_cpu::set_order(cuda_on_cpu::Order::kForward);
        expect_no_problems();
#else
        const Floats first = run();
        for (int i = 0; i < 5; i++)
            EXPECT_TRUE(same_bits(first, run())) << "again";
#endif
        return first;
    }

    crl_stream *stream = nullptr;

  private:
    static void expect_ok(crl_status status) {
        ASSERT_EQ(status, CRL_STATUS_OK) << crl_error_message();
    }
    uint32_t seed_ = 1;
};

} // namespace cuda_test
