/* SPDX-License-Identifier: Apache-2.0 */
/* Places of a stage's values; see stage_layout.h for the kinds. */
#include "engine/run/stage_layout.h"

#include "engine/base/alloc.h"
#include "engine/run/memory_plan.h"

enum {
    F = 1u << CRL_ACTION_FORWARD,
    B = 1u << CRL_ACTION_BACKWARD,
    I = 1u << CRL_ACTION_INPUT,
    W = 1u << CRL_ACTION_WEIGHT
};

/* The work in progress. */
typedef struct builder {
    const crl_plan *plan;
    const crl_graph *graph;
    int stage;
    bool training, split;
    crl_stage_layout *layout;
    int keep_input, keep_weight, held_gradient; /* block indices; -1: not there yet */
    int *edge_in, *edge_out;                    /* (values) of this stage */
    crl_lifetime *life;                         /* (values) workspace candidates */
    int *life_value;
    int lives;
} builder;

bool crl_graph_slot_has_gradient(const crl_graph *graph, int node, int slot) {
    const crl_node *n = &graph->node[node];
    return (n->spec.gradient_inputs >> slot & 1u) != 0 && graph->value[n->input[slot]].has_gradient;
}

static bool in_stage(const builder *b, int node) {
    return node >= b->layout->first && node < b->layout->last;
}

static crl_status add_block(builder *b, crl_block block, int *out) {
    crl_stage_layout *layout = b->layout;
    if (layout->blocks == layout->blocks_capacity) {
        const int capacity = layout->blocks_capacity * 2 + 8;
        CRL_TRY(crl_realloc(&layout->block, (size_t)layout->blocks_capacity, (size_t)capacity,
                            sizeof *layout->block));
        layout->blocks_capacity = capacity;
    }
    layout->block[layout->blocks] = block;
    *out = layout->blocks++;
    return CRL_STATUS_OK;
}

/* Appends `bytes` to a group block, made on first need. */
static crl_status put_in_group(builder *b, int *group, unsigned touched_by, size_t bytes,
                               crl_place *out) {
    if (*group < 0) {
        CRL_TRY(add_block(b, (crl_block){0, touched_by, -1, -1, false}, group));
    }
    crl_block *block = &b->layout->block[*group];
    *out = (crl_place){*group, block->bytes};
    return crl_size_add(&block->bytes, block->bytes, crl_memory_round(bytes), "kept values");
}

/* Which backward phases of this stage's nodes read the value: bits I and W. */
static unsigned phases_reading_value(const builder *b, int value) {
    const crl_value *v = &b->graph->value[value];
    unsigned phases = 0;
    for (int c = 0; c < v->consumers; c++) {
        if (in_stage(b, v->consumer[c].node)) {
            const crl_layer_spec *spec = &b->graph->node[v->consumer[c].node].spec;
            phases |= (spec->input_needs_inputs >> v->consumer[c].slot & 1u) ? I : 0u;
            phases |= (spec->weight_needs_inputs >> v->consumer[c].slot & 1u) ? W : 0u;
        }
    }
    if (in_stage(b, v->producer)) {
        const crl_layer_spec *spec = &b->graph->node[v->producer].spec;
        phases |= (spec->input_needs_outputs >> v->output & 1u) ? I : 0u;
        phases |= (spec->weight_needs_outputs >> v->output & 1u) ? W : 0u;
    }
    return b->training ? phases : 0;
}

/* Action kinds that touch something forward writes and `phases` of backward read. */
static unsigned touches(unsigned phases) {
    return F | (phases ? B | phases : 0u);
}

static crl_status put_kept(builder *b, unsigned phases, size_t bytes, crl_place *out) {
    /* Without a split both groups live equally long: one is enough. */
    if (b->split && (phases & W)) {
        return put_in_group(b, &b->keep_weight, F | B | I | W, bytes, out);
    }
    return put_in_group(b, &b->keep_input, F | B | I | (b->split ? 0u : W), bytes, out);
}

static void add_life(builder *b, int value, int first, int last) {
    b->life[b->lives] = (crl_lifetime){b->graph->value[value].bytes, first, last, 0};
    b->life_value[b->lives++] = value;
}

