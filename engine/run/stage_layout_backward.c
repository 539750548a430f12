/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places of backward. Moments count through one backward action, block by block from the last:
 *
 *     again h1 ascending · back h1 descending · again h0 ascending · back h0 descending
 */
#include "engine/run/stage_layout_internal.h"
#include "engine/tensor/tensor.h"

static int gradient_edge(const stage_builder *b, int edge) {
    return edge >= 0 && b->plan->edge[edge].gradient ? edge : -1;
}

static bool contributed_here(const stage_builder *b, const crl_value *v) {
    for (int c = 0; c < v->consumers; c++) {
        const crl_consumer at = v->consumer[c];
        if (stage_has(b, at.node) && crl_graph_slot_has_gradient(b->graph, at.node, at.slot)) {
            return true;
        }
    }
    return false;
}

static void set_moments(stage_builder *b) {
    const crl_stage_layout *layout = b->layout;
    int at = 0, begin;
    for (int end = layout->last; end > layout->first; end = begin) {
        begin = layout->recompute->block[end - 1];
        for (int n = begin; n < end; n++) {
            b->again_at[n - layout->first] = at++;
        }
        for (int n = end - 1; n >= begin; n--) {
            b->back_at[n - layout->first] = at++;
        }
    }
}

/* The last moment at which somebody of its block reads a value that is made again. */
static int last_read(const stage_builder *b, const crl_value *v) {
    const crl_stage_layout *layout = b->layout;
    const crl_layer_spec *producer = &b->graph->node[v->producer].spec;
    int last = b->again_at[v->producer - layout->first];
    for (int c = 0; c < v->consumers; c++) {
        const crl_consumer use = v->consumer[c];
        const crl_layer_spec *spec = &b->graph->node[use.node].spec;
        if (!stage_has(b, use.node)) {
            continue;
        }
        const bool back = (spec->input_needs_inputs | spec->weight_needs_inputs) >> use.slot & 1u;
        const int again_at = b->again_at[use.node - layout->first];
        const int back_at = b->back_at[use.node - layout->first];
        last = layout->recompute->again[use.node] && again_at > last ? again_at : last;
        last = back && back_at > last ? back_at : last;
    }
    const bool needed =
        (producer->input_needs_outputs | producer->weight_needs_outputs) >> v->output & 1u;
    return needed || crl_stage_in_place(b, (int)(v - b->graph->value))
               ? b->back_at[v->producer - layout->first]
               : last;
}

static crl_status place_again(stage_builder *b, crl_place *place, size_t bytes, bool by_weight,
                              int first, int last) {
    if (b->split && by_weight) {
        return crl_stage_put(b, &b->again_weight, I | B | W, bytes, place);
    }
    place->block = CRL_BLOCK_WORKSPACE;
    crl_stage_add_life(b, place, bytes, first, last);
    return CRL_STATUS_OK;
}

static crl_status place_results_again(stage_builder *b, int n) {
    crl_stage_layout *layout = b->layout;
    const crl_node *node = &b->graph->node[n];
    const int at = n - layout->first;
    for (int o = 0; o < node->spec.outputs; o++) {
        const crl_value *v = &b->graph->value[node->output[o]];
        const bool by_weight = layout->recompute->reads[node->output[o]] & CRL_READ_BY_WEIGHT ||
                               crl_stage_in_place(b, node->output[o]);
        CRL_TRY(place_again(b, &layout->backward_value[node->output[o]], v->bytes, by_weight,
                            b->again_at[at], last_read(b, v)));
    }
    for (int s = 0; s < node->spec.saves; s++) {
        size_t bytes = 0;
        const bool by_weight = node->spec.weight_needs_saves >> s & 1u;
        CRL_TRY(crl_tensor_bytes(&bytes, &node->spec.save[s], node->name));
        CRL_TRY(place_again(b, &layout->backward_save[at * CRL_LAYER_MAX_SAVED + s], bytes,
                            by_weight, b->again_at[at], b->back_at[at]));
    }
    return CRL_STATUS_OK;
}

/* From its first contribution here, or the message that brings one, until its producer is done. */
static crl_status place_gradient(stage_builder *b, int value) {
    const crl_value *v = &b->graph->value[value];
    crl_place *place = &b->layout->gradient[value];
    if (!v->has_gradient || crl_stage_in_place(b, value)) {
        return CRL_STATUS_OK; /* see take_places */
    }
    const bool produced = stage_has(b, v->producer);
    const bool held = produced && b->split && b->graph->node[v->producer].spec.params > 0;
    const int in = gradient_edge(b, b->edge_in[value]);
    const int out = gradient_edge(b, b->edge_out[value]);
    if (in >= 0 || out >= 0) {
        const crl_block block = {crl_memory_round(v->bytes), I | B | (held ? W : 0u), in, out,
                                 true};
        return crl_stage_add_block(b, block, &place->block);
    }
    if (!produced || !contributed_here(b, v)) {
        return CRL_STATUS_OK;
    }
    if (held) {
        return crl_stage_put(b, &b->held_gradient, I | B | W, v->bytes, place);
    }
    place->block = CRL_BLOCK_WORKSPACE;
    crl_stage_add_life(b, place, v->bytes,
                       b->back_at[crl_stage_last_consumer(b, v) - b->layout->first],
                       b->back_at[v->producer - b->layout->first]);
    return CRL_STATUS_OK;
}

static void take_places(stage_builder *b) {
    for (int v = 0; v < b->graph->values; v++) {
        if (crl_stage_in_place(b, v)) {
            b->layout->gradient[v] = b->layout->backward_value[v];
        }
    }
}

/* The order of additions: what later stages sent, then this stage's consumers from the last node to
 * the first, slots of one node ascending. Only the very first contribution overwrites. */
static void mark_accumulation(stage_builder *b) {
    for (int n = b->layout->first; n < b->layout->last; n++) {
        const crl_node *node = &b->graph->node[n];
        for (int slot = 0; slot < node->spec.inputs; slot++) {
            const crl_value *v = &b->graph->value[node->input[slot]];
            bool first = gradient_edge(b, b->edge_out[node->input[slot]]) < 0;
            for (int c = 0; c < v->consumers; c++) {
                const crl_consumer other = v->consumer[c];
                const bool earlier = other.node > n || (other.node == n && other.slot < slot);
                if (earlier && stage_has(b, other.node) &&
                    crl_graph_slot_has_gradient(b->graph, other.node, other.slot)) {
                    first = false;
                }
            }
            b->layout->accumulate[(n - b->layout->first) * CRL_LAYER_MAX_INPUTS + slot] = !first;
        }
    }
}

crl_status crl_stage_lay_backward(stage_builder *b) {
    crl_stage_layout *layout = b->layout;
    const int saves = (layout->last - layout->first) * CRL_LAYER_MAX_SAVED;
    set_moments(b);
    for (int v = 0; v < b->graph->values; v++) {
        layout->backward_value[v] = layout->value[v];
    }
    for (int s = 0; s < saves; s++) {
        layout->backward_save[s] = layout->save[s];
    }
    for (int n = layout->first; n < layout->last; n++) {
        if (layout->recompute->again[n]) {
            CRL_TRY(place_results_again(b, n));
        }
    }
    for (int v = 0; v < b->graph->values; v++) {
        CRL_TRY(place_gradient(b, v));
    }
    CRL_TRY(crl_stage_plan_workspace(b, &layout->backward_bytes));
    take_places(b);
    mark_accumulation(b);
    return CRL_STATUS_OK;
}
