/* SPDX-License-Identifier: Apache-2.0 */
/* From measured times to what the planner reads: a profile and a machine. */
#include <math.h>

#include "engine/base/alloc.h"
#include "engine/run/counted.h"
#include "engine/run/layout.h"
#include "engine/run/profile.h"
#include "engine/run/profile_internal.h"

crl_machine crl_measured_machine(const crl_measured *measured, const char *name) {
    const crl_machine *nominal = crl_counted_nominal();
    const double memory_bytes = (double)crl_memory_physical_bytes();
    crl_machine machine = *nominal;
    machine.name = name;
    machine.devices_per_node = measured->ranks;
    machine.memory_bytes = memory_bytes > 0 ? floor(memory_bytes / measured->ranks) : 0x1p34;
    machine.within = machine.between = measured->link;
    machine.message_s = measured->message_s;
    if (measured->flops_per_s > 0) {
        machine.peak_flops_per_s = measured->flops_per_s;
    }
    if (measured->traffic_bytes_per_s > 0) {
        machine.memory_bytes_per_s = measured->traffic_bytes_per_s;
    }
    return machine;
}

/* No clock tells more than nanoseconds, and files are read by people. */
static void round_times(crl_profile_unit *unit) {
    for (const crl_profile_number *n = crl_profile_numbers; n->name; n++) {
        double *value = profile_number(unit, n);
        *value = n->seconds ? floor(*value * 1e9 + 0.5) / 1e9 : *value;
    }
}

crl_status crl_measured_profile(crl_profile **out, const crl_measured *measured,
                                const crl_settings *settings, const crl_registries *registries) {
    crl_status status = CRL_STATUS_OK;
    const char *names[CRL_OPTIMIZER_MAX_STATES];
    const int states = settings->optimizer_kind->states(settings->optimizer_options, names);
    crl_graph *graph = NULL;
    crl_profile *profile = NULL;
    CRL_TRY_OUT(crl_layout_graph(&graph, settings, registries, settings->train.micro_batch));
    CRL_TRY_OUT(
        crl_profile_counted(&profile, graph, crl_counted_nominal(), measured->node_s, states));
    CRL_TRY_OUT(crl_arena_format(&profile->arena, &profile->source,
                                 "measured, %d ranks at the same time over %s", measured->ranks,
                                 measured->ranks > 1 ? settings->comm.transport : "nothing"));
    for (int n = 0, u = 0; n < graph->nodes; n++) {
        if (graph->node[n].layer->is_input) {
            continue;
        }
        crl_profile_unit *unit = &profile->unit[u++];
        unit->split_s = measured->split_s[n];
        unit->add_s = measured->add_s_per_byte * unit->parameter_bytes;
        unit->update_s = measured->update_s_per_byte * unit->parameter_bytes;
        round_times(unit);
    }
    *out = profile;
    profile = NULL;
out:
    crl_profile_destroy(profile);
    crl_graph_destroy(graph);
    return status;
}
