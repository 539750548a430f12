// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_on_cpu/queue.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <random>
#include <set>

namespace cuda_on_cpu {

namespace {

std::recursive_mutex mutex;
std::condition_variable_any changed;
std::vector<CUstream_st *> streams; // oldest first
int streams_made;
uint64_t moves; // so far: who waits sees that something happens
Streams mode = Streams::kLate;
std::mt19937 random_streams;
int deadline_ms = 20000;

void bury(CUstream_st *stream) {
    streams.erase(std::find(streams.begin(), streams.end(), stream));
    leave_timeline(stream->timeline);
    delete stream;
}

// Does what is next on the stream, if it may be done.
bool step(CUstream_st *stream) {
    if (stream->items.empty())
        return false;
    const Item item = stream->items.front();
    if ((item.wait && !item.wait->reached) ||
        (item.work && item.work->ready && !item.work->ready()))
        return false;
    stream->items.pop_front();
    if (item.work) {
        const cudaError_t error = item.work->run();
        stream->error = stream->error == cudaSuccess ? error : stream->error;
    }
    if (item.record) {
        item.record->reached = true;
        item.record->error = stream->error;
    }
    moves++;
    if (stream->items.empty() && stream->destroyed)
        bury(stream);
    return true;
}

// Does one thing that brings the stream on: its own, or one that it waits for.
bool help(CUstream_st *stream, std::set<CUstream_st *> &asked) {
    if (!asked.insert(stream).second)
        return false;
    if (step(stream))
        return true;
    if (stream->items.empty())
        return false;
    const Item &item = stream->items.front();
    if (item.wait)
        return help(item.wait->stream, asked);
    const std::vector<CUstream_st *> all = streams; // work that is not ready waits for anybody
    return std::any_of(all.begin(), all.end(), [&](CUstream_st *s) { return help(s, asked); });
}

bool drain(CUstream_st *stream) {
    bool moved = false;
    while (std::count(streams.begin(), streams.end(), stream) && step(stream))
        moved = true;
    return moved;
}

bool move_all() {
    std::vector<CUstream_st *> order = streams;
    if (mode == Streams::kReverse)
        std::reverse(order.begin(), order.end());
    bool moved = false;
    for (CUstream_st *stream : order)
        moved = drain(stream) || moved;
    return moved;
}

bool move_one() {
    std::vector<CUstream_st *> order = streams;
    std::shuffle(order.begin(), order.end(), random_streams);
    return std::any_of(order.begin(), order.end(), step);
}

// Moves something on, in the way that was chosen, for the sake of a stream.
bool move(CUstream_st *wanted) {
    std::set<CUstream_st *> asked;
    return mode == Streams::kLate     ? help(wanted, asked)
           : mode == Streams::kRandom ? move_one()
                                      : move_all();
}

void report_deadlock() {
    std::string text = "deadlock:";
    for (const CUstream_st *stream : streams) {
        if (stream->items.empty())
            continue;
        const Item &item = stream->items.front();
        text += " stream " + std::to_string(stream->number) + " waits " +
                (item.work ? "in " + item.work->name
                           : "for stream " + std::to_string(item.wait->stream->number)) +
                ";";
    }
    report(text);
}

} // namespace

std::unique_lock<std::recursive_mutex> hold() {
    return std::unique_lock<std::recursive_mutex>(mutex);
}

void set_streams(Streams next, uint32_t seed) {
    const auto lock = hold();
    mode = next;
    random_streams.seed(seed);
}

void set_deadline(int ms) {
    const auto lock = hold();
    deadline_ms = ms;
}

CUstream_st *make_stream(int device) {
    CUstream_st *stream = new CUstream_st;
    stream->number = ++streams_made;
    stream->device = device;
    stream->timeline = take_timeline();
    streams.push_back(stream);
    return stream;
}

void unmake_stream(CUstream_st *stream) {
    for (bool moved = true; moved && !stream->items.empty();) {
        std::set<CUstream_st *> asked;
        moved = help(stream, asked);
    }
    stream->destroyed = true;
    if (stream->items.empty())
        bury(stream);
}

bool is_stream(const CUstream_st *stream) {
    return std::any_of(streams.begin(), streams.end(),
                       [&](const CUstream_st *s) { return s == stream && !s->destroyed; });
}

std::vector<CUstream_st *> streams_of(int device) {
    std::vector<CUstream_st *> all;
    for (CUstream_st *stream : streams) {
        if (stream->device == device && !stream->destroyed && !stream->hidden)
            all.push_back(stream);
    }
    return all;
}

size_t live_streams() {
    return (size_t)std::count_if(streams.begin(), streams.end(),
                                 [](const CUstream_st *s) { return !s->destroyed && !s->hidden; });
}

cudaError_t push(CUstream_st *stream, const Item &item) {
    if (stream->capture || (item.wait && item.wait->capture))
        return capture_item(stream, item);
    join(stream->clock, host_clock());
    if (item.wait)
        join(stream->clock, item.wait->clock);
    if (item.work) {
        const size_t timeline = (size_t)stream->timeline;
        stream->clock.resize(std::max(stream->clock.size(), timeline + 1), 0);
        stream->clock[timeline] = next_number(stream->timeline);
        check_order(item.work->name, stream->number, stream->timeline, stream->clock,
                    item.work->reads, item.work->writes);
    }
    if (item.record)
        item.record->clock = stream->clock;
    stream->items.push_back(item);
    if (mode == Streams::kNow)
        run_all();
    changed.notify_all();
    return cudaSuccess;
}

std::shared_ptr<Point> make_point(CUstream_st *stream) {
    const auto point = std::make_shared<Point>();
    point->stream = stream;
    return point;
}

void run_all() {
    while (mode == Streams::kRandom ? move_one() : move_all()) {
    }
}

cudaError_t wait_for(std::unique_lock<std::recursive_mutex> &lock, const Point &point) {
    using clock = std::chrono::steady_clock;
    const auto limit = std::chrono::milliseconds(deadline_ms);
    auto deadline = clock::now() + limit;
    for (uint64_t seen = moves; !point.reached;) {
        const bool moved = move(point.stream);
        if (moved || seen != moves) {
            seen = moves;
            deadline = clock::now() + limit;
        } else if (clock::now() > deadline) {
            report_deadlock();
            return cudaErrorLaunchFailure;
        } else {
            changed.wait_for(lock, std::chrono::milliseconds(1));
        }
    }
    join(host_clock(), point.clock);
    return point.error;
}

bool look_at(Point &point) {
    constexpr int kLooksInVain = 2;
    const bool is_late = mode != Streams::kNow;
    if (!point.reached && (!is_late || point.asked++ >= kLooksInVain)) {
        while (!point.reached && move(point.stream)) {
        }
    }
    if (point.reached)
        join(host_clock(), point.clock);
    return point.reached;
}

} // namespace cuda_on_cpu
