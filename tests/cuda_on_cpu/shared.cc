// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_on_cpu/shared.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda_on_cpu/block.h"
#include "tests/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/cuda_on_cpu/machine.h"

namespace cuda_on_cpu {

namespace {

constexpr int kNobody = -1, kSeveral = -2;

// Who touched an element last. Readers since the last meeting are kept as one, or as "several".
struct Touched {
    int block_epoch = kNobody, warp = kNobody, warp_epoch = kNobody, lane = kNobody;

    // May `other` have done this at the same time as what is noted here?
    bool clashes(const Moment &other) const {
        return block_epoch == other.block_epoch &&
               (warp != other.warp || (warp_epoch == other.warp_epoch && lane != other.lane));
    }
    void note(const Moment &m) { *this = {m.block_epoch, m.warp, m.warp_epoch, m.lane}; }
    void note_too(const Moment &m) {
        if (block_epoch != m.block_epoch) {
            note(m);
        } else if (warp != m.warp) {
            warp = kSeveral;
        } else if (warp_epoch != m.warp_epoch) {
            note(m);
        } else if (lane != m.lane) {
            lane = kSeveral;
        }
    }
};

struct Element {
    bool written = false;
    Touched writer, readers;
};

} // namespace

struct SharedArray {
    std::string name;
    const char *place = nullptr;
    size_t count = 0, element_bytes = 0;
    bool live = false; // in this block
    std::vector<uint8_t> bytes;
    std::vector<Element> element; // and a spare one behind the end
};

namespace {

std::vector<std::unique_ptr<SharedArray>> arrays;
size_t dynamic_bytes, used_bytes, most_bytes;

void begin(SharedArray *array, size_t count, size_t element_bytes) {
    array->count = count;
    array->element_bytes = element_bytes;
    array->bytes.assign((count + 1) * element_bytes, 0xff);
    array->element.assign(count + 1, Element());
    array->live = true;
    used_bytes += count * element_bytes;
    if (used_bytes > most_bytes)
        report("shared memory: " + std::to_string(used_bytes) + " bytes, expected at most " +
               std::to_string(most_bytes));
}

int64_t checked(SharedArray *array, int64_t index) {
    if (index >= 0 && index < (int64_t)array->count)
        return index;
    report("shared array " + array->name + ": index is " + std::to_string(index) +
           ", expected 0 to " + std::to_string((int64_t)array->count - 1));
    array->element[array->count] = Element();
    array->element[array->count].written = true;
    return (int64_t)array->count;
}

void race(const SharedArray *array, int64_t index, const char *what) {
    report("race: shared array " + array->name + "[" + std::to_string(index) + "] is " + what +
           " without a barrier in between");
}

} // namespace

SharedArray *shared_array(const char *name, const char *place, size_t count, size_t element_bytes) {
    for (const auto &array : arrays) {
        if (array->place != place)
            continue;
        if (!array->live)
            begin(array.get(), count, element_bytes);
        return array.get();
    }
    arrays.push_back(std::make_unique<SharedArray>());
    SharedArray *array = arrays.back().get();
    array->name = name;
    array->place = place;
    begin(array, count, element_bytes);
    return array;
}

void *shared_read(SharedArray *array, int64_t index) {
    index = checked(array, index);
    Element &element = array->element[(size_t)index];
    const Moment moment = now();
    if (!element.written)
        report("shared array " + array->name + "[" + std::to_string(index) +
               "] is read before it is written");
    else if (element.writer.clashes(moment))
        race(array, index, "written by one thread and read by another");
    element.readers.note_too(moment);
    return &array->bytes[(size_t)index * array->element_bytes];
}

void *shared_write(SharedArray *array, int64_t index) {
    index = checked(array, index);
    Element &element = array->element[(size_t)index];
    const Moment moment = now();
    if (element.writer.clashes(moment))
        race(array, index, "written by two threads");
    else if (element.readers.clashes(moment))
        race(array, index, "read by one thread and written by another");
    element.written = true;
    element.writer.note(moment);
    return &array->bytes[(size_t)index * array->element_bytes];
}

size_t dynamic_shared_bytes() {
    return dynamic_bytes;
}

void shared_begin_block(size_t bytes, size_t most) {
    dynamic_bytes = bytes;
    most_bytes = most;
    used_bytes = 0;
    for (const auto &array : arrays)
        array->live = false;
}

} // namespace cuda_on_cpu
