/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stopping a run when the process is asked to. The signals are blocked and taken by one thread with
 * sigtimedwait, so that there is no handler and nothing that is forbidden in one.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>

#include "cli/cli_internal.h"
#include "engine/base/alloc.h"
#include "engine/base/thread.h"

struct crl_stop {
    crl_thread *thread;
    const char *program;
    sigset_t signals, before;
    atomic_bool asked, ended;
    atomic_bool stepping; /* somebody asks: there is a step to end and something to save */
};

/* The default action: ends the process. */
static void end_process(const crl_stop *stop, int signal_number) {
    signal(signal_number, SIG_DFL);
    raise(signal_number);
    pthread_sigmask(SIG_UNBLOCK, &stop->signals, NULL);
}

static crl_status watch(void *argument) {
    crl_stop *stop = argument;
    const struct timespec patience = {0, 100000000};
    while (!atomic_load(&stop->ended)) {
        const int signal_number = sigtimedwait(&stop->signals, NULL, &patience);
        if (signal_number < 0) {
            continue;
        }
        if (atomic_exchange(&stop->asked, true) || !atomic_load(&stop->stepping)) {
            end_process(stop, signal_number);
        }
        fprintf(stderr, "\n%s: stopping after this step (a second signal ends it at once)\n",
                stop->program);
    }
    return CRL_STATUS_OK;
}

crl_status crl_stop_begin(crl_stop **out, const char *program) {
    crl_stop *stop = NULL;
    CRL_TRY(crl_alloc(&stop, 1, sizeof *stop));
    stop->program = program;
    sigemptyset(&stop->signals);
    sigaddset(&stop->signals, SIGINT);
    sigaddset(&stop->signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &stop->signals, &stop->before);
    const crl_status status = crl_thread_start(&stop->thread, watch, stop);
    if (status != CRL_STATUS_OK) {
        pthread_sigmask(SIG_SETMASK, &stop->before, NULL);
        crl_free(stop);
        return status;
    }
    *out = stop;
    return CRL_STATUS_OK;
}

bool crl_stop_asked(crl_stop *stop) {
    atomic_store(&stop->stepping, true);
    return atomic_load(&stop->asked);
}

void crl_stop_end(crl_stop *stop) {
    if (!stop) {
        return;
    }
    atomic_store(&stop->ended, true);
    (void)crl_thread_join(stop->thread);
    pthread_sigmask(SIG_SETMASK, &stop->before, NULL);
    crl_free(stop);
}