static int last_consumer_here(const builder *b, const crl_value *v) {
    int last = -1;
    for (int c = 0; c < v->consumers; c++) {
        last = in_stage(b, v->consumer[c].node) ? v->consumer[c].node : last;
    }
    return last;
}

static crl_status place_value(builder *b, int value) {
    const crl_value *v = &b->graph->value[value];
    crl_place *place = &b->layout->value[value];
    const int last = last_consumer_here(b, v);
    if (v->from_input) {
        place->block = CRL_BLOCK_FIELD;
        return CRL_STATUS_OK;
    }
    const unsigned phases = phases_reading_value(b, value);
    if (b->edge_in[value] >= 0 || b->edge_out[value] >= 0) {
        const crl_block block = {crl_memory_round(v->bytes), touches(phases), b->edge_in[value],
                                 b->edge_out[value], false};
        return add_block(b, block, &place->block);
    }
    if (!in_stage(b, v->producer)) {
        return CRL_STATUS_OK;
    }
    if (phases) {
        return put_kept(b, phases, v->bytes, place);
    }
    place->block = CRL_BLOCK_WORKSPACE;
    add_life(b, value, v->producer, last > v->producer ? last : v->producer);
    return CRL_STATUS_OK;
}

static crl_status place_saves(builder *b) {
    for (int n = b->layout->first; n < b->layout->last; n++) {
        const crl_layer_spec *spec = &b->graph->node[n].spec;
        for (int s = 0; s < spec->saves; s++) {
            unsigned phases = (spec->input_needs_saves >> s & 1u) ? I : 0u;
            phases |= (spec->weight_needs_saves >> s & 1u) ? W : 0u;
            size_t bytes = 0;
            crl_place *place = &b->layout->save[(n - b->layout->first) * CRL_LAYER_MAX_SAVED + s];
            CRL_TRY(crl_tensor_bytes(&bytes, &spec->save[s], spec->node));
            CRL_TRY(put_kept(b, b->training && phases ? phases : I, bytes, place));
        }
    }
    return CRL_STATUS_OK;
}

static int gradient_edge(const builder *b, int edge) {
    return edge >= 0 && b->plan->edge[edge].gradient ? edge : -1;
}

static bool contributed_here(const builder *b, const crl_value *v) {
    for (int c = 0; c < v->consumers; c++) {
        const crl_consumer at = v->consumer[c];
        if (in_stage(b, at.node) && crl_graph_slot_has_gradient(b->graph, at.node, at.slot)) {
            return true;
        }
    }
    return false;
}

/* The earliest moment of backward at which the gradient of v is written here, counted downwards
 * from the stage's last node. */
static crl_status place_gradient(builder *b, int value) {
    const crl_value *v = &b->graph->value[value];
    crl_place *place = &b->layout->gradient[value];
    if (!v->has_gradient) {
        return CRL_STATUS_OK;
    }
    const bool produced = in_stage(b, v->producer);
    const bool held = produced && b->split && b->graph->node[v->producer].spec.params > 0;
    const int in = gradient_edge(b, b->edge_in[value]);
    const int out = gradient_edge(b, b->edge_out[value]);
    if (in >= 0 || out >= 0) {
        const crl_block block = {crl_memory_round(v->bytes), I | B | (held ? W : 0u), in, out,
                                 true};
        return add_block(b, block, &place->block);
    }
    if (!produced || !contributed_here(b, v)) {
        return CRL_STATUS_OK;
    }
    if (held) {
        return put_in_group(b, &b->held_gradient, I | B | W, v->bytes, place);
    }
    place->block = CRL_BLOCK_WORKSPACE;
    add_life(b, value, b->layout->last - last_consumer_here(b, v), b->layout->last - v->producer);
    return CRL_STATUS_OK;
}

static crl_status plan_workspace(builder *b, crl_place *place, size_t *out_bytes) {
    CRL_TRY(crl_memory_plan(b->life, b->lives, out_bytes));
    for (int i = 0; i < b->lives; i++) {
        place[b->life_value[i]].offset_bytes = b->life[i].offset;
    }
    b->lives = 0;
    return CRL_STATUS_OK;
}

/* The order of additions: what later stages sent, then this stage's consumers from the last node to
 * the first, slots of one node ascending. Only the very first contribution overwrites. */
