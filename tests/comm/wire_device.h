/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device made of host memory, for tests of wires: what is queued on its streams is done late and
 * in a random order of streams, as far as events allow. Who forgets to wait for an event reads what
 * was there before. May be used from several threads.
 */
#pragma once

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "engine/base/alloc.h"
#include "engine/device/device.h"
#include "engine/kernels/reduce.h"

/* How far an event has come: it is done with generation g when `done` has reached it. Streams that
 * wait keep this when the event is destroyed, as CUDA does. */
struct event_state {
    int64_t recorded = 0, done = 0;
};
struct crl_event {
    std::shared_ptr<event_state> state = std::make_shared<event_state>();
};

/* One thing in a queue: work, or the end of a generation, or waiting for one, or for `gate`. */
struct late_work {
    std::function<void()> run;
    std::shared_ptr<event_state> marks, awaits;
    int64_t generation = 0;
    std::function<bool()> gate;
};

struct CUstream_st {
    std::deque<late_work> queue;
};
#ifndef CRL_LATE_CUDA_STREAMS /* else crl_stream is engine/device/cuda_stream.h's */
struct crl_stream {
    CUstream_st *handle;
};
#endif

namespace comm_test {

class late_device {
  public:
    static late_device &get() {
        static late_device device;
        return device;
    }
    void seed(uint32_t number) {
        const std::lock_guard<std::mutex> lock(mutex_);
        random_.seed(number);
    }
    /* Streams, events and memory that were not given back. */
    int64_t live() {
        const std::lock_guard<std::mutex> lock(mutex_);
        return live_;
    }
    /* From now on work stays where it is: a device that hangs. */
    void hang(bool on) {
        const std::lock_guard<std::mutex> lock(mutex_);
        hangs_ = on;
    }
    void push(crl_stream *stream, std::function<void()> run) {
        const std::lock_guard<std::mutex> lock(mutex_);
        stream->handle->queue.push_back({std::move(run)});
    }
    /* Passed once `gate` says so, which is asked again and again when the queue has come to it. */
    void push_gate(CUstream_st *stream, std::function<bool()> gate) {
        const std::lock_guard<std::mutex> lock(mutex_);
        stream->queue.push_back({nullptr, nullptr, nullptr, 0, std::move(gate)});
    }
    /* While it lives nothing happens to queues. */
    std::shared_ptr<void> hold() { return std::make_shared<std::unique_lock<std::mutex>>(mutex_); }

    crl_status alloc(void *out, size_t bytes) {
        char *memory = nullptr;
        CRL_TRY(crl_alloc(&memory, bytes, 1));
        memcpy(out, &memory, sizeof memory);
        count(1);
        return CRL_STATUS_OK;
    }
    void free(void *memory) {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            for (bool moved = true; moved;) {
                moved = false;
                for (CUstream_st *stream : streams_) {
                    moved = step(stream) || moved;
                }
            }
        }
        crl_free(memory);
        count(-1);
    }
    crl_status stream_create(crl_stream **out) {
        *out = new crl_stream();
        (*out)->handle = new CUstream_st;
        count(1);
        const std::lock_guard<std::mutex> lock(mutex_);
        streams_.insert((*out)->handle);
        return CRL_STATUS_OK;
    }
    void stream_destroy(crl_stream *stream) {
        wait(stream);
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            streams_.erase(stream->handle);
        }
        delete stream->handle;
        delete stream;
        count(-1);
    }
    void wait(crl_stream *stream) {
        while (!drain_now(stream->handle)) {
            std::this_thread::yield(); /* a gate that another thread has to open */
        }
    }
    void record(crl_event *event, crl_stream *stream) {
        const std::lock_guard<std::mutex> lock(mutex_);
        stream->handle->queue.push_back(
            {nullptr, event->state, nullptr, ++event->state->recorded, nullptr});
    }
    void follow(crl_stream *stream, crl_event *event) {
        const std::lock_guard<std::mutex> lock(mutex_);
        stream->handle->queue.push_back(
            {nullptr, nullptr, event->state, event->state->recorded, nullptr});
    }
    bool query(crl_event *event) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!hangs_ && event->state->done < event->state->recorded) {
            for (CUstream_st *stream : streams_) {
                for (unsigned steps = (unsigned)random_() % 3; steps > 0; steps--) {
                    step(stream);
                }
            }
        }
        return event->state->done >= event->state->recorded;
    }
    void count(int64_t by) {
        const std::lock_guard<std::mutex> lock(mutex_);
        live_ += by;
    }

  private:
    /* Does the first thing in the queue if it can. */
    bool step(CUstream_st *stream) {
        if (stream->queue.empty()) {
            return false;
        }
        const late_work work = stream->queue.front();
        if ((work.awaits != nullptr && work.awaits->done < work.generation) ||
            (work.gate && !work.gate())) {
            return false;
        }
        stream->queue.pop_front();
        if (work.run) {
            work.run();
        }
        if (work.marks != nullptr) {
            work.marks->done = work.generation;
        }
        return true;
    }
    /* As far as this and all other streams can get; true: it is empty. */
    bool drain_now(CUstream_st *wanted) {
        const std::lock_guard<std::mutex> lock(mutex_);
        bool moved = true;
        while (moved && !wanted->queue.empty()) {
            moved = step(wanted);
            for (auto at = streams_.begin(); !moved && at != streams_.end(); ++at) {
                moved = step(*at);
            }
        }
        return wanted->queue.empty();
    }

    std::mutex mutex_;
    std::mt19937 random_;
    std::set<CUstream_st *> streams_;
    int64_t live_ = 0;
    bool hangs_ = false;
};

