/* SPDX-License-Identifier: Apache-2.0 */
/* A plan for a graph: the first of cuDNN's proposals that is deterministic, fits and is supported.
 * The order of proposals is cuDNN's for the device, so all ranks on equal devices take the same. */
#include "engine/kernels/cuda/cudnn_graph_internal.h"

#include <string.h>

#include "engine/base/alloc.h"

enum { PROPOSALS = 16 };

struct crl_cudnn_plan {
    crl_cudnn_graph *graph;
    cudnnBackendDescriptor_t plan;
    size_t workspace_bytes;
};

crl_status crl_cudnn_target_from_json(crl_cudnn_target *out, const crl_cudnn *cudnn,
                                      const char *json) {
    cudnnBackendDescriptor_t properties = NULL;
    cudnnStatus_t status =
        cudnn->cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &properties);
    if (status == CUDNN_STATUS_SUCCESS)
        status =
            cudnn->cudnnBackendSetAttribute(properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                            CUDNN_TYPE_CHAR, (int64_t)strlen(json) + 1, json);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->cudnnBackendFinalize(properties);
    if (status != CUDNN_STATUS_SUCCESS) {
        if (properties)
            (void)cudnn->cudnnBackendDestroyDescriptor(properties);
        return crl_cudnn_failed(cudnn, "device properties", status);
    }
    *out = (crl_cudnn_target){cudnn, properties};
    return CRL_STATUS_OK;
}

void crl_cudnn_target_fini(crl_cudnn_target *target) {
    if (target->properties)
        (void)target->cudnn->cudnnBackendDestroyDescriptor(target->properties);
    target->properties = NULL;
}

/* Fills `proposals`; all become the graph's. Returns how many there are. */
static int propose(crl_cudnn_graph *graph, const crl_cudnn_target *target,
                   cudnnBackendDescriptor_t proposals[PROPOSALS]) {
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t count = 0;
    cudnnBackendDescriptor_t whole =
        crl_cudnn_begin(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "graph");
    crl_cudnn_set(graph, whole, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                  graph->operation_count, graph->operations);
    if (!target->properties)
        crl_cudnn_set(graph, whole, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
                      &target->cudnn->handle);
    crl_cudnn_end(graph, whole);
    cudnnBackendDescriptor_t advice =
        crl_cudnn_begin(graph, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "proposals");
    crl_cudnn_set(graph, advice, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &whole);
    crl_cudnn_set(graph, advice, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (target->properties)
        crl_cudnn_set(graph, advice, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &target->properties);
    crl_cudnn_end(graph, advice);
    for (int i = 0; i < PROPOSALS; i++)
        proposals[i] = crl_cudnn_begin(graph, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "proposals");
    if (graph->status != CUDNN_STATUS_SUCCESS)
        return 0;
    graph->status = graph->cudnn->cudnnBackendGetAttribute(advice, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                           CUDNN_TYPE_BACKEND_DESCRIPTOR, PROPOSALS,
                                                           &count, proposals);
    return graph->status == CUDNN_STATUS_SUCCESS ? (int)count : 0;
}

static bool is_deterministic(crl_cudnn_graph *graph, cudnnBackendDescriptor_t proposal) {
    const crl_cudnn *cudnn = graph->cudnn;
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;
    cudnnBackendDescriptor_t engine =
        crl_cudnn_begin(graph, CUDNN_BACKEND_ENGINE_DESCRIPTOR, "proposals");
    if (!engine ||
        cudnn->cudnnBackendGetAttribute(proposal, CUDNN_ATTR_ENGINECFG_ENGINE,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                        &engine) != CUDNN_STATUS_SUCCESS ||
        cudnn->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                        CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
                                        &count, notes) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = 0; i < count; i++)
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
            return false;
    return true;
}

