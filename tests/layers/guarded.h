/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the tested backend's device between guard zones, filled with a pattern that no layer
 * writes: a NaN in every type. */
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/kernels/kernels.h"
#include "tests/layers/half.h"

namespace layer_test {

/* The backend under test: whoever links the suite says which. */
const crl_backend *backend();

/* A stream of the tested device, NULL where it has none. */
class Stream {
  public:
    Stream() {
        EXPECT_EQ(crl_device_choose(device(), 0, 1), CRL_STATUS_OK) << crl_error_message();
        EXPECT_EQ(crl_device_stream_create(device(), &stream_), CRL_STATUS_OK)
            << crl_error_message();
    }
    ~Stream() { crl_device_stream_destroy(device(), stream_); }
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;

    static const crl_device *device() { return backend()->device; }
    crl_stream *get() const { return stream_; }
    crl_status Wait() const { return crl_device_stream_wait(device(), stream_); }
    void Copy(void *to, const void *from, size_t bytes) const {
        ASSERT_EQ(crl_device_copy(device(), stream_, to, from, bytes), CRL_STATUS_OK);
        ASSERT_EQ(Wait(), CRL_STATUS_OK) << crl_error_message();
    }

  private:
    crl_stream *stream_ = nullptr;
};

inline size_t Bytes(const crl_tensor_spec &spec) {
    return (size_t)crl_shape_elements(&spec.shape) * crl_dtype_bytes(spec.dtype);
}

class Guarded {
  public:
    Guarded(const Stream &stream, const crl_tensor_spec &spec)
        : Guarded(stream, Bytes(spec), spec.dtype) {}
    /* Memory without a type: read as f32. */
    Guarded(const Stream &stream, size_t bytes, crl_dtype dtype = CRL_DTYPE_F32)
        : stream_(stream), bytes_(bytes), dtype_(dtype) {
        EXPECT_EQ(crl_device_alloc(Stream::device(), &memory_, bytes + 2 * kZone), CRL_STATUS_OK)
            << crl_error_message();
        Poison();
    }
    ~Guarded() { crl_device_free(Stream::device(), memory_); }
    Guarded(const Guarded &) = delete;
    Guarded &operator=(const Guarded &) = delete;

    template <typename T = void> T *data() { return reinterpret_cast<T *>(memory_ + kZone); }
    size_t bytes() const { return bytes_; }
    /* Of a library's workspace, which may be megabytes, the beginning and the zones. */
    void Poison() {
        const size_t filled = std::min(bytes_, kMostFilled) + 2 * kZone;
        const std::vector<uint8_t> image = Pattern(filled);
        stream_.Copy(memory_, image.data(), filled - kZone);
        stream_.Copy(memory_ + kZone + bytes_, &image[Phase()], kZone);
    }
    bool GuardsIntact() const {
        std::vector<uint8_t> before(kZone), behind(kZone);
        stream_.Copy(before.data(), memory_, kZone);
        stream_.Copy(behind.data(), memory_ + kZone + bytes_, kZone);
        const std::vector<uint8_t> clean = Pattern(2 * kZone);
        return std::memcmp(before.data(), clean.data(), kZone) == 0 &&
               std::memcmp(behind.data(), &clean[Phase()], kZone) == 0;
    }
    bool FullyWritten() const {
        const std::vector<uint8_t> image = Raw(), clean = Pattern(bytes_);
        const size_t width = crl_dtype_bytes(dtype_);
        for (size_t i = 0; i < bytes_; i += width) {
            if (std::memcmp(&image[i], &clean[i], width) == 0) {
                return false;
            }
        }
        return true;
    }
    std::vector<uint8_t> Raw() const {
        std::vector<uint8_t> image(bytes_);
        stream_.Copy(image.data(), memory_ + kZone, bytes_);
        return image;
    }
    std::vector<float> Floats() const { return Decode(dtype_, Raw()); }
    void Set(const std::vector<float> &values) {
        const std::vector<uint8_t> image = Encode(dtype_, values);
        SetRaw(image.data(), image.size());
    }
    void SetRaw(const void *image, size_t bytes) {
        ASSERT_EQ(bytes, bytes_);
        stream_.Copy(memory_ + kZone, image, bytes_);
    }

  private:
    static constexpr size_t kZone = 256; /* keeps the device's alignment */
    static constexpr size_t kMostFilled = 1 << 20;
    size_t Phase() const { return bytes_ % 2; } /* of the pattern behind the memory */
    static std::vector<uint8_t> Pattern(size_t bytes) {
        std::vector<uint8_t> out(bytes, 0x7f);
        for (size_t i = 0; i < bytes; i += 2) {
            out[i] = 0xa5;
        }
        return out;
    }

    const Stream &stream_;
    size_t bytes_;
    crl_dtype dtype_;
    uint8_t *memory_ = nullptr;
};

} // namespace layer_test
