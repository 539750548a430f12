/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cluster as the planner sees it: equal devices, equal nodes, two kinds of links; and what single
 * operations take on it. The figures of a device are those that training software reaches on it,
 * so the same hardware may have several descriptions.
 */
#pragma once

#include "engine/base/status.h"
#include "engine/ir/cost.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_machine {
    const char *name;
    int nodes, devices_per_node;
    double memory_bytes;       /* of a device */
    double peak_flops_per_s;   /* of a device, in the dtype that is trained with */
    double efficiency;         /* share of the peak that a very large product reaches */
    double half_flops;         /* a product of this many flops reaches half of that; 0: all do */
    double memory_bytes_per_s; /* of a device's memory: what bounds element-wise work */
    double launch_s;           /* of one kernel: the least any node takes */
    crl_link within, between;  /* links of a device inside its node, and to other nodes */
    double price_per_hour;     /* of a device, any currency; 0: not counted */
    double message_s;          /* of its own that a device takes to start or end a message */
    /* Shares of communication that computing hides, 0: they take turns .. 1 */
    double forward_overlap;  /* sums over a tensor group in forward */
    double backward_overlap; /* and in backward */
    double sum_overlap;      /* sums of gradients over replicas, behind the last backward */
    double gather_overlap;   /* the second half of those sums, behind the next first forward */
} crl_machine;

/* INVALID "machine x: ...": sizes below 1, a share outside 0..1, a number negative or infinite. */
CRL_NODISCARD crl_status crl_machine_check(const crl_machine *machine);

/* Seconds of one matrix product: launch + (flops + half) / (peak · efficiency). */
double crl_machine_product_s(const crl_machine *machine, double flops);
/* Seconds of one element-wise kernel that reads and writes so many bytes. */
double crl_machine_traffic_s(const crl_machine *machine, double bytes);
/* Seconds of one message over a link. */
double crl_link_s(const crl_link *link, double bytes);

#ifdef __cplusplus
}
#endif
