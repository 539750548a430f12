/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs of cuDNN's backend interface; the plans made from them are in cudnn_plan.c. */
#include "engine/kernels/cuda/cudnn_graph_internal.h"

#include "engine/base/alloc.h"

enum { FIRST_VIRTUAL_UID = 1000, ALIGN_BYTES = 16 };

void crl_cudnn_symbols(crl_cudnn *cudnn, crl_cuda_symbol symbols[CRL_CUDNN_SYMBOLS]) {
#define SYMBOL(name)                                                                               \
    { #name, &cudnn->name }
    const crl_cuda_symbol all[CRL_CUDNN_SYMBOLS] = {
        SYMBOL(cudnnGetVersion),
        SYMBOL(cudnnCreate),
        SYMBOL(cudnnDestroy),
        SYMBOL(cudnnSetStream),
        SYMBOL(cudnnGetErrorString),
        SYMBOL(cudnnBackendCreateDescriptor),
        SYMBOL(cudnnBackendDestroyDescriptor),
        SYMBOL(cudnnBackendFinalize),
        SYMBOL(cudnnBackendSetAttribute),
        SYMBOL(cudnnBackendGetAttribute),
        SYMBOL(cudnnBackendExecute),
    };
#undef SYMBOL
    for (int i = 0; i < CRL_CUDNN_SYMBOLS; i++)
        symbols[i] = all[i];
}

crl_status crl_cudnn_failed(const crl_cudnn *cudnn, const char *what, cudnnStatus_t status) {
    const char *words = cudnn->cudnnGetErrorString(status);
    if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
        status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
        return CRL_FAIL(NOMEM, "cuda: cuDNN %s: %s", what, words);
    /* A version that does not know a part of a graph calls it a bad parameter. */
    if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED ||
        CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_BAD_PARAM)
        return CRL_FAIL(UNSUPPORTED, "cuda: cuDNN %s: %s", what, words);
    return CRL_FAIL(DEVICE, "cuda: cuDNN %s: %s", what, words);
}

crl_status crl_cudnn_graph_create(crl_cudnn_graph **out, const crl_cudnn *cudnn) {
    crl_cudnn_graph *graph = NULL;
    CRL_TRY(crl_alloc(&graph, 1, sizeof *graph));
    graph->cudnn = cudnn;
    graph->next_uid = FIRST_VIRTUAL_UID;
    *out = graph;
    return CRL_STATUS_OK;
}

void crl_cudnn_graph_destroy(crl_cudnn_graph *graph) {
    if (!graph)
        return;
    for (int i = graph->count - 1; i >= 0; i--)
        (void)graph->cudnn->cudnnBackendDestroyDescriptor(graph->owned[i]);
    crl_free(graph);
}

static void note(crl_cudnn_graph *graph, const char *what, cudnnStatus_t status) {
    if (graph->status == CUDNN_STATUS_SUCCESS && status != CUDNN_STATUS_SUCCESS) {
        graph->status = status;
        graph->what = what;
    }
}

cudnnBackendDescriptor_t crl_cudnn_begin(crl_cudnn_graph *graph, cudnnBackendDescriptorType_t type,
                                         const char *what) {
    cudnnBackendDescriptor_t descriptor = NULL;
    if (graph->status != CUDNN_STATUS_SUCCESS)
        return NULL;
    CRL_ASSERT(graph->count < CRL_CUDNN_DESCRIPTORS);
    note(graph, what, graph->cudnn->cudnnBackendCreateDescriptor(type, &descriptor));
    if (graph->status == CUDNN_STATUS_SUCCESS)
        graph->owned[graph->count++] = descriptor;
    graph->what = graph->status == CUDNN_STATUS_SUCCESS ? what : graph->what;
    return descriptor;
}

void crl_cudnn_set(crl_cudnn_graph *graph, cudnnBackendDescriptor_t descriptor,
                   cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   int64_t count, const void *values) {
    if (graph->status == CUDNN_STATUS_SUCCESS)
        note(graph, graph->what,
             graph->cudnn->cudnnBackendSetAttribute(descriptor, name, type, count, values));
}

