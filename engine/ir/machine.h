/* SPDX-License-Identifier: Apache-2.0 */
/* A cluster as the planner sees it: equal devices, equal nodes, two kinds of links. */
#pragma once

#include "engine/ir/cost.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_machine {
    const char *name;
    int nodes, devices_per_node;
    double memory_bytes;        /* of a device */
    double peak_flops_per_s;    /* of a device, in the dtype that is trained with */
    double efficiency;          /* share of the peak that a very large product reaches */
    double half_flops;          /* a product of this many flops reaches half of that; 0: all do */
    double memory_bytes_per_s;  /* of a device's memory: what bounds element-wise work */
    double launch_s;            /* of one kernel: the least any node takes */
    crl_link within, between;   /* links of a device inside its node, and to other nodes */
    double message_s;           /* of its own time that starting or ending a message takes */
    double price_per_hour;      /* of a device, any currency; 0: not counted */
} crl_machine;

#ifdef __cplusplus
}
#endif
