/* SPDX-License-Identifier: Apache-2.0 */
/* What single operations take on a machine, and machines no planner can reason with. */
#include "engine/ir/machine.h"

#include <math.h>

static const char *name_of(const crl_machine *machine) {
    return machine->name ? machine->name : "";
}

static crl_status check_number(const crl_machine *machine, const char *what, double value,
                               double low, double high) {
    if (!isfinite(value) || value < low || value > high) {
        return CRL_FAIL(INVALID, "machine %s: %s is %g, expected %g to %g", name_of(machine), what,
                        value, low, high);
    }
    return CRL_STATUS_OK;
}

crl_status crl_machine_check(const crl_machine *machine) {
    const double most = 1e30;
    const struct {
        const char *what;
        double value, low, high;
    } number[] = {
        {"nodes", machine->nodes, 1, most},
        {"devices of a node", machine->devices_per_node, 1, most},
        {"memory", machine->memory_bytes, 0, most},
        {"peak flops/s", machine->peak_flops_per_s, 1, most},
        {"efficiency", machine->efficiency, 1e-9, 1},
        {"half flops", machine->half_flops, 0, most},
        {"memory bytes/s", machine->memory_bytes_per_s, 1, most},
        {"launch time", machine->launch_s, 0, most},
        {"latency within a node", machine->within.latency_s, 0, most},
        {"bytes/s within a node", machine->within.bytes_per_s, 0, most},
        {"latency between nodes", machine->between.latency_s, 0, most},
        {"bytes/s between nodes", machine->between.bytes_per_s, 0, most},
        {"price", machine->price_per_hour, 0, most},
        {"message time", machine->message_s, 0, most},
        {"overlap of forward", machine->forward_overlap, 0, 1},
        {"overlap of backward", machine->backward_overlap, 0, 1},
        {"overlap of sums", machine->sum_overlap, 0, 1},
        {"overlap of gathering", machine->gather_overlap, 0, 1},
    };
    for (size_t i = 0; i < sizeof number / sizeof number[0]; i++) {
        CRL_TRY(
            check_number(machine, number[i].what, number[i].value, number[i].low, number[i].high));
    }
    return CRL_STATUS_OK;
}

double crl_machine_product_s(const crl_machine *machine, double flops) {
    return machine->launch_s +
           (flops + machine->half_flops) / (machine->peak_flops_per_s * machine->efficiency);
}

double crl_machine_traffic_s(const crl_machine *machine, double bytes) {
    return machine->launch_s + bytes / machine->memory_bytes_per_s;
}

double crl_link_s(const crl_link *link, double bytes) {
    return link->latency_s + (link->bytes_per_s > 0 ? bytes / link->bytes_per_s : 0);
}