/* Of a NULL value: nothing. */
static void set_value(crl_cudnn_graph *graph, cudnnBackendDescriptor_t descriptor,
                      cudnnBackendAttributeName_t name, crl_cudnn_value value) {
    if (value)
        crl_cudnn_set(graph, descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void set_type(crl_cudnn_graph *graph, cudnnBackendDescriptor_t descriptor,
                     cudnnBackendAttributeName_t name, cudnnDataType_t type) {
    crl_cudnn_set(graph, descriptor, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}

void crl_cudnn_end(crl_cudnn_graph *graph, cudnnBackendDescriptor_t descriptor) {
    if (graph->status == CUDNN_STATUS_SUCCESS)
        note(graph, graph->what, graph->cudnn->cudnnBackendFinalize(descriptor));
}

crl_cudnn_value crl_cudnn_add_tensor(crl_cudnn_graph *graph, const crl_cudnn_tensor *tensor) {
    cudnnBackendDescriptor_t t = crl_cudnn_begin(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR, "tensor");
    const bool is_virtual = tensor->place == CRL_CUDNN_VIRTUAL;
    const bool is_value = tensor->place == CRL_CUDNN_VALUE;
    const int64_t uid = is_virtual ? graph->next_uid++ : tensor->uid, align_bytes = ALIGN_BYTES;
    set_type(graph, t, CUDNN_ATTR_TENSOR_DATA_TYPE, tensor->type);
    crl_cudnn_set(graph, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, CRL_CUDNN_DIMS,
                  tensor->dims);
    crl_cudnn_set(graph, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, CRL_CUDNN_DIMS,
                  tensor->strides);
    crl_cudnn_set(graph, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    crl_cudnn_set(graph, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align_bytes);
    crl_cudnn_set(graph, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    crl_cudnn_set(graph, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &is_value);
    crl_cudnn_end(graph, t);
    return graph->status == CUDNN_STATUS_SUCCESS ? t : NULL;
}

/* An operation of the graph, once it is whole. */
static void add_operation(crl_cudnn_graph *graph, cudnnBackendDescriptor_t operation) {
    crl_cudnn_end(graph, operation);
    if (graph->status != CUDNN_STATUS_SUCCESS)
        return;
    CRL_ASSERT(graph->operation_count < CRL_CUDNN_OPERATIONS);
    graph->operations[graph->operation_count++] = operation;
}

void crl_cudnn_pointwise(crl_cudnn_graph *graph, cudnnPointwiseMode_t mode, cudnnDataType_t compute,
                         int64_t axis, crl_cudnn_value x, crl_cudnn_value b, crl_cudnn_value t,
                         crl_cudnn_value y) {
    const char *what = "pointwise operation";
    cudnnBackendDescriptor_t kind =
        crl_cudnn_begin(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, what);
    crl_cudnn_set(graph, kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set_type(graph, kind, CUDNN_ATTR_POINTWISE_MATH_PREC, compute);
    if (mode == CUDNN_POINTWISE_GEN_INDEX)
        crl_cudnn_set(graph, kind, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    crl_cudnn_end(graph, kind);
    cudnnBackendDescriptor_t operation =
        crl_cudnn_begin(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, what);
    set_value(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
    set_value(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    set_value(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    set_value(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    set_value(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add_operation(graph, operation);
}

void crl_cudnn_matmul(crl_cudnn_graph *graph, crl_cudnn_value a, crl_cudnn_value b,
                      crl_cudnn_value y) {
    const char *what = "matrix product";
    cudnnBackendDescriptor_t kind = crl_cudnn_begin(graph, CUDNN_BACKEND_MATMUL_DESCRIPTOR, what);
    set_type(graph, kind, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    crl_cudnn_end(graph, kind);
    cudnnBackendDescriptor_t operation =
        crl_cudnn_begin(graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, what);
    set_value(graph, operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
    set_value(graph, operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_value(graph, operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_value(graph, operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, y);
    add_operation(graph, operation);
}

void crl_cudnn_reduce(crl_cudnn_graph *graph, cudnnReduceTensorOp_t kind_of, crl_cudnn_value x,
                      crl_cudnn_value y) {
    const char *what = "reduction";
    cudnnBackendDescriptor_t kind =
        crl_cudnn_begin(graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, what);
    crl_cudnn_set(graph, kind, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
                  &kind_of);
    set_type(graph, kind, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    crl_cudnn_end(graph, kind);
    cudnnBackendDescriptor_t operation =
        crl_cudnn_begin(graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, what);
    set_value(graph, operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
    set_value(graph, operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_value(graph, operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    add_operation(graph, operation);
}

void crl_cudnn_reshape(crl_cudnn_graph *graph, crl_cudnn_value x, crl_cudnn_value y) {
    cudnnBackendDescriptor_t operation =
        crl_cudnn_begin(graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, "reshape");
    set_value(graph, operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_value(graph, operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_operation(graph, operation);
}
