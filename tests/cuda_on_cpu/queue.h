// SPDX-License-Identifier: Apache-2.0
// Streams and events as queues and points in them, and who moves them on: whoever waits.
#pragma once

#include <deque>
#include <thread>

#include "tests/cuda_on_cpu/order.h"

namespace cuda_on_cpu {

struct Capture;

// The end of what a stream had been given when an event was recorded.
struct Point {
    CUstream_st *stream;
    Clock clock;
    bool reached = false;
    cudaError_t error = cudaSuccess; // of the stream, when it was reached
    int asked = 0;                   // how often the host has looked
    std::shared_ptr<Capture> capture;
};

struct Work {
    std::string name;
    std::vector<Range> reads, writes;
    std::function<cudaError_t()> run;
    std::function<bool()> ready; // or none: always
};

// One thing in a queue: work, or a point to be reached, or to be waited for.
struct Item {
    std::shared_ptr<const Work> work;
    std::shared_ptr<Point> record, wait;
};

} // namespace cuda_on_cpu

struct CUstream_st {
    int number, device, timeline;
    std::deque<cuda_on_cpu::Item> items;
    cuda_on_cpu::Clock clock;
    cudaError_t error = cudaSuccess; // of its work, until somebody waits
    std::shared_ptr<cuda_on_cpu::Capture> capture;
    bool destroyed = false; // and goes when its work is done
    bool hidden = false;    // a graph's
};

namespace cuda_on_cpu {

// Something of a graph: in it points are only names of themselves, made anew at every launch.
struct Node {
    int lane;
    Item item;
};

// Streams whose work is captured; lane 0 is where it began.
struct Capture {
    std::vector<CUstream_st *> lanes;
    std::vector<Node> nodes;
    // Of every lane: how much work of each lane its newest comes after. Of points their Point.clock
    // says so.
    std::vector<Clock> after;
    cudaStreamCaptureMode mode;
    std::thread::id thread;
    bool invalid = false, ended = false;
};

CUstream_st *make_stream(int device);
// Does what it can of its work; the rest goes on without the stream.
void unmake_stream(CUstream_st *stream);
bool is_stream(const CUstream_st *stream);
std::vector<CUstream_st *> streams_of(int device);
size_t live_streams();

// The item is the stream's newest, or its capture's.
cudaError_t push(CUstream_st *stream, const Item &item);
std::shared_ptr<Point> make_point(CUstream_st *stream);

// Runs everything that can run.
void run_all();
// Blocks until the stream has come to the point; `lock` is the machine's, held once.
cudaError_t wait_for(std::unique_lock<std::recursive_mutex> &lock, const Point &point);
// A look at a point, which moves things on if it is not the first.
bool look_at(Point &point);

// graph.cc: puts the item into the stream's capture, or that of the point.
cudaError_t capture_item(CUstream_st *stream, const Item &item);
// The capture has done something that it may not.
cudaError_t spoil(Capture &capture, cudaError_t error);
// Where this thread may not wait or allocate because of a capture: ends it, and gives the error.
cudaError_t refused_in_capture();
size_t live_graphs();

// runtime.cc
size_t live_events();
// device.cc: the most shared memory a block of the kernel may have.
size_t most_shared_bytes(const void *kernel);
// Notes an error for cudaGetLastError, and gives it back.
cudaError_t fail(cudaError_t error);
// The host has waited once more.
void count_host_wait();

} // namespace cuda_on_cpu
