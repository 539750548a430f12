/* SPDX-License-Identifier: Apache-2.0 */
/* Offsets and initial values of a rank's parameters. */
#include "engine/run/params.h"

#include <inttypes.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/rng.h"
#include "engine/run/memory_plan.h"

enum { ALIGN_ELEMENTS = CRL_ALIGN_BYTES / sizeof(float) };

static int64_t padded(int64_t elements) {
    return (elements + ALIGN_ELEMENTS - 1) / ALIGN_ELEMENTS * ALIGN_ELEMENTS;
}

/* *total grows by a padded array whose bytes can still be counted. */
static crl_status grow(int64_t *total, int64_t elements, const char *name) {
    if (elements > INT64_MAX / 8 - *total - ALIGN_ELEMENTS) {
        return CRL_FAIL(INVALID, "parameter %s: size overflows, %" PRId64 " elements before it",
                        name, *total);
    }
    *total += padded(elements);
    return CRL_STATUS_OK;
}

static crl_status add_node(crl_params *params, int node_index, int stage) {
    const crl_node *node = &params->graph->node[node_index];
    for (int p = 0; p < node->spec.params; p++) {
        const int param = node->param[p];
        const char *name = params->graph->param[param].name;
        const int64_t elements = params->graph->param[param].elements;
        if (params->weight_offset[param] < 0) {
            params->weight_offset[param] = params->weight_elements;
            CRL_TRY(grow(&params->weight_elements, elements, name));
        }
        if (p == 0) {
            params->first_use[node_index] = params->uses;
        }
        params->use[params->uses++] = (crl_local_use){
            param, node->use[p], node_index, stage, params->gradient_elements, elements};
        CRL_TRY(grow(&params->gradient_elements, elements, name));
    }
    return CRL_STATUS_OK;
}

/* So that the getters of bytes need no check. */
static crl_status check_bytes(const crl_params *params) {
    size_t bytes;
    CRL_TRY(crl_size_mul(&bytes, (size_t)params->gradient_elements * sizeof(float),
                         (size_t)params->lane_buffers, "gradients"));
    return crl_size_mul(&bytes, (size_t)params->weight_elements * sizeof(float),
                        2 * (size_t)(params->states + 1), "optimizer state"); /* all kept twice */
}

crl_status crl_params_create(crl_params **out, const crl_params_config *config) {
    crl_status status = CRL_STATUS_OK;
    const crl_plan *plan = config->plan;
    const crl_graph *graph = plan->graph;
    crl_params *params = NULL;
    CRL_TRY_OUT(crl_alloc(&params, 1, sizeof *params));
    params->graph = graph;
    params->lane_buffers = config->lane_buffers;
    params->states = config->states;
    params->keeps = config->keeps;
    params->compute = config->compute;
    CRL_TRY_OUT(crl_alloc(&params->weight_offset, (size_t)graph->params, sizeof(int64_t)));
    CRL_TRY_OUT(crl_alloc(&params->first_use, (size_t)graph->nodes, sizeof(int)));
    CRL_TRY_OUT(
        crl_alloc(&params->use, (size_t)graph->nodes * CRL_LAYER_MAX_PARAMS, sizeof *params->use));
    for (int p = 0; p < graph->params; p++) {
        params->weight_offset[p] = -1;
    }
    for (int n = 0; n < graph->nodes; n++) {
        params->first_use[n] = -1;
    }
    for (int s = 0; s < plan->stages; s++) {
        for (int n = plan->stage[s].first; n < plan->stage[s].last; n++) {
            if (plan->stage[s].position == config->position) {
                CRL_TRY_OUT(add_node(params, n, s));
            }
        }
    }
    CRL_TRY_OUT(check_bytes(params));
    *out = params;
    params = NULL;
out:
    crl_params_destroy(params);
    return status;
}

void crl_params_destroy(crl_params *params) {
    if (params) {
        crl_free(params->weight_offset);
        crl_free(params->first_use);
        crl_free(params->use);
        crl_free(params);
    }
}

size_t crl_params_weights_bytes(const crl_params *params) {
    return (size_t)params->weight_elements * sizeof(float);
}

size_t crl_params_rounded_each(crl_dtype compute) {
    return compute == CRL_DTYPE_F32 ? 0 : crl_dtype_bytes(compute);
}

size_t crl_params_rounded_bytes(const crl_params *params) {
    return crl_memory_round((size_t)params->weight_elements *
                            crl_params_rounded_each(params->compute));
}

size_t crl_params_gradients_bytes(const crl_params *params) {
    return (size_t)params->gradient_elements * sizeof(float) * (size_t)params->lane_buffers;
}

size_t crl_params_states_bytes(const crl_params *params) {
    return crl_params_weights_bytes(params) * (size_t)params->states;
}