inline crl_status late_probe() {
    return CRL_STATUS_OK;
}
inline crl_status late_alloc(void *out, size_t bytes) {
    return late_device::get().alloc(out, bytes);
}
inline void late_free(void *memory) {
    late_device::get().free(memory);
}
inline crl_status late_copy(crl_stream *stream, void *to, const void *from, size_t bytes) {
    late_device::get().push(stream, [=] { memmove(to, from, bytes); });
    return CRL_STATUS_OK;
}
inline crl_status late_zero(crl_stream *stream, void *to, size_t bytes) {
    late_device::get().push(stream, [=] { memset(to, 0, bytes); });
    return CRL_STATUS_OK;
}
inline crl_status late_stream_create(crl_stream **out) {
    return late_device::get().stream_create(out);
}
inline void late_stream_destroy(crl_stream *stream) {
    late_device::get().stream_destroy(stream);
}
inline crl_status late_stream_wait(crl_stream *stream) {
    late_device::get().wait(stream);
    return CRL_STATUS_OK;
}
inline crl_status late_event_create(crl_event **out) {
    *out = new crl_event;
    late_device::get().count(1);
    return CRL_STATUS_OK;
}
inline void late_event_destroy(crl_event *event) {
    delete event;
    late_device::get().count(-1);
}
inline crl_status late_event_record(crl_event *event, crl_stream *stream) {
    late_device::get().record(event, stream);
    return CRL_STATUS_OK;
}
inline crl_status late_event_follow(crl_stream *stream, crl_event *event) {
    late_device::get().follow(stream, event);
    return CRL_STATUS_OK;
}
inline crl_status late_event_query(crl_event *event, bool *done) {
    *done = late_device::get().query(event);
    return CRL_STATUS_OK;
}

inline const crl_device *late() {
    static const crl_device device = [] {
        crl_device d = {};
        d.name = "late";
        d.help = "for tests";
        d.probe = late_probe;
        d.alloc = d.host_alloc = late_alloc;
        d.free = d.host_free = late_free;
        d.copy = late_copy;
        d.zero = late_zero;
        d.stream_create = late_stream_create;
        d.stream_destroy = late_stream_destroy;
        d.stream_wait = late_stream_wait;
        d.event_create = late_event_create;
        d.event_destroy = late_event_destroy;
        d.event_record = late_event_record;
        d.event_follow = late_event_follow;
        d.event_query = late_event_query;
        return d;
    }();
    return &device;
}

inline crl_status late_add(crl_stream *stream, float *y, const float *x, int64_t n) {
    late_device::get().push(stream, [=] {
        for (int64_t i = 0; i < n; i++) {
            y[i] += x[i];
        }
    });
    return CRL_STATUS_OK;
}
inline const crl_reduce_ops *late_reduce() {
    static const crl_reduce_ops ops = {late_add, nullptr, nullptr, nullptr};
    return &ops;
}

} // namespace comm_test
