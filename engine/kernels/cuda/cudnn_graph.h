/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuDNN's graphs in short: operations are put together from tensors, then one plan is made that
 * does them all at once, or there is none. The first failure of a graph is kept, and what comes
 * after it does nothing, so a graph is written down without asking after each line; crl_cudnn_plan_
 * create tells. Refuses engines that may give other bits next time. Only files that use cuDNN
 * include this.
 */
#pragma once

#include "engine/device/cuda_library.h"
#include "engine/kernels/cuda/cudnn_backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* cuDNN's functions, and the handle of whoever owns this. */
typedef struct crl_cudnn {
    size_t (*cudnnGetVersion)(void);
    cudnnStatus_t (*cudnnCreate)(cudnnHandle_t *);
    cudnnStatus_t (*cudnnDestroy)(cudnnHandle_t);
    cudnnStatus_t (*cudnnSetStream)(cudnnHandle_t, cudaStream_t);
    const char *(*cudnnGetErrorString)(cudnnStatus_t);
    cudnnStatus_t (*cudnnBackendCreateDescriptor)(cudnnBackendDescriptorType_t,
                                                  cudnnBackendDescriptor_t *);
    cudnnStatus_t (*cudnnBackendDestroyDescriptor)(cudnnBackendDescriptor_t);
    cudnnStatus_t (*cudnnBackendFinalize)(cudnnBackendDescriptor_t);
    cudnnStatus_t (*cudnnBackendSetAttribute)(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t,
                                              cudnnBackendAttributeType_t, int64_t, const void *);
    cudnnStatus_t (*cudnnBackendGetAttribute)(cudnnBackendDescriptor_t const,
                                              cudnnBackendAttributeName_t,
                                              cudnnBackendAttributeType_t, int64_t, int64_t *,
                                              void *);
    cudnnStatus_t (*cudnnBackendExecute)(cudnnHandle_t, cudnnBackendDescriptor_t,
                                         cudnnBackendDescriptor_t);
    cudnnHandle_t handle; /* NULL: plans can be asked about, with a device's properties */
} crl_cudnn;

enum { CRL_CUDNN_SYMBOLS = 11, CRL_CUDNN_DIMS = 4 };

/* The functions to be filled in. */
void crl_cudnn_symbols(crl_cudnn *cudnn, crl_cuda_symbol symbols[CRL_CUDNN_SYMBOLS]);

/* What a plan is for: the device of cudnn->handle, or one that is not there, given by its
 * properties (CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR). Local. UNSUPPORTED. */
typedef struct crl_cudnn_target {
    const crl_cudnn *cudnn;
    cudnnBackendDescriptor_t properties; /* NULL: the handle's */
} crl_cudnn_target;

CRL_NODISCARD crl_status crl_cudnn_target_from_json(crl_cudnn_target *out, const crl_cudnn *cudnn,
                                                    const char *json);
void crl_cudnn_target_fini(crl_cudnn_target *target);

/* Records the failure; the code says what a caller can do about it. */
CRL_NODISCARD crl_status crl_cudnn_failed(const crl_cudnn *cudnn, const char *what,
                                          cudnnStatus_t status);

typedef enum crl_cudnn_place {
    CRL_CUDNN_DEVICE = 0, /* an array of the device; run() is given it */
    CRL_CUDNN_VIRTUAL,    /* only between operations; uid is the graph's own */
    CRL_CUDNN_VALUE       /* one float of the host; run() is given its address */
} crl_cudnn_place;

typedef struct crl_cudnn_tensor {
    int64_t uid; /* 1.. */
    cudnnDataType_t type;
    crl_cudnn_place place;
    int64_t dims[CRL_CUDNN_DIMS], strides[CRL_CUDNN_DIMS];
} crl_cudnn_tensor;

typedef struct crl_cudnn_graph crl_cudnn_graph;
typedef cudnnBackendDescriptor_t crl_cudnn_value; /* a tensor of a graph; NULL after a failure */

/* An empty graph; the caller owns it until a plan has it. NOMEM. */
CRL_NODISCARD crl_status crl_cudnn_graph_create(crl_cudnn_graph **out, const crl_cudnn *cudnn);
void crl_cudnn_graph_destroy(crl_cudnn_graph *graph);
crl_cudnn_value crl_cudnn_add_tensor(crl_cudnn_graph *graph, const crl_cudnn_tensor *tensor);
/* y = mode(x, b), or t ? x : b where the mode selects; b and t may be NULL. `axis`: whose index
 * CUDNN_POINTWISE_GEN_INDEX makes. */
void crl_cudnn_pointwise(crl_cudnn_graph *graph, cudnnPointwiseMode_t mode, cudnnDataType_t compute,
                         int64_t axis, crl_cudnn_value x, crl_cudnn_value b, crl_cudnn_value t,
                         crl_cudnn_value y);
/* y = a b over the last two dimensions; sums in f32 */
void crl_cudnn_matmul(crl_cudnn_graph *graph, crl_cudnn_value a, crl_cudnn_value b,
                      crl_cudnn_value y);
/* y = x reduced over the dimensions in which y is 1 */
void crl_cudnn_reduce(crl_cudnn_graph *graph, cudnnReduceTensorOp_t kind, crl_cudnn_value x,
                      crl_cudnn_value y);
/* y = x with other dimensions and strides: here, transposed */
void crl_cudnn_reshape(crl_cudnn_graph *graph, crl_cudnn_value x, crl_cudnn_value y);

typedef struct crl_cudnn_plan crl_cudnn_plan;

/* The first deterministic plan that cuDNN proposes for the graph and the target, with at most
 * `most_bytes` of workspace. Takes the graph, also when it fails. UNSUPPORTED: there is none;
 * NOMEM, DEVICE. Blocking. */
CRL_NODISCARD crl_status crl_cudnn_plan_create(crl_cudnn_plan **out, crl_cudnn_graph *graph,
                                               const crl_cudnn_target *target, size_t most_bytes);
void crl_cudnn_plan_destroy(crl_cudnn_plan *plan);
size_t crl_cudnn_plan_workspace_bytes(const crl_cudnn_plan *plan);
/* With the arrays (and values of the host) of these uids. The descriptor that holds them is
 * cuDNN's, made and freed here: it cannot be used twice. Async on the handle's stream. DEVICE. */
CRL_NODISCARD crl_status crl_cudnn_plan_run(const crl_cudnn_plan *plan, int count,
                                            const int64_t *uids, void *const *arrays,
                                            void *workspace);

#ifdef __cplusplus
}
#endif
