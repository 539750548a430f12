// SPDX-License-Identifier: Apache-2.0
// What benchmarks share: a backend by name, arrays in its memory full of random numbers. A failure
// ends the program with its line: 77 when there is no such device.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "engine/kernels/kernels.h"

namespace gpu_bench {

inline void must(crl_status status) {
    if (status != CRL_STATUS_OK) {
        std::fprintf(stderr, "%s\n", crl_error_message());
        std::exit(1);
    }
}

inline const crl_backend *backend_named(const char *name) {
#ifdef CRL_BENCH_CUDA
    if (std::strcmp(name, "cuda") == 0)
        return &crl_backend_cuda;
#endif
    return std::strcmp(name, "cpu") == 0 ? &crl_backend_cpu : nullptr;
}

class Device {
  public:
    explicit Device(const char *name, int index = 0, int count = 1)
        : backend_(backend_named(name)) {
        if (!backend_) {
            std::fprintf(stderr, "no device '%s' in this build\n", name);
            std::exit(77);
        }
        const bool usable = !device()->probe || device()->probe() == CRL_STATUS_OK;
        if (!usable || crl_device_choose(device(), index, count) != CRL_STATUS_OK) {
            std::fprintf(stderr, "%s\n", crl_error_message());
            std::exit(77);
        }
        must(crl_device_stream_create(device(), &stream_));
    }
    ~Device() { crl_device_stream_destroy(device(), stream_); }
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;

    const crl_backend *backend() const { return backend_; }
    const crl_device *device() const { return backend_->device; }
    crl_stream *stream() const { return stream_; }

  private:
    const crl_backend *backend_;
    crl_stream *stream_ = nullptr;
};

// Zeros.
class Memory {
  public:
    Memory(const Device &on, size_t bytes) : on_(on) {
        must(crl_device_alloc(on.device(), &data_, std::max<size_t>(bytes, 256)));
    }
    ~Memory() {
        must(crl_device_stream_wait(on_.device(), on_.stream()));
        crl_device_free(on_.device(), data_);
    }
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
    void *data() const { return data_; }

  protected:
    // Repeats `some` until `bytes` are full.
    void fill(const void *some, size_t some_bytes, size_t bytes) {
        for (size_t at = 0; at < bytes; at += some_bytes)
            must(crl_device_copy(on_.device(), on_.stream(), (char *)data_ + at, some,
                                 std::min(some_bytes, bytes - at)));
        must(crl_device_stream_wait(on_.device(), on_.stream()));
    }

  private:
    const Device &on_;
    void *data_ = nullptr;
};

// n numbers of the table's type between -1 and 1.
class Array : public Memory {
  public:
    Array(const Device &on, const crl_kernels &table, int64_t n)
        : Memory(on, (size_t)n * crl_dtype_bytes(table.dtype)) {
        const int64_t some = std::min<int64_t>(n, 1 << 20);
        std::mt19937 random(1);
        std::vector<float> x((size_t)some);
        for (float &value : x)
            value = (float)(random() >> 8) / (1 << 23) - 1;
        std::vector<char> narrow((size_t)some * crl_dtype_bytes(table.dtype));
        const crl_kernels *host = crl_backend_kernels(&crl_backend_cpu, table.dtype);
        must(host->eltwise->narrow(nullptr, x.data(), narrow.data(), some, false));
        fill(narrow.data(), narrow.size(), (size_t)n * crl_dtype_bytes(table.dtype));
    }
    float *floats() const { return (float *)data(); }
};

// n indices below `end`.
class Indices : public Memory {
  public:
    Indices(const Device &on, int64_t n, int64_t end) : Memory(on, (size_t)n * 4) {
        std::mt19937 random(1);
        std::vector<int32_t> x((size_t)n);
        for (int32_t &value : x)
            value = (int32_t)(random() % (uint32_t)end);
        fill(x.data(), x.size() * 4, x.size() * 4);
    }
    const int32_t *data() const { return (const int32_t *)Memory::data(); }
};

} // namespace gpu_bench
