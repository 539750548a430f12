/* SPDX-License-Identifier: Apache-2.0 */
/* What a sum over a group of devices takes, by the way it goes. Pure. */
#pragma once

#include "engine/ir/machine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where the devices of a group are. */
typedef struct crl_sum_group {
    int members; /* at least 1 */
    int nodes;   /* that they are on, evenly */
} crl_sum_group;

/* Seconds of summing `bytes` of every member so that all have the sum: the fastest of the three. */
double crl_group_sum_s(const crl_machine *machine, crl_sum_group group, double bytes);
/* Once around a ring and around again. */
double crl_group_ring_s(const crl_machine *machine, crl_sum_group group, double bytes);
/* Halves exchanged with ever farther members, and back. */
double crl_group_halving_s(const crl_machine *machine, crl_sum_group group, double bytes);
/* Each node's members add and split what they have, each sums its part with its like on other
 * nodes, then the parts are gathered. */
double crl_group_nodes_s(const crl_machine *machine, crl_sum_group group, double bytes);

#ifdef __cplusplus
}
#endif
