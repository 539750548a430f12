/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that carry the allocation watch and the error rank, and the clock. */
#include "engine/base/thread.h"

#include "engine/base/alloc.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CLOCK_NS_PER_S = 1000000000, LARGEST_CPU_COUNT = 1 << 16 };

struct crl_thread {
    pthread_t id;
    crl_thread_fn run;
    void *argument;
    crl_alloc_watch *watch;
    int rank;
    crl_status status;
    crl_error error; /* the thread's record, when it failed */
};

static void *thread_main(void *handle) {
    crl_thread *thread = handle;
    crl_alloc_attach(thread->watch);
    crl_error_set_rank(thread->rank);
    thread->status = thread->run(thread->argument);
    if (thread->status != CRL_STATUS_OK) {
        thread->error = *crl_error_get();
    }
    return NULL;
}

crl_status crl_thread_start(crl_thread **out, crl_thread_fn run, void *argument) {
    crl_thread *thread;
    CRL_TRY(crl_alloc(&thread, 1, sizeof *thread));
    thread->run = run;
    thread->argument = argument;
    thread->watch = crl_alloc_attached();
    thread->rank = crl_error_rank();
    const int code = pthread_create(&thread->id, NULL, thread_main, thread);
    if (code != 0) {
        crl_free(thread);
        return CRL_FAIL(NOMEM, "thread: cannot be started: %s", strerror(code));
    }
    *out = thread;
    return CRL_STATUS_OK;
}

crl_status crl_thread_join(crl_thread *thread) {
    if (!thread) {
        return CRL_STATUS_OK;
    }
    const int code = pthread_join(thread->id, NULL);
    CRL_ASSERT(code == 0);
    const crl_status status = thread->status;
    if (status != CRL_STATUS_OK) {
        crl_error_set(&thread->error);
    }
    crl_free(thread);
    return status;
}

int64_t crl_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * CLOCK_NS_PER_S + now.tv_nsec;
}

void crl_clock_sleep_ns(int64_t duration_ns) {
    if (duration_ns <= 0) {
        return;
    }
    const int64_t end_ns = crl_clock_ns() + duration_ns;
    const struct timespec end = {.tv_sec = end_ns / CLOCK_NS_PER_S,
                                 .tv_nsec = end_ns % CLOCK_NS_PER_S};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR) {
    }
}

int crl_cpu_count(void) {
    /* The kernel refuses a mask smaller than its own: larger ones until it fits. */
    for (size_t cpus = CPU_SETSIZE; cpus <= LARGEST_CPU_COUNT; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (!set) {
            break;
        }
        const size_t bytes = CPU_ALLOC_SIZE(cpus);
        const int code = sched_getaffinity(0, bytes, set);
        const int count = code == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (count > 0) {
            return count;
        }
    }
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}
