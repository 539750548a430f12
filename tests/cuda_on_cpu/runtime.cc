// SPDX-License-Identifier: Apache-2.0
// Work on streams: launches, copies, events, and waiting for them. Work is done when somebody
// waits, as late as CUDA allows: who reads a result too early reads what was there before.
#include <cuda_runtime.h>

#include "tests/cuda_on_cpu/queue.h"

struct CUevent_st {
    std::shared_ptr<cuda_on_cpu::Point> point; // of its last record
    int device;
};

namespace cuda_on_cpu {

namespace {

size_t events_live;

// Whatever `run` reports makes it fail.
cudaError_t judged(const std::string &name, cudaError_t error, const std::function<void()> &run) {
    const size_t before = problem_count();
    set_kernel(name);
    run();
    set_kernel("");
    return problem_count() == before ? cudaSuccess : error;
}

void check_ranges(const Work &work, int device) {
    for (const bool is_write : {false, true}) {
        for (const Range &range : is_write ? work.writes : work.reads) {
            const std::string wrong = range.bytes > 0 ? wrong_with(range, device) : "";
            if (!wrong.empty())
                report((is_write ? "writes " : "reads ") + wrong);
        }
    }
}

cudaError_t queue_work(CUstream_st *stream, Work work, bool checks, cudaError_t error,
                       std::function<void()> run) {
    const auto made = std::make_shared<Work>(std::move(work));
    const Work *const self = made.get();
    const int device = checks ? stream->device : -1;
    made->run = [self, device, checks, error, run = std::move(run)] {
        return judged(self->name, error, [&] {
            const size_t before = problem_count();
            if (checks)
                check_ranges(*self, device);
            if (problem_count() == before)
                run();
        });
    };
    return push(stream, {made, nullptr, nullptr});
}

void run_blocks(const Launch &launch, size_t most_shared) {
    const dim3 g = launch.grid;
    for (int b : order_of((int)(g.x * g.y * g.z))) {
        const unsigned i = (unsigned)b;
        const uint3 index = {i % g.x, i / g.x % g.y, i / (g.x * g.y)};
        shared_begin_block(launch.shared_bytes, most_shared);
        if (!run_block(g, launch.block, index, launch.body))
            break;
    }
}

void run(const Launch &launch, int device, size_t most_shared) {
    const size_t before = problem_count();
    for (const auto *all : {&launch.reads, &launch.writes}) {
        for (const void *pointer : *all) {
            const std::string wrong = pointer ? wrong_with({pointer, 0}, device) : "";
            if (!wrong.empty())
                report("an argument points to " + wrong);
        }
    }
    if (problem_count() != before)
        return;
    run_blocks(launch, most_shared);
    for (const auto *all : {&launch.reads, &launch.writes}) {
        for (const void *pointer : *all) {
            if (pointer)
                check_guards(pointer);
        }
    }
    for (uint64_t word : launch.words)
        if (find_memory((const void *)word))
            check_guards((const void *)word);
}

// Where arrays begin stands for all of them.
Work work_of(const Launch &launch) {
    Work work = {launch.kernel, {}, {}, nullptr, nullptr};
    for (const void *pointer : launch.reads)
        work.reads.push_back({pointer, 1});
    for (const void *pointer : launch.writes)
        work.writes.push_back({pointer, 1});
    for (uint64_t word : launch.words)
        work.reads.push_back({(const void *)word, 1});
    return work;
}

bool is_possible(const Launch &launch) {
    constexpr unsigned kMostThreads = 1024, kMostGrid = 65535;
    const dim3 g = launch.grid, b = launch.block;
    const bool is_empty = g.x == 0 || g.y == 0 || g.z == 0 || b.x == 0 || b.y == 0 || b.z == 0;
    return !is_empty && b.x * b.y * b.z <= kMostThreads && g.y <= kMostGrid && g.z <= kMostGrid &&
           g.x <= INT32_MAX && launch.shared_bytes <= most_shared_bytes(launch.function);
}

void copy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    const size_t before = problem_count();
    const bool from_host = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost;
    const bool to_host = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost;
    const bool any = kind == cudaMemcpyDefault;
    const auto check = [&](const void *side, bool host, const char *name) {
        const std::string wrong =
            host || (any && !find_memory(side)) ? "" : wrong_with({side, bytes}, -1);
        if (!wrong.empty())
            report(std::string("the ") + name + " is " + wrong);
    };
    check(from, from_host, "source");
    check(to, to_host, "destination");
    if (problem_count() == before)
        memmove(to, from, bytes);
}

} // namespace

