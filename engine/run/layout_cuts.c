/* SPDX-License-Identifier: Apache-2.0 */
/* The chain of nodes that a partitioner cuts into stages. */
#include "engine/base/alloc.h"
#include "engine/base/registry.h"
#include "engine/ir/recompute.h"
#include "engine/run/layout_internal.h"
#include "engine/run/params.h"

/* Every node but the dataset's, which are read where they are used. */
typedef struct chain {
    int units;
    int *node;
    double *compute_s, *state_bytes, *activation_bytes, *boundary_s;
    const char **name;
} chain;

static void chain_fini(chain *c) {
    crl_free(c->node);
    crl_free(c->compute_s);
    crl_free(c->state_bytes);
    crl_free(c->activation_bytes);
    crl_free(c->boundary_s);
    crl_free(c->name);
}

static crl_status chain_alloc(chain *c, size_t nodes) {
    CRL_TRY(crl_alloc(&c->node, nodes, sizeof *c->node));
    CRL_TRY(crl_alloc(&c->compute_s, nodes, sizeof(double)));
    CRL_TRY(crl_alloc(&c->state_bytes, nodes, sizeof(double)));
    CRL_TRY(crl_alloc(&c->activation_bytes, nodes, sizeof(double)));
    CRL_TRY(crl_alloc(&c->boundary_s, nodes, sizeof(double)));
    return crl_alloc(&c->name, nodes, sizeof *c->name);
}

double crl_layout_state_bytes(const crl_layout *layout, int n) {
    const crl_graph *graph = layout->graph;
    const int sets = layout->settings->optimizer.validate == CRL_VALIDATE_AFTER ? 2 : 1;
    const int floats = layout->lane_buffers + sets * (1 + layout->states);
    const double each = (double)floats * sizeof(float) +
                        (double)crl_params_rounded_each(crl_settings_compute(layout->settings));
    double bytes = 0;
    for (int p = 0; p < graph->node[n].spec.params; p++) {
        bytes += each * (double)graph->param[graph->node[n].param[p]].elements;
    }
    return bytes;
}

static void chain_add(chain *c, const crl_layout *layout, const crl_recompute *recompute, int n) {
    const crl_graph *graph = layout->graph;
    const double *node_s = &layout->node_s[n * CRL_PHASES];
    const int u = c->units++;
    c->node[u] = n;
    c->name[u] = graph->node[n].name;
    for (int p = 0; p < CRL_PHASES; p++) {
        c->compute_s[u] += node_s[p];
    }
    c->compute_s[u] += recompute->again[n] ? node_s[CRL_PHASE_FORWARD] : 0;
    c->state_bytes[u] = crl_layout_state_bytes(layout, n);
    c->activation_bytes[u] = crl_recompute_kept_bytes(recompute, n, n + 1);
    if (n + 1 < graph->nodes) {
        c->boundary_s[u] = 2.0 * crl_link_s(&layout->machine.machine.within,
                                            (double)crl_graph_cut_bytes(graph, n + 1));
    }
}

/* The modes of nodes as far as they are known before there are stages; modes by stage are not, and
 * then everything counts as kept. */
static crl_status chain_modes(unsigned char *mode, const crl_layout *layout) {
    const crl_text_list *list = &layout->settings->parallel.recompute;
    const int first = 0;
    const crl_status status = crl_recompute_modes(mode, layout->graph, 1, &first, list);
    if (status == CRL_STATUS_INVALID) { /* what is wrong is said when there are stages */
        crl_error_clear();
        for (int n = 0; n < layout->graph->nodes; n++) {
            mode[n] = CRL_RECOMPUTE_NONE;
        }
        return CRL_STATUS_OK;
    }
    return status;
}

static crl_status chain_init(chain *c, const crl_layout *layout) {
    crl_status status = CRL_STATUS_OK;
    const size_t nodes = (size_t)layout->graph->nodes;
    unsigned char *mode = NULL;
    crl_recompute *recompute = NULL;
    CRL_TRY_OUT(chain_alloc(c, nodes));
    CRL_TRY_OUT(crl_alloc(&mode, nodes, sizeof *mode));
    CRL_TRY_OUT(chain_modes(mode, layout));
    CRL_TRY_OUT(crl_recompute_create(&recompute, layout->graph, 0, layout->graph->nodes, mode));
    for (int n = 0; n < layout->graph->nodes; n++) {
        if (!layout->graph->node[n].layer->is_input) {
            chain_add(c, layout, recompute, n);
        }
    }
out:
    crl_recompute_destroy(recompute);
    crl_free(mode);
    return status;
}

static crl_status too_many_stages(const crl_layout *layout, int units) {
    return CRL_FAIL(INVALID,
                    "layout: %d stages on %d positions, but the model has only %d layers to cut",
                    layout->stages, layout->mesh.pipeline, units);
}

/* Replicas of every stage. (S) */
static crl_status fill_widths(int *widths, const crl_layout *layout) {
    CRL_TRY(crl_layout_positions(widths, layout));
    for (int s = 0; s < layout->stages; s++) {
        widths[s] = layout->widths[widths[s]];
    }
    return CRL_STATUS_OK;
}

crl_status crl_layout_cut(int *first_node, crl_layout *layout, const crl_registries *registries) {
    crl_status status = CRL_STATUS_OK;
    const crl_settings *s = layout->settings;
    const void *found = NULL;
    chain c = {0};
    int *in_flight = NULL, *widths = NULL;
    CRL_TRY_OUT(crl_registry_find(&found, registries->partitioners, "partitioner",
                                  s->parallel.partitioner));
    CRL_TRY_OUT(chain_init(&c, layout));
    if (layout->stages > c.units) {
        CRL_TRY_OUT(crl_layout_placed(too_many_stages(layout, c.units), s, "parallel.pipeline"));
    }
    CRL_TRY_OUT(crl_alloc(&in_flight, (size_t)layout->stages, sizeof *in_flight));
    CRL_TRY_OUT(crl_alloc(&widths, (size_t)layout->stages, sizeof *widths));
    CRL_TRY_OUT(crl_layout_in_flight(in_flight, layout));
    CRL_TRY_OUT(fill_widths(widths, layout));
    const crl_partition_request request = {.units = c.units,
                                           .compute_s = c.compute_s,
                                           .state_bytes = c.state_bytes,
                                           .activation_bytes = c.activation_bytes,
                                           .boundary_s = c.boundary_s,
                                           .stages = layout->stages,
                                           .memory_limit_bytes =
                                               (double)s->parallel.memory_limit_bytes,
                                           .in_flight = in_flight,
                                           .widths = widths,
                                           .unit_name = c.name,
                                           .cuts = s->parallel.cuts};
    CRL_TRY_OUT(
        crl_layout_placed(((const crl_partitioner *)found)->cut(&layout->partition, &request), s,
                          request.cuts.count > 0 ? "parallel.cuts" : "parallel.partitioner"));
    for (int i = 0; i < layout->stages; i++) {
        first_node[i] = i == 0 ? 0 : c.node[layout->partition.first[i]];
    }
out:
    crl_free(in_flight);
    crl_free(widths);
    chain_fini(&c);
    return status;
}
