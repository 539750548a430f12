/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measured costs. Every rank runs the whole model by itself, all ranks at the same time, so that
 * what they share (memory, caches, clock rates) is in the numbers:
 *
 *     rank 0   F0 F1 B0 F2 B1 F3 B2 B3 | add | norm, update      the times of every node by phase
 *     rank 1   F0 F1 B0 F2 B1 F3 B2 B3 | add | norm, update      are medians over rounds, averaged
 *              ^ barrier               ^     ^                   over ranks
 *
 * once with whole backwards and once with I and W apart;
 * and, with two ranks or more, messages go between the first two. Threads are not bound to cores:
 * neither are those of training.
 */
#pragma once

#include "engine/comm/comm.h"
#include "engine/ir/machine.h"
#include "engine/ir/profile.h"
#include "engine/run/registries.h"
#include "engine/run/settings.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What ranks and their links take. Zero-initialise. */
typedef struct crl_measured {
    int ranks;
    double *node_s;             /* (nodes × CRL_PHASES) of one micro-batch */
    double *split_s;            /* (nodes) what I and W apart take longer than B */
    double add_s_per_byte;      /* of adding gradients to gradients */
    double update_s_per_byte;   /* of norm and optimizer, per byte of weights */
    double flops_per_s;         /* of all products of a micro-batch together */
    double traffic_bytes_per_s; /* of memory, as adding reaches it */
    crl_link link;              /* 1 rank: all 0 */
    double message_s;           /* of its own that a rank takes to start or end a message */
} crl_measured;

typedef struct crl_measure_config {
    const crl_settings *settings; /* whose layout does not matter; lent */
    const crl_registries *registries;
    int ranks;         /* at the same time; with transport mpi, the processes of the job */
    int micro_batches; /* of a round; 0: 4 */
    int rounds;        /* at most, after one that warms up; 3 where they take long; 0: 7 */
    bool split;        /* backward in halves, too */
} crl_measure_config;

/* Launches the settings' transport (the first of the registries for 1 rank) and measures
 * micro-batches of settings->train.micro_batch. With the mpi transport every process calls it. */
CRL_NODISCARD crl_status crl_measure(crl_measured *out, const crl_measure_config *config);
/* One that is all zero is fine. */
void crl_measured_fini(crl_measured *measured);

/* The profile of the settings' model with those times. `measured` is of the same micro-batch. */
CRL_NODISCARD crl_status crl_measured_profile(crl_profile **out, const crl_measured *measured,
                                              const crl_settings *settings,
                                              const crl_registries *registries);
/* This machine as what was measured on it shows it: one node of as many devices as there were
 * ranks. `name` is lent. */
crl_machine crl_measured_machine(const crl_measured *measured, const char *name);

#ifdef __cplusplus
}
#endif
