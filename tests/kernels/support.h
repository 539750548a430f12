// SPDX-License-Identifier: Apache-2.0
// What the kernel tests share: random arrays, comparison with a reference in double, and running
// the same operation under 1, 2 and 3 threads.
#pragma once

#include "engine/base/alloc.h"
#include "engine/kernels/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

namespace kernels_test {

// 64-byte aligned floats, as arenas give them.
class Floats {
  public:
    explicit Floats(int64_t n = 0) { resize(n); }
    Floats(const Floats &other) : Floats(other.n_) { copy(other); }
    Floats &operator=(const Floats &other) {
        resize(other.n_);
        copy(other);
        return *this;
    }
    ~Floats() { crl_free(x_); }
    float *data() { return x_; }
    const float *data() const { return x_; }
    int64_t size() const { return n_; }
    float &operator[](int64_t i) { return x_[i]; }
    float operator[](int64_t i) const { return x_[i]; }
    float *begin() { return x_; }
    float *end() { return x_ + n_; }

  private:
    void resize(int64_t n) {
        crl_free(x_);
        x_ = nullptr;
        n_ = n;
        EXPECT_EQ(crl_alloc(&x_, (size_t)n, sizeof *x_), CRL_STATUS_OK);
    }
    void copy(const Floats &other) {
        if (n_ > 0)
            std::memcpy(x_, other.x_, (size_t)n_ * sizeof *x_);
    }
    float *x_ = nullptr;
    int64_t n_ = 0;
};

using Random = std::mt19937;

inline Floats random_floats(Random &random, int64_t n, float low = -1, float high = 1) {
    std::uniform_real_distribution<float> draw(low, high);
    Floats x(n);
    for (float &value : x)
        value = draw(random);
    return x;
}

inline std::vector<double> doubles(const Floats &x) {
    return std::vector<double>(x.data(), x.data() + x.size());
}

// The largest error relative to the largest value of the reference.
inline double error(const Floats &x, const std::vector<double> &reference) {
    double largest = 0, difference = 0;
    EXPECT_EQ((size_t)x.size(), reference.size());
    for (int64_t i = 0; i < x.size(); i++) {
        largest = std::max(largest, std::fabs(reference[(size_t)i]));
        const double d = std::fabs((double)x[i] - reference[(size_t)i]);
        if (!(d <= difference)) // NaN gets in
            difference = d;
    }
    return largest > 0 ? difference / largest : difference;
}

inline bool same_bits(const Floats &a, const Floats &b) {
    return a.size() == b.size() &&
           (a.size() == 0 ||
            std::memcmp(a.data(), b.data(), (size_t)a.size() * sizeof(float)) == 0);
}

#if defined(__SANITIZE_THREAD__)
constexpr int kMaxThreads = 1; // OpenMP's own barriers are unknown to the sanitizer
#else
constexpr int kMaxThreads = 3;
#endif

// `run` returns its result; it must be the same for every number of threads.
inline Floats same_for_all_threads(const std::function<Floats()> &run) {
    crl_kernels_set_threads(1);
    Floats first = run();
    for (int threads = 2; threads <= kMaxThreads; threads++) {
        crl_kernels_set_threads(threads);
        EXPECT_TRUE(same_bits(first, run())) << threads << " threads";
    }
    crl_kernels_set_threads(1);
    return first;
}

// The tables of the CPU's 16-bit types, and all.
inline std::vector<const crl_kernels *> narrow_tables() {
    return {crl_backend_cpu.bf16, crl_backend_cpu.f16};
}
inline std::vector<const crl_kernels *> all_tables() {
    return {crl_backend_cpu.f32, crl_backend_cpu.bf16, crl_backend_cpu.f16};
}

// The largest relative error of one rounding, and a bit for the arithmetic before it.
inline double rounding(const crl_kernels &k) {
    return k.dtype == CRL_DTYPE_BF16 ? 0x1.01p-8 : k.dtype == CRL_DTYPE_F16 ? 0x1.01p-11 : 2e-6;
}

// An array of a table's type, `offset` elements behind an address of 64 bytes. Begins as NaN.
class Typed {
  public:
    Typed(const crl_kernels &k, int64_t n, int64_t offset = 0)
        : k_(k), n_(n), offset_(offset), memory_(n + offset) {
        std::memset(memory_.data(), 0xff, (size_t)(n + offset) * sizeof(float));
    }
    Typed(const crl_kernels &k, const Floats &x, int64_t offset = 0) : Typed(k, x.size(), offset) {
        EXPECT_EQ(k.eltwise->narrow(nullptr, x.data(), data(), n_, false), CRL_STATUS_OK);
    }
    void *data() { return (char *)memory_.data() + (size_t)offset_ * crl_dtype_bytes(k_.dtype); }
    Floats floats() {
        Floats x(n_);
        EXPECT_EQ(k_.eltwise->widen(nullptr, data(), x.data(), n_, false), CRL_STATUS_OK);
        return x;
    }

  private:
    const crl_kernels &k_;
    int64_t n_, offset_;
    Floats memory_;
};

// What x is in the table's type.
inline Floats rounded(const crl_kernels &k, const Floats &x) {
    return Typed(k, x).floats();
}

#define EXPECT_OK(call) EXPECT_EQ((call), CRL_STATUS_OK) << crl_error_message()

} // namespace kernels_test