static void mark_accumulation(builder *b) {
    for (int n = b->layout->first; n < b->layout->last; n++) {
        const crl_node *node = &b->graph->node[n];
        for (int slot = 0; slot < node->spec.inputs; slot++) {
            const crl_value *v = &b->graph->value[node->input[slot]];
            bool first = gradient_edge(b, b->edge_out[node->input[slot]]) < 0;
            for (int c = 0; c < v->consumers; c++) {
                const crl_consumer other = v->consumer[c];
                const bool earlier = other.node > n || (other.node == n && other.slot < slot);
                if (earlier && in_stage(b, other.node) &&
                    crl_graph_slot_has_gradient(b->graph, other.node, other.slot)) {
                    first = false;
                }
            }
            b->layout->accumulate[(n - b->layout->first) * CRL_LAYER_MAX_INPUTS + slot] = !first;
        }
    }
}

static crl_status build(builder *b) {
    const crl_graph *graph = b->graph;
    for (int v = 0; v < graph->values; v++) {
        b->layout->value[v].block = b->layout->gradient[v].block = CRL_BLOCK_NONE;
        b->edge_in[v] = b->edge_out[v] = -1;
    }
    for (int e = 0; e < b->plan->edges; e++) {
        const crl_edge *edge = &b->plan->edge[e];
        if (edge->to == b->stage) {
            b->edge_in[edge->value] = e;
        } else if (edge->from == b->stage) {
            b->edge_out[edge->value] = e;
        }
    }
    for (int v = 0; v < graph->values; v++) {
        CRL_TRY(place_value(b, v));
    }
    CRL_TRY(plan_workspace(b, b->layout->value, &b->layout->forward_bytes));
    CRL_TRY(place_saves(b));
    if (b->training) {
        for (int v = 0; v < graph->values; v++) {
            CRL_TRY(place_gradient(b, v));
        }
        CRL_TRY(plan_workspace(b, b->layout->gradient, &b->layout->backward_bytes));
        mark_accumulation(b);
    }
    return CRL_STATUS_OK;
}

crl_status crl_stage_layout_create(crl_stage_layout **out, const crl_plan *plan, int stage,
                                   bool training, bool split) {
    crl_status status = CRL_STATUS_OK;
    const crl_graph *graph = plan->graph;
    const size_t values = (size_t)graph->values;
    const size_t nodes = (size_t)(plan->stage[stage].last - plan->stage[stage].first);
    builder b = {plan, graph, stage, training, split, NULL, -1, -1, -1, NULL, NULL, NULL, NULL, 0};
    CRL_TRY_OUT(crl_alloc(&b.layout, 1, sizeof *b.layout));
    b.layout->first = plan->stage[stage].first;
    b.layout->last = plan->stage[stage].last;
    CRL_TRY_OUT(crl_alloc(&b.layout->value, values, sizeof *b.layout->value));
    CRL_TRY_OUT(crl_alloc(&b.layout->gradient, values, sizeof *b.layout->gradient));
    CRL_TRY_OUT(crl_alloc(&b.layout->save, nodes * CRL_LAYER_MAX_SAVED, sizeof *b.layout->save));
    CRL_TRY_OUT(crl_alloc(&b.layout->accumulate, nodes * CRL_LAYER_MAX_INPUTS,
                          sizeof *b.layout->accumulate));
    CRL_TRY_OUT(crl_alloc(&b.edge_in, values, sizeof *b.edge_in));
    CRL_TRY_OUT(crl_alloc(&b.edge_out, values, sizeof *b.edge_out));
    CRL_TRY_OUT(crl_alloc(&b.life, values, sizeof *b.life));
    CRL_TRY_OUT(crl_alloc(&b.life_value, values, sizeof *b.life_value));
    CRL_TRY_OUT(build(&b));
    *out = b.layout;
    b.layout = NULL;
out:
    crl_free(b.edge_in);
    crl_free(b.edge_out);
    crl_free(b.life);
    crl_free(b.life_value);
    crl_stage_layout_destroy(b.layout);
    return status;
}

void crl_stage_layout_destroy(crl_stage_layout *layout) {
    if (layout) {
        crl_free(layout->block);
        crl_free(layout->value);
        crl_free(layout->gradient);
        crl_free(layout->save);
        crl_free(layout->accumulate);
        crl_free(layout);
    }
}
