/* SPDX-License-Identifier: Apache-2.0 */
/* What the stages of a plan cost, for the schedule that orders them and the simulator. */
#include "engine/base/alloc.h"
#include "engine/ir/recompute.h"
#include "engine/run/layout_internal.h"

static crl_status stage_costs(crl_stage_cost *cost, const crl_layout *layout,
                              const crl_stage *stage) {
    crl_recompute *recompute = NULL;
    CRL_TRY(crl_recompute_create(&recompute, layout->graph, stage->first, stage->last,
                                 layout->plan->recompute));
    for (int n = stage->first; n < stage->last; n++) {
        const double *node_s = &layout->node_s[n * CRL_PHASES];
        cost->forward_s += node_s[CRL_PHASE_FORWARD];
        cost->input_s += node_s[CRL_PHASE_INPUT];
        cost->input_s += recompute->again[n] ? node_s[CRL_PHASE_FORWARD] : 0;
        cost->weight_s += node_s[CRL_PHASE_WEIGHT];
    }
    cost->kept_bytes = crl_recompute_kept_bytes(recompute, 0, stage->last);
    cost->held_bytes = crl_recompute_held_bytes(recompute, 0, stage->last);
    crl_recompute_destroy(recompute);
    return CRL_STATUS_OK;
}

/* What the settings' limit leaves for activations on the position with the most state. */
static double activation_limit(const crl_layout *layout) {
    const double limit_bytes = (double)layout->settings->parallel.memory_limit_bytes;
    double most_bytes = 0;
    for (int p = 0; p < layout->mesh.pipeline; p++) {
        double bytes = 0;
        for (int s = 0; s < layout->stages; s++) {
            const crl_stage *stage = &layout->plan->stage[s];
            for (int n = stage->first; stage->position == p && n < stage->last; n++) {
                bytes += crl_layout_state_bytes(layout, n);
            }
        }
        most_bytes = bytes > most_bytes ? bytes : most_bytes;
    }
    return limit_bytes > most_bytes ? limit_bytes - most_bytes : 0;
}

crl_status crl_layout_costs(crl_layout *layout) {
    const crl_link *link = &layout->machine.machine.within;
    for (int s = 0; s < layout->stages; s++) {
        CRL_TRY(stage_costs(&layout->stage[s], layout, &layout->plan->stage[s]));
    }
    for (int e = 0; e < layout->plan->edges; e++) {
        const double message_s = crl_link_s(link, (double)layout->plan->edge[e].bytes);
        layout->message_s = message_s > layout->message_s ? message_s : layout->message_s;
    }
    layout->activation_limit_bytes = activation_limit(layout);
    return CRL_STATUS_OK;
}