cudaError_t enqueue(cudaStream_t stream, const std::string &name, const std::vector<Range> &reads,
                    const std::vector<Range> &writes, std::function<void()> run,
                    std::function<bool()> ready) {
    const auto lock = hold();
    if (!is_stream(stream))
        return cudaErrorInvalidResourceHandle;
    return queue_work(stream, {name, reads, writes, nullptr, std::move(ready)}, true,
                      cudaErrorIllegalAddress, std::move(run));
}

void queue(cudaStream_t stream, Launch launch) {
    const auto lock = hold();
    cudaError_t error = cudaSuccess;
    if (!is_possible(launch))
        error = cudaErrorInvalidConfiguration;
    else if (!is_stream(stream) || stream->device != current_device())
        error = cudaErrorInvalidResourceHandle;
    else if (fails("a launch"))
        error = cudaErrorUnknown;
    if (error == cudaSuccess) {
        const auto kept = std::make_shared<const Launch>(std::move(launch));
        const size_t most = most_shared_bytes(kept->function);
        const int device = stream->device;
        error = queue_work(stream, work_of(*kept), false, cudaErrorLaunchFailure,
                           [=] { cuda_on_cpu::run(*kept, device, most); });
    }
    if (error != cudaSuccess)
        fail(error);
}

int device_of(cudaStream_t stream) {
    return stream->device;
}

size_t live_events() {
    return events_live;
}

} // namespace cuda_on_cpu

using namespace cuda_on_cpu;

// What every call on a stream or event looks at first.
static cudaError_t begin(const char *call, bool valid) {
    return !valid ? cudaErrorInvalidResourceHandle : fails(call) ? cudaErrorUnknown : cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
    auto lock = hold();
    if (const cudaError_t error =
            begin("cudaStreamCreateWithFlags", flags == cudaStreamNonBlocking);
        error != cudaSuccess)
        return fail(error);
    *out = make_stream(current_device());
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    const auto lock = hold();
    if (!is_stream(stream))
        return fail(cudaErrorInvalidResourceHandle);
    if (stream->capture)
        spoil(*stream->capture, cudaErrorStreamCaptureUnsupported);
    unmake_stream(stream);
    return fails("cudaStreamDestroy") ? fail(cudaErrorUnknown) : cudaSuccess;
}

// Without a word of `fails`: who cannot wait must not go on as if it had.
static cudaError_t wait_for_stream(std::unique_lock<std::recursive_mutex> &lock,
                                   cudaStream_t stream) {
    if (stream->capture)
        return spoil(*stream->capture, cudaErrorStreamCaptureUnsupported);
    if (const cudaError_t error = refused_in_capture(); error != cudaSuccess)
        return error;
    count_host_wait();
    const auto point = make_point(stream);
    push(stream, {nullptr, point, nullptr});
    const cudaError_t error = wait_for(lock, *point);
    stream->error = cudaSuccess;
    return error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    auto lock = hold();
    if (!is_stream(stream))
        return fail(cudaErrorInvalidResourceHandle);
    cudaError_t error = wait_for_stream(lock, stream);
    if (fails("cudaStreamSynchronize"))
        error = cudaErrorUnknown;
    return fail(error);
}

