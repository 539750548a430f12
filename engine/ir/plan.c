/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stages and the values that travel between them. Refuses to choose anything: cuts come from a
 * partitioner or the user.
 *
 *     stage   0        1        2        3
 *     value   made --> used --> ---- --> used      edges 0 -> 1 and 1 -> 3: stage 1 passes it on
 */
#include "engine/ir/plan.h"

#include <stdlib.h>

#include "engine/base/alloc.h"

static crl_status check_cuts(const crl_plan_config *config) {
    const int stages = config->stages, nodes = config->graph->nodes;
    const int *first_node = config->first_node;
    if (stages > nodes) {
        return CRL_FAIL(INVALID, "plan: %d stages for %d nodes, every stage needs one", stages,
                        nodes);
    }
    if (first_node[0] != 0) {
        return CRL_FAIL(INVALID, "plan: stage 0 begins at node %d, expected 0", first_node[0]);
    }
    for (int s = 1; s < stages; s++) {
        if (first_node[s] <= first_node[s - 1] || first_node[s] >= nodes) {
            return CRL_FAIL(INVALID,
                            "plan: stage %d begins at node %d, expected more than %d and less "
                            "than %d",
                            s, first_node[s], first_node[s - 1], nodes);
        }
    }
    return CRL_STATUS_OK;
}

static int position_of(const crl_plan_config *config, int stage) {
    return config->position ? config->position[stage] : stage % config->positions;
}

static bool has_stage(const crl_plan_config *config, int position) {
    for (int s = 0; s < config->stages; s++) {
        if (position_of(config, s) == position) {
            return true;
        }
    }
    return false;
}

static crl_status check_positions(const crl_plan_config *config) {
    const int positions = config->positions, stages = config->stages;
    if (positions < 1 || stages < 1) {
        return CRL_FAIL(INVALID, "plan: %d stages on %d positions, expected 1 or more", stages,
                        positions);
    }
    if (!config->position && stages % positions != 0) {
        return CRL_FAIL(INVALID, "plan: %d stages on %d positions, expected a multiple", stages,
                        positions);
    }
    for (int s = 0; s < stages; s++) {
        if (position_of(config, s) < 0 || position_of(config, s) >= positions) {
            return CRL_FAIL(INVALID, "plan: stage %d on position %d, expected less than %d", s,
                            position_of(config, s), positions);
        }
    }
    for (int p = 0; p < positions; p++) {
        if (!has_stage(config, p)) {
            return CRL_FAIL(INVALID, "plan: position %d has no stage", p);
        }
        if (config->widths && config->widths[p] < 1) {
            return CRL_FAIL(INVALID, "plan: position %d has %d replicas, expected 1 or more", p,
                            config->widths[p]);
        }
    }
    return CRL_STATUS_OK;
}

int crl_plan_stage_of(const crl_plan *plan, int node) {
    int low = 0, high = plan->stages;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (plan->stage[middle].first <= node) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Whether any consumer from number `consumer` on gives a gradient back. */
static bool gradient_returns(const crl_graph *graph, const crl_value *value, int consumer) {
    if (!value->has_gradient) {
        return false;
    }
    for (int i = consumer; i < value->consumers; i++) {
        const crl_consumer *use = &value->consumer[i];
        if (graph->node[use->node].spec.gradient_inputs & (1u << use->slot)) {
            return true;
        }
    }
    return false;
}

/* Adds the hops of one value to the plan; only counts them while `edge` is NULL. */
static void add_hops(crl_plan *plan, int id) {
    const crl_value *value = &plan->graph->value[id];
    if (value->from_input) {
        return;
    }
    int at = crl_plan_stage_of(plan, value->producer);
    for (int i = 0; i < value->consumers; i++) {
        const int to = crl_plan_stage_of(plan, value->consumer[i].node);
        if (to == at) {
            continue;
        }
        if (plan->edge) {
            plan->edge[plan->edges] =
                (crl_edge){.value = id,
                           .from = at,
                           .to = to,
                           .bytes = value->bytes,
                           .gradient = gradient_returns(plan->graph, value, i)};
        }
        plan->edges++;
        at = to;
    }
}

static int compare_edges(const void *left, const void *right) {
    const crl_edge *a = left, *b = right;
    if (a->from != b->from) {
        return a->from < b->from ? -1 : 1;
    }
    if (a->to != b->to) {
        return a->to < b->to ? -1 : 1;
    }
    return (a->value > b->value) - (a->value < b->value);
}

static crl_status add_edges(crl_plan *plan) {
    crl_edge *edge;
    for (int v = 0; v < plan->graph->values; v++) {
        add_hops(plan, v);
    }
    CRL_TRY(crl_alloc(&edge, (size_t)plan->edges, sizeof *edge));
    plan->edge = edge;
    plan->edges = 0;
    for (int v = 0; v < plan->graph->values; v++) {
        add_hops(plan, v);
    }
    qsort(plan->edge, (size_t)plan->edges, sizeof *plan->edge, compare_edges);
    return CRL_STATUS_OK;
}

crl_status crl_plan_create(crl_plan **out, const crl_plan_config *config) {
    crl_status status = CRL_STATUS_OK;
    crl_plan *plan = NULL;
    CRL_TRY(check_positions(config));
    CRL_TRY(check_cuts(config));
    CRL_TRY(crl_alloc(&plan, 1, sizeof *plan));
    plan->graph = config->graph;
    plan->positions = config->positions;
    plan->stages = config->stages;
    CRL_TRY_OUT(crl_alloc(&plan->stage, (size_t)config->stages, sizeof *plan->stage));
    for (int s = 0; s < config->stages; s++) {
        const int position = position_of(config, s);
        plan->stage[s] = (crl_stage){
            .first = config->first_node[s],
            .last = s + 1 < config->stages ? config->first_node[s + 1] : config->graph->nodes,
            .replicas = config->widths ? config->widths[position] : 1,
            .position = position};
    }
    CRL_TRY_OUT(add_edges(plan));
    *out = plan;
    return CRL_STATUS_OK;
out:
    crl_plan_destroy(plan);
    return status;
}

void crl_plan_destroy(crl_plan *plan) {
    if (!plan) {
        return;
    }
    crl_free(plan->stage);
    crl_free(plan->edge);
    crl_free(plan->recompute);
    crl_free(plan);
}

size_t crl_graph_cut_bytes(const crl_graph *graph, int node) {
    size_t bytes = 0;
    for (int v = 0; v < graph->values; v++) {
        const crl_value *value = &graph->value[v];
        const int last = value->consumer[value->consumers - 1].node;
        if (!value->from_input && value->producer < node && node <= last) {
            bytes += value->bytes;
        }
    }
    return bytes;
}

static int share(int index, int parts, int total) {
    return (int)((int64_t)index * total / parts);
}

crl_range crl_lane_micro_batches(int lane, int lanes, int micro_batches) {
    return (crl_range){share(lane, lanes, micro_batches), share(lane + 1, lanes, micro_batches)};
}

crl_range crl_replica_lanes(int replica, int replicas, int lanes) {
    return (crl_range){share(replica, replicas, lanes), share(replica + 1, replicas, lanes)};
}

crl_range crl_replica_micro_batches(int replica, int replicas, int lanes, int micro_batches) {
    const crl_range mine = crl_replica_lanes(replica, replicas, lanes);
    return (crl_range){share(mine.first, lanes, micro_batches),
                       share(mine.last, lanes, micro_batches)};
}
