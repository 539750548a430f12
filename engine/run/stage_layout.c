/* SPDX-License-Identifier: Apache-2.0 */
/* Places of a stage's values; see stage_layout.h for the kinds. */
#include "engine/run/stage_layout.h"

#include "engine/base/alloc.h"
#include "engine/run/memory_plan.h"
#include "engine/run/stage_layout_internal.h"

bool crl_graph_slot_has_gradient(const crl_graph *graph, int node, int slot) {
    const crl_node *n = &graph->node[node];
    return (n->spec.gradient_inputs >> slot & 1u) != 0 && graph->value[n->input[slot]].has_gradient;
}

crl_status crl_stage_add_block(stage_builder *b, crl_block block, int *out) {
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

crl_status crl_stage_put(stage_builder *b, int *group, unsigned touched_by, size_t bytes,
                         crl_place *out) {
    if (*group < 0) {
        CRL_TRY(crl_stage_add_block(b, (crl_block){0, touched_by, -1, -1, false}, group));
    }
    crl_block *block = &b->layout->block[*group];
    *out = (crl_place){*group, block->bytes};
    return crl_size_add(&block->bytes, block->bytes, crl_memory_round(bytes), "kept values");
}

void crl_stage_add_life(stage_builder *b, crl_place *place, size_t bytes, int first, int last) {
    b->life[b->lives] = (crl_lifetime){bytes, first, last, 0};
    b->life_place[b->lives++] = place;
}

crl_status crl_stage_plan_workspace(stage_builder *b, size_t *out_bytes) {
    CRL_TRY(crl_memory_plan(b->life, b->lives, out_bytes));
    for (int i = 0; i < b->lives; i++) {
        b->life_place[i]->offset_bytes = b->life[i].offset;
    }
    b->lives = 0;
    return CRL_STATUS_OK;
}

int crl_stage_last_consumer(const stage_builder *b, const crl_value *v) {
    int last = -1;
    for (int c = 0; c < v->consumers; c++) {
        last = stage_has(b, v->consumer[c].node) ? v->consumer[c].node : last;
    }
    return last;
}

bool crl_stage_in_place(const stage_builder *b, int value) {
    const crl_value *v = &b->graph->value[value];
    const crl_layer_spec *producer = &b->graph->node[v->producer].spec;
    const bool reads_output =
        (producer->input_needs_outputs | producer->weight_needs_outputs) >> v->output & 1u;
    return b->training && v->has_gradient && v->consumers == 1 && !reads_output &&
           b->edge_in[value] < 0 && b->edge_out[value] < 0 && stage_has(b, v->producer) &&
           (b->graph->node[v->consumer[0].node].layer->in_place >> v->consumer[0].slot & 1u);
}

/* Does backward make the results of the node again, instead of reading forward's? */
static bool is_made_again(const stage_builder *b, int node) {
    return stage_has(b, node) && b->layout->recompute->again[node];
}

/* Which phases of this stage's backward read what forward has made: bits I and W. */
static unsigned phases_reading_value(const stage_builder *b, int value) {
    const bool held = b->split && crl_stage_in_place(b, value); /* as the gradient, until W */
    const unsigned reads =
        b->layout->recompute->reads[value] | (held ? (unsigned)CRL_READ_BY_WEIGHT : 0u);
    if (!b->training || is_made_again(b, b->graph->value[value].producer)) {
        return 0;
    }
    return (reads & CRL_READ_BY_INPUT ? I : 0u) | (reads & CRL_READ_BY_WEIGHT ? W : 0u);
}

/* Action kinds that touch something forward writes and `phases` of backward read. */
static unsigned touches(unsigned phases) {
    return F | (phases ? B | phases : 0u);
}

static crl_status put_kept(stage_builder *b, unsigned phases, size_t bytes, crl_place *out) {
    /* Without a split both groups live equally long: one is enough. */
    if (b->split && (phases & W)) {
        return crl_stage_put(b, &b->keep_weight, F | B | I | W, bytes, out);
    }
    return crl_stage_put(b, &b->keep_input, F | B | I | (b->split ? 0u : W), bytes, out);
}

static crl_status place_value(stage_builder *b, int value) {
    const crl_value *v = &b->graph->value[value];
    crl_place *place = &b->layout->value[value];
    const int last = crl_stage_last_consumer(b, v);
    if (v->from_input) {
        place->block = CRL_BLOCK_FIELD;
        return CRL_STATUS_OK;
    }
    const unsigned phases = phases_reading_value(b, value);
    if (b->edge_in[value] >= 0 || b->edge_out[value] >= 0) {
        const crl_block block = {crl_memory_round(v->bytes), touches(phases), b->edge_in[value],
                                 b->edge_out[value], false};
        return crl_stage_add_block(b, block, &place->block);
    }
    if (!stage_has(b, v->producer)) {
        return CRL_STATUS_OK;
    }
    if (phases) {
        return put_kept(b, phases, v->bytes, place);
    }
    place->block = CRL_BLOCK_WORKSPACE;
    crl_stage_add_life(b, place, v->bytes, v->producer, last > v->producer ? last : v->producer);
    return CRL_STATUS_OK;
}

static crl_status place_saves(stage_builder *b, int n) {
    const crl_layer_spec *spec = &b->graph->node[n].spec;
    for (int s = 0; s < spec->saves; s++) {
        unsigned phases = (spec->input_needs_saves >> s & 1u) ? I : 0u;
        phases |= (spec->weight_needs_saves >> s & 1u) ? W : 0u;
        size_t bytes = 0;
        crl_place *place = &b->layout->save[(n - b->layout->first) * CRL_LAYER_MAX_SAVED + s];
        CRL_TRY(crl_tensor_bytes(&bytes, &spec->save[s], spec->node));
        if (is_made_again(b, n)) {
            place->block = CRL_BLOCK_WORKSPACE;
            crl_stage_add_life(b, place, bytes, n, n);
        } else {
            CRL_TRY(put_kept(b, b->training && phases ? phases : I, bytes, place));
        }
    }
    return CRL_STATUS_OK;
}

static crl_status build(stage_builder *b) {
    crl_stage_layout *layout = b->layout;
    for (int v = 0; v < b->graph->values; v++) {
        layout->value[v].block = layout->gradient[v].block = CRL_BLOCK_NONE;
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
    for (int v = 0; v < b->graph->values; v++) {
        CRL_TRY(place_value(b, v));
    }
    for (int n = layout->first; n < layout->last; n++) {
        CRL_TRY(place_saves(b, n));
    }
    CRL_TRY(crl_stage_plan_workspace(b, &layout->forward_bytes));
    return b->training ? crl_stage_lay_backward(b) : CRL_STATUS_OK;
}

/* The result's arrays and those of the work. */
static crl_status allocate(stage_builder *b) {
    crl_stage_layout *layout = b->layout;
    const size_t values = (size_t)b->graph->values, nodes = (size_t)(layout->last - layout->first);
    const size_t saves = nodes * CRL_LAYER_MAX_SAVED;
    CRL_TRY(crl_recompute_create(&layout->recompute, b->graph, layout->first, layout->last,
                                 b->training ? b->plan->recompute : NULL));
    CRL_TRY(crl_alloc(&layout->value, values, sizeof *layout->value));
    CRL_TRY(crl_alloc(&layout->backward_value, values, sizeof *layout->value));
    CRL_TRY(crl_alloc(&layout->gradient, values, sizeof *layout->gradient));
    CRL_TRY(crl_alloc(&layout->save, saves, sizeof *layout->save));
    CRL_TRY(crl_alloc(&layout->backward_save, saves, sizeof *layout->save));
    CRL_TRY(
        crl_alloc(&layout->accumulate, nodes * CRL_LAYER_MAX_INPUTS, sizeof *layout->accumulate));
    CRL_TRY(crl_alloc(&b->edge_in, values, sizeof *b->edge_in));
    CRL_TRY(crl_alloc(&b->edge_out, values, sizeof *b->edge_out));
    CRL_TRY(crl_alloc(&b->life, 2 * values + saves, sizeof *b->life));
    CRL_TRY(crl_alloc(&b->life_place, 2 * values + saves, sizeof(crl_place *)));
    CRL_TRY(crl_alloc(&b->again_at, nodes, sizeof *b->again_at));
    return crl_alloc(&b->back_at, nodes, sizeof *b->back_at);
}

crl_status crl_stage_layout_create(crl_stage_layout **out, const crl_plan *plan, int stage,
                                   bool training, bool split) {
    crl_status status = CRL_STATUS_OK;
    stage_builder b = {.plan = plan,
                       .graph = plan->graph,
                       .stage = stage,
                       .training = training,
                       .split = split,
                       .keep_input = -1,
                       .keep_weight = -1,
                       .again_weight = -1,
                       .held_gradient = -1};
    CRL_TRY_OUT(crl_alloc(&b.layout, 1, sizeof *b.layout));
    b.layout->first = plan->stage[stage].first;
    b.layout->last = plan->stage[stage].last;
    CRL_TRY_OUT(allocate(&b));
    CRL_TRY_OUT(build(&b));
    *out = b.layout;
    b.layout = NULL;
out:
    crl_free(b.edge_in);
    crl_free(b.edge_out);
    crl_free(b.life);
    crl_free(b.life_place);
    crl_free(b.again_at);
    crl_free(b.back_at);
    crl_stage_layout_destroy(b.layout);
    return status;
}

void crl_stage_layout_destroy(crl_stage_layout *layout) {
    if (layout) {
        crl_free(layout->block);
        crl_recompute_destroy(layout->recompute);
        crl_free(layout->value);
        crl_free(layout->backward_value);
        crl_free(layout->gradient);
        crl_free(layout->save);
        crl_free(layout->backward_save);
        crl_free(layout->accumulate);
        crl_free(layout);
    }
}
