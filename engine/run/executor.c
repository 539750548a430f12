/* SPDX-License-Identifier: Apache-2.0 */
/* Preparing an executor: layers, places, lifetimes. */
#include "engine/run/executor.h"

#include "engine/base/alloc.h"
#include "engine/run/executor_internal.h"
#include "engine/run/memory_plan.h"

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

static bool is_split(const crl_program *program, int row, int stage) {
    const crl_action_list *list = &program->position[row];
    for (int i = 0; i < list->count; i++) {
        if (list->action[i].stage == stage && list->action[i].kind == CRL_ACTION_WEIGHT) {
            return true;
        }
    }
    return false;
}

/* Creates the layers' states; *scratch grows to the largest need of forward [0] and backward [1].
 */
static crl_status prepare_nodes(crl_executor *x, const crl_stage_layout *layout,
                                size_t scratch[2]) {
    for (int n = layout->first; n < layout->last; n++) {
        const crl_node *node = &x->config.plan->graph->node[n];
        size_t bytes[CRL_PHASES] = {0, 0, 0};
        x->kernels[n] = crl_backend_kernels(x->config.backend, node->spec.compute);
        const crl_layer_env env = {.device = x->config.backend->device,
                                   .kernels = x->kernels[n],
                                   .stream = x->config.stream,
                                   .training = x->config.sync != NULL};
        if (node->layer->prepare) {
            CRL_TRY(node->layer->prepare(&node->spec, &env, &x->node_state[n], bytes));
        }
        scratch[0] = larger(scratch[0], bytes[CRL_PHASE_FORWARD]);
        scratch[1] = larger(scratch[1], larger(bytes[CRL_PHASE_INPUT], bytes[CRL_PHASE_WEIGHT]));
        scratch[1] = larger(scratch[1], layout->recompute->again[n] ? bytes[CRL_PHASE_FORWARD] : 0);
    }
    return CRL_STATUS_OK;
}

static crl_status create_stages(crl_executor *x) {
    const crl_plan *plan = x->config.plan;
    const bool training = x->config.sync != NULL;
    for (int s = 0; s < plan->stages; s++) {
        size_t scratch[2] = {0, 0};
        x->local_of_stage[s] = -1;
        if (plan->stage[s].position != x->config.position) {
            continue;
        }
        crl_local_stage *local = &x->local[x->locals];
        local->stage = s;
        x->local_of_stage[s] = x->locals++;
        CRL_TRY(crl_stage_layout_create(&local->layout, plan, s, training,
                                        is_split(x->config.program, x->row, s)));
        CRL_TRY(prepare_nodes(x, local->layout, scratch));
        size_t forward_bytes, backward_bytes;
        CRL_TRY(crl_size_add(&forward_bytes, local->layout->forward_bytes,
                             crl_memory_round(scratch[0]), "workspace"));
        CRL_TRY(crl_size_add(&backward_bytes, local->layout->backward_bytes,
                             crl_memory_round(scratch[1]), "workspace"));
        x->workspace_bytes = larger(x->workspace_bytes, larger(forward_bytes, backward_bytes));
        CRL_TRY(crl_alloc(&local->block_offset,
                          (size_t)crl_executor_micro_batches(x) * (size_t)local->layout->blocks,
                          sizeof(size_t)));
    }
    return CRL_STATUS_OK;
}

static void extend(crl_lifetime *life, int at) {
    life->first = life->first < 0 ? at : life->first;
    life->last = at;
}

/* Marks everything the action touches as alive at time `at`. `base[local]` is where the lifetimes
 * of that stage begin. */
static void touch(const crl_executor *x, crl_lifetime *life, const int *base,
                  const crl_action *action, int at) {
    const crl_local_stage *local = &x->local[x->local_of_stage[action->stage]];
    const crl_stage_layout *layout = local->layout;
    crl_lifetime *own = life + base[x->local_of_stage[action->stage]] +
                        (action->micro_batch < 0 ? 0 : action->micro_batch) * layout->blocks;
    if (action->message >= 0) {
        const crl_message *message = &x->config.program->message[action->message];
        const int value = x->config.plan->edge[message->edge].value;
        const int block = (message->gradient ? layout->gradient : layout->value)[value].block;
        extend(&own[block], at);
        return;
    }
    for (int b = 0; b < layout->blocks && action->micro_batch >= 0; b++) {
        if (layout->block[b].touched_by >> action->kind & 1u) {
            extend(&own[b], at);
        }
    }
}

/* Where those of each stage begin; indices of blocks fit an int from here on. */
static crl_status count_lifetimes(const crl_executor *x, int *base, int *out) {
    int64_t count = 0;
    for (int l = 0; l < x->locals && count <= INT32_MAX; l++) {
        base[l] = (int)count;
        count += (int64_t)crl_executor_micro_batches(x) * x->local[l].layout->blocks;
    }
    if (count > INT32_MAX) {
        return CRL_FAIL(UNSUPPORTED,
                        "position %d: %d micro-batches of its stages have more than %d blocks",
                        x->config.position, crl_executor_micro_batches(x), INT32_MAX);
    }
    *out = (int)count;
    return CRL_STATUS_OK;
}

