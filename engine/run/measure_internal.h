/* SPDX-License-Identifier: Apache-2.0 */
/* What the measuring files share: nodes (measure_nodes.c), links (measure_link.c), the job
 * (profile.c). */
#pragma once

#include "engine/comm/collective.h"
#include "engine/run/profile.h"
#include "engine/run/run_internal.h"

enum { CRL_MEASURE_MOST_ROUNDS = 64 };

/* Rows of a measurement after those of the nodes (nodes × CRL_PHASES), in seconds. */
enum {
    CRL_MEASURE_BUSY = 0, /* a micro-batch as a whole */
    CRL_MEASURE_ADD,      /* adding the rank's weights to its gradients */
    CRL_MEASURE_UPDATE,   /* norm and optimizer of all parameters */
    CRL_MEASURE_TOTALS
};

/* The middle one of `count` numbers, which are sorted on return. */
double crl_measure_median(double *value, int count);

/* Collective: all. `split`: backward in halves. The same result on all members. `config` with
 * nothing left 0. (nodes × CRL_PHASES + CRL_MEASURE_TOTALS) */
crl_status crl_measure_nodes(double *out_s, const crl_measure_config *config, bool split,
                             const crl_group *all);

/* What messages between ranks 0 and 1 take. */
typedef struct crl_measured_link {
    crl_link link;
    double message_s;
} crl_measured_link;

/* Collective: the group. Messages of `bytes` (at least 64); the same result on all members. A group
 * of one has no links. */
crl_status crl_measure_link(crl_measured_link *out, const crl_group *group, size_t bytes);
