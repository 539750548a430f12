/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums over a group of w devices on n nodes [thakur05] [patarasuk09]. Links are taken as idle: the
 * sums of other groups go over the links of other devices.
 *
 *     nodes:  a0 a1 | b0 b1        within: a0 <-> a1, b0 <-> b1      halves of the sum of a node
 *                                  between: a0 <-> b0, a1 <-> b1     its half of the whole sum
 *                                  within: a0 <-> a1, b0 <-> b1      the whole sum
 *
 * cost card, bytes b, latency and bandwidth of the slower link on the way:
 * ring 2(w-1) latencies + 2(w-1)/w · b / bandwidth ·
 * halving 2 log2 w latencies (one more exchange of all where w is no power of two) + the same ·
 * nodes: a ring of w/n within, one of n between for b·n/w
 */
#include "partition/group_sum.h"

#include <math.h>

/* Without the latencies. */
static double share_s(const crl_link *link, int members, double bytes) {
    return link->bytes_per_s > 0 ? 2.0 * (members - 1) / members * bytes / link->bytes_per_s : 0;
}

static double ring_s(const crl_link *link, int members, double bytes) {
    return 2.0 * (members - 1) * link->latency_s + share_s(link, members, bytes);
}

static const crl_link *link_of(const crl_machine *machine, crl_sum_group group) {
    return group.nodes > 1 ? &machine->between : &machine->within;
}

double crl_group_ring_s(const crl_machine *machine, crl_sum_group group, double bytes) {
    return ring_s(link_of(machine, group), group.members, bytes);
}

double crl_group_halving_s(const crl_machine *machine, crl_sum_group group, double bytes) {
    const crl_link *link = link_of(machine, group);
    const double rounds = floor(log2(group.members));
    const double core = exp2(rounds);
    const double odd = core < group.members ? 2 * crl_link_s(link, bytes) : 0;
    return 2 * rounds * link->latency_s + share_s(link, (int)core, bytes) + odd;
}

double crl_group_nodes_s(const crl_machine *machine, crl_sum_group group, double bytes) {
    const int inside = (group.members + group.nodes - 1) / group.nodes;
    return ring_s(&machine->within, inside, bytes) +
           ring_s(&machine->between, group.nodes, bytes / inside);
}

double crl_group_sum_s(const crl_machine *machine, crl_sum_group group, double bytes) {
    if (group.members <= 1) {
        return 0;
    }
    const double flat =
        fmin(crl_group_ring_s(machine, group, bytes), crl_group_halving_s(machine, group, bytes));
    return fmin(flat, crl_group_nodes_s(machine, group, bytes));
}
