/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Choosing what backward makes again [chen16] [korthikanti22]. Refuses to trade bytes for bytes: a
 * cheap result stays where making it again would have as much kept in its place.
 *
 * cost: two passes over the nodes and their consumers.
 */
#include "engine/ir/recompute.h"

#include <string.h>

#include "engine/base/alloc.h"

/* The work in progress. */
typedef struct builder {
    crl_recompute *r;
    const unsigned char *mode; /* (nodes) NULL: none */
    double *price;             /* (values) bytes to be kept so that it can be had in backward */
} builder;

static bool in_stage(const crl_recompute *r, int node) {
    return node >= r->first && node < r->last;
}

static bool begin_alike(const char *a, const char *b) {
    const size_t length = strcspn(a, ".");
    return length == strcspn(b, ".") && memcmp(a, b, length) == 0;
}

static void find_blocks(crl_recompute *r) {
    for (int n = r->first; n < r->last; n++) {
        const bool same =
            n > r->first && begin_alike(r->graph->node[n].name, r->graph->node[n - 1].name);
        r->block[n] = same ? r->block[n - 1] : n;
    }
}

/* What backward itself reads, of a consumer's input or a producer's output. */
static unsigned char direct_reads(uint32_t by_input, uint32_t by_weight, int slot) {
    return (unsigned char)((by_input >> slot & 1u ? CRL_READ_BY_INPUT : 0) |
                           (by_weight >> slot & 1u ? CRL_READ_BY_WEIGHT : 0));
}

static unsigned char reads_of_slot(const crl_graph *graph, crl_consumer use) {
    const crl_layer_spec *spec = &graph->node[use.node].spec;
    return direct_reads(spec->input_needs_inputs, spec->weight_needs_inputs, use.slot);
}

static void find_direct_reads(crl_recompute *r) {
    for (int n = r->first; n < r->last; n++) {
        const crl_node *node = &r->graph->node[n];
        const crl_layer_spec *spec = &node->spec;
        for (int i = 0; i < spec->inputs; i++) {
            r->reads[node->input[i]] |= reads_of_slot(r->graph, (crl_consumer){n, i});
        }
        for (int o = 0; o < spec->outputs; o++) {
            r->reads[node->output[o]] |=
                direct_reads(spec->input_needs_outputs, spec->weight_needs_outputs, o);
        }
    }
}

/* May the node be made again, if that is worth it? Of a block of one node nothing lies inside. */
static bool is_candidate(const builder *b, int n) {
    const crl_recompute *r = b->r;
    const crl_layer *layer = r->graph->node[n].layer;
    const bool alone = r->block[n] == n && (n + 1 == r->last || r->block[n + 1] == n + 1);
    if (!b->mode || alone || layer->is_input || layer->is_loss) {
        return false;
    }
    return b->mode[n] == CRL_RECOMPUTE_FULL ||
           (b->mode[n] == CRL_RECOMPUTE_SELECTIVE && layer->cheap);
}

/* Bytes that would have to be kept for node n to run again. What backward reads is there anyway. */
static double price_of_inputs(const builder *b, int n) {
    const crl_recompute *r = b->r;
    const crl_node *node = &r->graph->node[n];
    double bytes = 0;
    for (int i = 0; i < node->spec.inputs; i++) {
        const crl_value *v = &r->graph->value[node->input[i]];
        const bool inside = in_stage(r, v->producer) && r->block[v->producer] == r->block[n];
        if (!v->from_input && !r->reads[node->input[i]]) {
            bytes += inside ? b->price[node->input[i]] : (double)v->bytes;
        }
    }
    return bytes;
}

static void find_prices(builder *b) {
    const crl_graph *graph = b->r->graph;
    for (int n = b->r->first; n < b->r->last; n++) {
        const double again = price_of_inputs(b, n);
        for (int o = 0; o < graph->node[n].spec.outputs; o++) {
            const int v = graph->node[n].output[o];
            const double bytes = (double)graph->value[v].bytes;
            b->price[v] = is_candidate(b, n) && again < bytes ? again : bytes;
        }
    }
}

/* Of those saves of a node whose bit is set. */
static double save_bytes(const crl_layer_spec *spec, uint32_t which) {
    double bytes = 0;
    for (int s = 0; s < spec->saves; s++) {
        bytes += which >> s & 1u ? (double)crl_dtype_bytes(spec->save[s].dtype) *
                                       (double)crl_shape_elements(&spec->save[s].shape)
                                 : 0;
    }
    return bytes;
}