cudaError_t cudaDeviceSynchronize() {
    auto lock = hold();
    cudaError_t first = cudaSuccess;
    for (CUstream_st *stream : streams_of(current_device())) {
        const cudaError_t error = wait_for_stream(lock, stream);
        first = first == cudaSuccess ? error : first;
    }
    if (fails("cudaDeviceSynchronize"))
        first = cudaErrorUnknown;
    return fail(first);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    auto lock = hold();
    if (const cudaError_t error =
            begin("cudaStreamWaitEvent", is_stream(stream) && event && flags == 0);
        error != cudaSuccess)
        return fail(error);
    if (!event->point)
        return cudaSuccess;
    return fail(push(stream, {nullptr, nullptr, event->point}));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
    auto lock = hold();
    if (const cudaError_t error =
            begin("cudaEventCreateWithFlags", (flags & ~(unsigned)cudaEventDisableTiming) == 0);
        error != cudaSuccess)
        return fail(error);
    *out = new CUevent_st{nullptr, current_device()};
    events_live++;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    const auto lock = hold();
    if (!event)
        return fail(cudaErrorInvalidResourceHandle);
    delete event;
    events_live--;
    return fails("cudaEventDestroy") ? fail(cudaErrorUnknown) : cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    auto lock = hold();
    if (const cudaError_t error =
            begin("cudaEventRecord", event && is_stream(stream) && event->device == stream->device);
        error != cudaSuccess)
        return fail(error);
    event->point = make_point(stream);
    return fail(push(stream, {nullptr, event->point, nullptr}));
}

// Of an event that belongs to a capture, and of any where a capture forbids to ask.
static cudaError_t refused(const CUevent_st *event) {
    if (event->point && event->point->capture)
        return spoil(*event->point->capture, cudaErrorCapturedEvent);
    return refused_in_capture();
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    auto lock = hold();
    if (const cudaError_t error = begin("cudaEventQuery", event != nullptr); error != cudaSuccess)
        return fail(error);
    if (const cudaError_t error = refused(event); error != cudaSuccess)
        return fail(error);
    if (!event->point)
        return cudaSuccess;
    if (!look_at(*event->point))
        return fail(cudaErrorNotReady);
    return fail(event->point->error);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    auto lock = hold();
    if (const cudaError_t error = begin("cudaEventSynchronize", event != nullptr);
        error != cudaSuccess)
        return fail(error);
    if (const cudaError_t error = refused(event); error != cudaSuccess)
        return fail(error);
    if (!event->point)
        return cudaSuccess;
    count_host_wait();
    const std::shared_ptr<Point> point = event->point;
    return fail(wait_for(lock, *point));
}

// On the spot. Does not wait for streams that are not blocking, which all of ours are.
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    const auto lock = hold();
    if (const cudaError_t error = refused_in_capture(); error != cudaSuccess)
        return fail(error);
    if (fails("cudaMemcpy"))
        return fail(cudaErrorUnknown);
    if (bytes == 0)
        return cudaSuccess;
    count_host_wait();
    check_host_order("cudaMemcpy", {{from, bytes}}, {{to, bytes}});
    const cudaError_t error =
        judged("cudaMemcpy", cudaErrorInvalidValue, [=] { copy(to, from, bytes, kind); });
    return fail(error);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    auto lock = hold();
    if (const cudaError_t error = begin("cudaMemcpyAsync", is_stream(stream)); error != cudaSuccess)
        return fail(error);
    if (bytes == 0)
        return cudaSuccess;
    return fail(queue_work(stream, {"cudaMemcpy", {{from, bytes}}, {{to, bytes}}, nullptr, nullptr},
                           false, cudaErrorInvalidValue, [=] { copy(to, from, bytes, kind); }));
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    auto lock = hold();
    if (const cudaError_t error = begin("cudaMemsetAsync", is_stream(stream)); error != cudaSuccess)
        return fail(error);
    if (bytes == 0)
        return cudaSuccess;
    return fail(queue_work(stream, {"cudaMemset", {}, {{to, bytes}}, nullptr, nullptr}, true,
                           cudaErrorInvalidValue, [=] { memset(to, value, bytes); }));
}
