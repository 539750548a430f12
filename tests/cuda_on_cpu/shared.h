// SPDX-License-Identifier: Apache-2.0
// Shared memory that is watched, element by element: an element is read only after it was written,
// and two threads that touch it, one of them writing, have met at a barrier in between (or, within
// a warp, at __syncwarp). So a missing barrier is found in any order of execution, whether or not
// it spoils the result. Every block starts with elements of 0xff bytes.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace cuda_on_cpu {

struct SharedArray;

// The running block's array of this declaration.
SharedArray *shared_array(const char *name, const char *place, size_t count, size_t element_bytes);
// The element's address, or that of a spare one when `index` is out of range (reported).
void *shared_read(SharedArray *array, int64_t index);
void *shared_write(SharedArray *array, int64_t index);

size_t dynamic_shared_bytes();

template <typename T> class SharedElement {
  public:
    SharedElement(SharedArray *array, int64_t index) : array_(array), index_(index) {}
    SharedElement(const SharedElement &) = default;
    operator T() const {
        T value;
        memcpy(&value, shared_read(array_, index_), sizeof value);
        return value;
    }
    SharedElement &operator=(const T &value) {
        memcpy(shared_write(array_, index_), &value, sizeof value);
        return *this;
    }
    SharedElement &operator=(const SharedElement &other) { return *this = (T)other; }
    SharedElement &operator+=(const T &value) { return *this = (T) * this + value; }

  private:
    SharedArray *array_;
    int64_t index_;
};

template <typename T> class Shared {
  public:
    Shared(const char *name, const char *place, size_t count)
        : array_(shared_array(name, place, count, sizeof(T))) {}
    SharedElement<T> operator[](int64_t index) const { return {array_, index}; }

  private:
    SharedArray *array_;
};

} // namespace cuda_on_cpu