static crl_status plan_activations(crl_executor *x) {
    crl_status status = CRL_STATUS_OK;
    const crl_action_list *list = &x->config.program->position[x->row];
    crl_lifetime *life = NULL;
    int *base = NULL, count = 0;
    CRL_TRY_OUT(crl_alloc(&base, (size_t)x->locals, sizeof *base));
    CRL_TRY_OUT(count_lifetimes(x, base, &count));
    CRL_TRY_OUT(crl_alloc(&life, (size_t)count, sizeof *life));
    for (int l = 0; l < x->locals; l++) {
        const crl_stage_layout *layout = x->local[l].layout;
        for (int i = 0; i < crl_executor_micro_batches(x) * layout->blocks; i++) {
            life[base[l] + i] = (crl_lifetime){layout->block[i % layout->blocks].bytes, -1, -1, 0};
        }
    }
    for (int i = 0; i < list->count; i++) {
        touch(x, life, base, &list->action[i], i);
    }
    for (int i = 0; i < count; i++) {
        life[i].bytes = life[i].first < 0 ? 0 : life[i].bytes; /* never used */
    }
    CRL_TRY_OUT(crl_memory_plan(life, count, &x->activation_bytes));
    for (int l = 0; l < x->locals; l++) {
        for (int i = 0; i < crl_executor_micro_batches(x) * x->local[l].layout->blocks; i++) {
            x->local[l].block_offset[i] = life[base[l] + i].offset;
        }
    }
out:
    crl_free(life);
    crl_free(base);
    return status;
}

static crl_status find_fields(crl_executor *x) {
    const crl_graph *graph = x->config.plan->graph;
    CRL_TRY(crl_alloc(&x->field_value, (size_t)graph->values, sizeof(int)));
    CRL_TRY(crl_alloc(&x->field_of_value, (size_t)graph->values, sizeof(int)));
    for (int v = 0; v < graph->values; v++) {
        const crl_value *value = &graph->value[v];
        bool here = false;
        for (int c = 0; c < value->consumers && value->from_input; c++) {
            const int stage = crl_plan_stage_of(x->config.plan, value->consumer[c].node);
            here = here || x->local_of_stage[stage] >= 0;
        }
        x->field_of_value[v] = here ? x->fields : -1;
        if (here) {
            x->field_value[x->fields++] = v;
        }
    }
    if (x->fields > CRL_EXECUTOR_MAX_FIELDS) {
        return CRL_FAIL(UNSUPPORTED, "model has %d inputs, expected at most %d", x->fields,
                        (int)CRL_EXECUTOR_MAX_FIELDS);
    }
    return CRL_STATUS_OK;
}

crl_status crl_executor_create(crl_executor **out, const crl_executor_config *config) {
    crl_status status = CRL_STATUS_OK;
    crl_executor *x = NULL;
    CRL_TRY_OUT(crl_alloc(&x, 1, sizeof *x));
    x->config = *config;
    x->row = crl_mesh_row(config->mesh, config->position, config->replica);
    x->pipeline = crl_mesh_pipeline(config->mesh, config->position, config->replica);
    const size_t stages = (size_t)config->plan->stages;
    CRL_TRY_OUT(crl_alloc(&x->local, stages, sizeof *x->local));
    CRL_TRY_OUT(crl_alloc(&x->local_of_stage, stages, sizeof(int)));
    const size_t nodes = (size_t)config->plan->graph->nodes;
    CRL_TRY_OUT(crl_alloc(&x->node_state, nodes, sizeof(void *)));
    CRL_TRY_OUT(crl_alloc(&x->kernels, nodes, sizeof(const crl_kernels *)));
    CRL_TRY_OUT(crl_alloc(&x->request, (size_t)config->program->messages * 2, sizeof *x->request));
    CRL_TRY_OUT(crl_alloc(&x->reached, (size_t)config->program->messages, sizeof(bool)));
    CRL_TRY_OUT(create_stages(x));
    CRL_TRY_OUT(find_fields(x));
    CRL_TRY_OUT(crl_fields_plan(x));
    crl_executor_plan_recording(x);
    CRL_TRY_OUT(plan_activations(x));
    *out = x;
    x = NULL;
out:
    crl_executor_destroy(x);
    return status;
}

void crl_executor_destroy(crl_executor *x) {
    if (!x) {
        return;
    }
    for (int n = 0; x->node_state && n < x->config.plan->graph->nodes; n++) {
        if (x->node_state[n]) {
            x->config.plan->graph->node[n].layer->release(x->node_state[n]);
        }
    }
    for (int l = 0; l < x->locals; l++) {
        crl_stage_layout_destroy(x->local[l].layout);
        crl_free(x->local[l].block_offset);
    }
    crl_executor_forget_recording(x);
    crl_fields_fini(x);
    crl_free(x->local);
    crl_free(x->local_of_stage);
    crl_free(x->node_state);
    crl_free(x->kernels);
    crl_free(x->request);
    crl_free(x->reached);
    crl_free(x->field_value);
    crl_free(x->field_of_value);
    crl_free(x);
}

size_t crl_executor_activation_bytes(const crl_executor *x) {
    return x->activation_bytes + 2 * x->copy.set_bytes;
}

int crl_executor_requests(const crl_executor *x) {
    const crl_action_list *list = &x->config.program->position[x->row];
    int open = 0, most = 0;
    for (int i = 0; i < list->count; i++) {
        const crl_action_kind kind = list->action[i].kind;
        open += kind == CRL_ACTION_SEND || kind == CRL_ACTION_RECV;
        open -= kind == CRL_ACTION_WAIT_SEND || kind == CRL_ACTION_WAIT_RECV;
        most = open > most ? open : most;
    }
    return most;
}

size_t crl_executor_workspace_bytes(const crl_executor *x) {
    return x->workspace_bytes;
}

crl_status crl_executor_bind(crl_executor *x, crl_comm *comm, void *activations, void *workspace) {
    x->comm = comm;
    x->activations = activations;
    x->workspace = workspace;
    return crl_fields_bind(x, x->activations + x->activation_bytes);
}

int crl_executor_fields(const crl_executor *x, const int **out_values) {
    *out_values = x->field_value;
    return x->fields;
}

void crl_executor_profile(crl_executor *x, int64_t *total_ns) {
    x->profile_ns = total_ns;
}