/* *out is NULL when the proposal does not work here. */
static cudnnStatus_t try_proposal(const crl_cudnn_target *target, cudnnBackendDescriptor_t proposal,
                                  cudnnBackendDescriptor_t *out, int64_t *workspace_bytes) {
    const crl_cudnn *cudnn = target->cudnn;
    cudnnBackendDescriptor_t plan = NULL;
    int64_t count = 0;
    cudnnStatus_t status =
        cudnn->cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &proposal);
    if (status == CUDNN_STATUS_SUCCESS && target->properties)
        status =
            cudnn->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &target->properties);
    else if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                                 CUDNN_TYPE_HANDLE, 1, &cudnn->handle);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->cudnnBackendFinalize(plan);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                 CUDNN_TYPE_INT64, 1, &count, workspace_bytes);
    if (status != CUDNN_STATUS_SUCCESS && plan)
        (void)cudnn->cudnnBackendDestroyDescriptor(plan);
    else
        *out = plan;
    return status;
}

static crl_status choose(crl_cudnn_plan *plan, const crl_cudnn_target *target, size_t most_bytes) {
    crl_cudnn_graph *graph = plan->graph;
    cudnnBackendDescriptor_t proposals[PROPOSALS];
    const int count = propose(graph, target, proposals);
    cudnnStatus_t status = CUDNN_STATUS_NOT_SUPPORTED;
    if (graph->status != CUDNN_STATUS_SUCCESS)
        return crl_cudnn_failed(graph->cudnn, graph->what, graph->status);
    for (int i = 0; i < count; i++) {
        cudnnBackendDescriptor_t made = NULL;
        int64_t bytes = 0;
        if (!is_deterministic(graph, proposals[i]))
            continue;
        status = try_proposal(target, proposals[i], &made, &bytes);
        if (made && (size_t)bytes <= most_bytes) {
            plan->plan = made;
            plan->workspace_bytes = (size_t)bytes;
            return CRL_STATUS_OK;
        }
        if (made)
            (void)graph->cudnn->cudnnBackendDestroyDescriptor(made);
    }
    return crl_cudnn_failed(graph->cudnn, "plan",
                            status == CUDNN_STATUS_SUCCESS ? CUDNN_STATUS_NOT_SUPPORTED : status);
}

crl_status crl_cudnn_plan_create(crl_cudnn_plan **out, crl_cudnn_graph *graph,
                                 const crl_cudnn_target *target, size_t most_bytes) {
    crl_cudnn_plan *plan = NULL;
    crl_status status = crl_alloc(&plan, 1, sizeof *plan);
    if (status != CRL_STATUS_OK) {
        crl_cudnn_graph_destroy(graph);
        return status;
    }
    plan->graph = graph;
    CRL_TRY_OUT(choose(plan, target, most_bytes));
    *out = plan;
    plan = NULL;
out:
    crl_cudnn_plan_destroy(plan);
    return status;
}

void crl_cudnn_plan_destroy(crl_cudnn_plan *plan) {
    if (!plan)
        return;
    if (plan->plan)
        (void)plan->graph->cudnn->cudnnBackendDestroyDescriptor(plan->plan);
    crl_cudnn_graph_destroy(plan->graph);
    crl_free(plan);
}

size_t crl_cudnn_plan_workspace_bytes(const crl_cudnn_plan *plan) {
    return plan->workspace_bytes;
}

crl_status crl_cudnn_plan_run(const crl_cudnn_plan *plan, int count, const int64_t *uids,
                              void *const *arrays, void *workspace) {
    const crl_cudnn *cudnn = plan->graph->cudnn;
    cudnnBackendDescriptor_t pack = NULL;
    cudnnStatus_t status =
        cudnn->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                                 CUDNN_TYPE_INT64, count, uids);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                                 CUDNN_TYPE_VOID_PTR, count, arrays);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                                 CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->cudnnBackendFinalize(pack);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->cudnnBackendExecute(cudnn->handle, plan->plan, pack);
    if (pack)
        (void)cudnn->cudnnBackendDestroyDescriptor(pack);
    return status == CUDNN_STATUS_SUCCESS ? CRL_STATUS_OK
                                          : crl_cudnn_failed(cudnn, "execution", status);
}