/* Does another block of the stage read the value later than forward? */
static bool is_read_outside(const crl_recompute *r, int value) {
    const crl_value *v = &r->graph->value[value];
    for (int c = 0; c < v->consumers; c++) {
        const int n = v->consumer[c].node;
        if (in_stage(r, n) && r->block[n] != r->block[v->producer] &&
            (r->again[n] || reads_of_slot(r->graph, v->consumer[c]))) {
            return true;
        }
    }
    return false;
}

/* Later nodes have been decided: what they read is known. */
static bool is_made_again(const builder *b, int n) {
    const crl_recompute *r = b->r;
    const crl_node *node = &r->graph->node[n];
    double lost_bytes = 0;
    if (!is_candidate(b, n)) {
        return false;
    }
    for (int o = 0; o < node->spec.outputs; o++) {
        if (is_read_outside(r, node->output[o])) {
            return false;
        }
        lost_bytes +=
            r->reads[node->output[o]] ? (double)r->graph->value[node->output[o]].bytes : 0;
    }
    if (lost_bytes <= 0) {
        return false;
    }
    return b->mode[n] == CRL_RECOMPUTE_FULL ||
           price_of_inputs(b, n) < lost_bytes + save_bytes(&node->spec, UINT32_MAX);
}

static void choose(builder *b) {
    for (int n = b->r->last - 1; n >= b->r->first; n--) {
        const crl_node *node = &b->r->graph->node[n];
        b->r->again[n] = is_made_again(b, n);
        for (int i = 0; b->r->again[n] && i < node->spec.inputs; i++) {
            b->r->reads[node->input[i]] |= CRL_READ_BY_INPUT;
        }
    }
}

crl_status crl_recompute_create(crl_recompute **out, const crl_graph *graph, int first, int last,
                                const unsigned char *mode) {
    crl_status status = CRL_STATUS_OK;
    builder b = {NULL, mode, NULL};
    CRL_TRY_OUT(crl_alloc(&b.r, 1, sizeof *b.r));
    b.r->graph = graph;
    b.r->first = first;
    b.r->last = last;
    CRL_TRY_OUT(crl_alloc(&b.r->reads, (size_t)graph->values, 1));
    CRL_TRY_OUT(crl_alloc(&b.r->again, (size_t)graph->nodes, 1));
    CRL_TRY_OUT(crl_alloc(&b.r->block, (size_t)graph->nodes, sizeof(int)));
    CRL_TRY_OUT(crl_alloc(&b.price, (size_t)graph->values, sizeof(double)));
    find_blocks(b.r);
    find_direct_reads(b.r);
    find_prices(&b);
    choose(&b);
    *out = b.r;
    b.r = NULL;
out:
    crl_free(b.price);
    crl_recompute_destroy(b.r);
    return status;
}

void crl_recompute_destroy(crl_recompute *r) {
    if (r) {
        crl_free(r->reads);
        crl_free(r->again);
        crl_free(r->block);
        crl_free(r);
    }
}

bool crl_recompute_keeps(const crl_recompute *r, int value) {
    const crl_value *v = &r->graph->value[value];
    return r->reads[value] && !v->from_input && !r->again[v->producer];
}

double crl_recompute_kept_bytes(const crl_recompute *r, int first, int last) {
    double bytes = 0;
    for (int n = first; n < last; n++) {
        const crl_node *node = &r->graph->node[n];
        for (int o = 0; o < node->spec.outputs; o++) {
            bytes += crl_recompute_keeps(r, node->output[o])
                         ? (double)r->graph->value[node->output[o]].bytes
                         : 0;
        }
        bytes += in_stage(r, n) && !r->again[n] ? save_bytes(&node->spec, UINT32_MAX) : 0;
    }
    return bytes;
}

double crl_recompute_held_bytes(const crl_recompute *r, int first, int last) {
    double bytes = 0;
    for (int n = first; n < last; n++) {
        const crl_node *node = &r->graph->node[n];
        const bool has_weights = in_stage(r, n) && node->spec.params > 0;
        for (int o = 0; o < node->spec.outputs; o++) {
            const crl_value *v = &r->graph->value[node->output[o]];
            const bool read = !v->from_input && (r->reads[node->output[o]] & CRL_READ_BY_WEIGHT);
            bytes += read ? (double)v->bytes : 0;
            bytes += has_weights && v->has_gradient ? (double)v->bytes : 0;
        }
        bytes += in_stage(r, n) ? save_bytes(&node->spec, node->spec.weight_needs_saves) : 0;
    }
    return bytes;
}
