/* SPDX-License-Identifier: Apache-2.0 */
/* What the measuring files share: nodes (profile.c), links (measure_link.c). */
#pragma once

#include "engine/comm/collective.h"
#include "engine/ir/cost.h"

enum { CRL_MEASURE_MOST_ROUNDS = 64 };

/* The middle one of `count` numbers, which are sorted on return. */
double crl_measure_median(double *value, int count);

/* What messages between ranks 0 and 1 take. */
typedef struct crl_measured_link {
    crl_link link;
    double message_s;
} crl_measured_link;

/* Collective: the group. Messages of `bytes` (at least 64); the same result on all members. A group
 * of one has no links. */
crl_status crl_measure_link(crl_measured_link *out, const crl_group *group, size_t bytes);