size_t crl_params_kept_bytes(const crl_params *params) {
    return params->keeps ? crl_params_weights_bytes(params) + crl_params_states_bytes(params) : 0;
}

crl_status crl_params_keep(const crl_params *params, int param) {
    const int64_t offset = params->weight_offset[param];
    const size_t bytes = (size_t)params->graph->param[param].elements * sizeof(float);
    CRL_TRY(crl_device_copy(params->device, params->stream, params->kept_weights + offset,
                            params->weights + offset, bytes));
    for (int k = 0; k < params->states; k++) {
        CRL_TRY(crl_device_copy(params->device, params->stream, params->kept_state[k] + offset,
                                params->state[k] + offset, bytes));
    }
    return CRL_STATUS_OK;
}

crl_status crl_params_round(const crl_params *params, const crl_backend *backend) {
    if (!params->rounded || params->weight_elements == 0) {
        return CRL_STATUS_OK;
    }
    return crl_backend_kernels(backend, params->compute)
        ->eltwise->narrow(params->stream, params->weights, params->rounded, params->weight_elements,
                          false);
}

static void swap(float **a, float **b) {
    float *c = *a;
    *a = *b;
    *b = c;
}

void crl_params_take_back(crl_params *params) {
    swap(&params->weights, &params->kept_weights);
    for (int k = 0; k < params->states; k++) {
        swap(&params->state[k], &params->kept_state[k]);
    }
}

float *crl_params_weight(const crl_params *params, int param) {
    const int64_t offset = params->weight_offset[param];
    return offset < 0 ? NULL : params->weights + offset;
}

void *crl_params_rounded(const crl_params *params, int param) {
    const int64_t offset = params->weight_offset[param];
    return offset < 0 || !params->rounded
               ? NULL
               : (char *)params->rounded + (size_t)offset * crl_dtype_bytes(params->compute);
}

const void *crl_params_weight_as(const crl_params *params, int param, crl_dtype compute) {
    const bool exact = compute == CRL_DTYPE_F32 || params->graph->param[param].spec.f32;
    return exact ? crl_params_weight(params, param) : crl_params_rounded(params, param);
}

float *crl_params_state(const crl_params *params, int state, int param) {
    const int64_t offset = params->weight_offset[param];
    return offset < 0 || state >= params->states ? NULL : params->state[state] + offset;
}

static crl_status draw(const crl_param *param, int index, uint64_t seed, float *w) {
    const crl_rng rng = {seed, CRL_RNG_INIT, (uint32_t)index, 0, 0};
    switch (param->spec.init) {
    case CRL_INIT_ZEROS:
    case CRL_INIT_ONES:
        for (int64_t i = 0; i < param->elements; i++) {
            w[i] = param->spec.init == CRL_INIT_ONES ? 1.0f : 0.0f;
        }
        return CRL_STATUS_OK;
    case CRL_INIT_NORMAL:
        crl_rng_fill_normal(&rng, w, param->elements, 0.0f, (float)param->spec.init_scale);
        return CRL_STATUS_OK;
    case CRL_INIT_UNIFORM:
        crl_rng_fill_uniform(&rng, w, param->elements, -(float)param->spec.init_scale,
                             (float)param->spec.init_scale);
        return CRL_STATUS_OK;
    default:
        return CRL_FAIL(INTERNAL, "parameter %s: unknown kind of initial value", param->name);
    }
}

/* Drawn on the host; the device gets a copy. */
static crl_status draw_on_device(const crl_params *params, int index, uint64_t seed, float *host) {
    const crl_param *param = &params->graph->param[index];
    CRL_TRY(draw(param, index, seed, host));
    return crl_device_copy_wait(params->device, params->stream, crl_params_weight(params, index),
                                host, (size_t)param->elements * sizeof *host);
}

crl_status crl_params_init(const crl_params *params, uint64_t seed) {
    crl_status status = CRL_STATUS_OK;
    const bool direct = crl_device_is_host(params->device);
    float *host = NULL;
    int64_t largest = 0;
    for (int p = 0; p < params->graph->params; p++) {
        const int64_t elements = params->graph->param[p].elements;
        largest = crl_params_weight(params, p) && elements > largest ? elements : largest;
    }
    if (!direct) {
        CRL_TRY_OUT(crl_device_host_alloc(params->device, &host, (size_t)largest * sizeof *host));
    }
    for (int p = 0; p < params->graph->params; p++) {
        float *w = crl_params_weight(params, p);
        if (w && direct) {
            CRL_TRY_OUT(draw(&params->graph->param[p], p, seed, w));
        } else if (w) {
            CRL_TRY_OUT(draw_on_device(params, p, seed, host));
        }
    }
out:
    crl_device_host_free(params->device, host);
    return status;
}
