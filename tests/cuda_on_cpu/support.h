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

// A type that activations may have, with its tables. Values of 16 bits are given and compared as
// the floats that they are.
struct Type {
    const char *name;
    size_t bytes;
    const crl_kernels *cpu, *cuda;
    double unit; // of the last place, relative to the value
};

inline const Type kTypes[] = {
    {"f32", 4, crl_backend_cpu.f32, &crl_kernels_cuda, 0},
    {"bf16", 2, crl_backend_cpu.bf16, &crl_kernels_cuda_bf16, 0x1p-7},
    {"f16", 2, crl_backend_cpu.f16, &crl_kernels_cuda_f16, 0x1p-10},
};

using Bytes = std::vector<uint8_t>;

inline Bytes narrowed(const Type &type, const Floats &x) {
    Bytes y(x.size() * type.bytes);
    EXPECT_OK(type.cpu->eltwise->narrow(nullptr, x.data(), y.data(), (int64_t)x.size(), false));
    return y;
}

inline Floats widened(const Type &type, const Bytes &x) {
    Floats y(x.size() / type.bytes);
    EXPECT_OK(type.cpu->eltwise->widen(nullptr, x.data(), y.data(), (int64_t)y.size(), false));
    return y;
}

// An array of that type on the host, for the CPU's tables.
class OnHost {
  public:
    OnHost(const Type &type, const Floats &x) : type_(type), bytes_(narrowed(type, x)) {}
    OnHost(const Type &type, int64_t n) : type_(type), bytes_((size_t)n * type.bytes) {}
    void *data() { return bytes_.data(); }
    const void *data() const { return bytes_.data(); }
    Floats get() const { return widened(type_, bytes_); }

  private:
    const Type &type_;
    Bytes bytes_;
};

// The same on the device; begins `shift` elements behind an aligned address.
class OnDeviceAs {
  public:
    OnDeviceAs(const Type &type, const Floats &x, int shift = 0)
        : type_(type), bytes_(narrowed(type, x), shift * (int)type.bytes) {}
    OnDeviceAs(const Type &type, int64_t n, int shift = 0)
        : type_(type), bytes_(n * (int64_t)type.bytes, shift * (int)type.bytes) {}
    void *data() { return bytes_.data(); }
    Floats get() { return widened(type_, bytes_.get()); }

  private:
    const Type &type_;
    OnDevice<uint8_t> bytes_;
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

// The same for results of a type: a last place of every element may differ.
inline double error_as(const Type &type, const Floats &x, const Floats &expected,
                       double largest = 0) {
    Floats near = x;
    for (size_t i = 0; i < x.size() && i < expected.size(); i++) {
        const double d = (double)x[i] - (double)expected[i];
        if (std::fabs(d) <= type.unit * std::fabs((double)expected[i]))
            near[i] = expected[i];
    }
    return error(near, expected, largest);
}

inline Floats joined(Floats a, const Floats &b, const Floats &c = {}) {
    a.insert(a.end(), b.begin(), b.end());
    a.insert(a.end(), c.begin(), c.end());
    return a;
}

class Cuda : public ::testing::Test {
  protected:
    void SetUp() override { expect_ok(crl_device_stream_create(&crl_device_cuda, &stream)); }
    void TearDown() override {
        crl_device_stream_destroy(&crl_device_cuda, stream);
        expect_no_problems();
    }
    static void expect_no_problems() {
#ifdef CUDA_ON_CPU
        EXPECT_EQ(cuda_on_cpu::take_problems(), "");
#endif
    }
    void wait() {
        EXPECT_OK(crl_device_stream_wait(&crl_device_cuda, stream));
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
