/* SPDX-License-Identifier: Apache-2.0 */
/* What the two files about cuDNN's graphs share: descriptors that the graph owns. */
#pragma once

#include "engine/kernels/cuda/cudnn_graph.h"

enum { CRL_CUDNN_DESCRIPTORS = 160, CRL_CUDNN_OPERATIONS = 40 };

struct crl_cudnn_graph {
    const crl_cudnn *cudnn;
    cudnnStatus_t status; /* the first failure, which was making `what` */
    const char *what;
    int count, operation_count;
    int64_t next_uid; /* of virtual tensors */
    cudnnBackendDescriptor_t owned[CRL_CUDNN_DESCRIPTORS];
    cudnnBackendDescriptor_t operations[CRL_CUDNN_OPERATIONS];
};

/* A new descriptor of the graph's; NULL after a failure. */
cudnnBackendDescriptor_t crl_cudnn_begin(crl_cudnn_graph *graph, cudnnBackendDescriptorType_t type,
                                         const char *what);
void crl_cudnn_set(crl_cudnn_graph *graph, cudnnBackendDescriptor_t descriptor,
                   cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   int64_t count, const void *values);
/* Finalises it. */
void crl_cudnn_end(crl_cudnn_graph *graph, cudnnBackendDescriptor_t descriptor);
