/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention by cuDNN's plans: those that attention_graph.c builds, for the device of a stream. The
 * handle hangs on the stream, with the plans made so far: compiling them takes half a second each,
 * and the layers of a model are alike. One run does as many samples as the workspace allows; the
 * others follow.
 *
 *     scratch of backward   delta of one run, then the plan's workspace, aligned to 256 bytes
 *
 * Refuses, so that own kernels take over: f32; GPUs but those of sm_8x and sm_90, for which the
 * graphs are known to be deterministic; sequences of one token; before cuDNN 9.16 sequences that
 * are no multiple of 128 (their ends are not masked there).
 */
#include <math.h>

#include "engine/base/alloc.h"
#include "engine/device/cuda_stream.h"
#include "engine/kernels/cuda/attention_graph.h"

enum { ALIGN_BYTES = 256, WHOLE_TILES = 128, MASKS_ENDS = 91600 };

struct crl_attention_cudnn {
    crl_attention_shape shape, part; /* part: of one run */
    int64_t runs;
    crl_cudnn cudnn; /* a copy: plans may outlive the stream that the handle hangs on */
    crl_cudnn_plan *forward, *backward;
    int users; /* operations, and the stream's list */
    crl_attention_cudnn *next;
};

/* What hangs on the stream. */
typedef struct library {
    crl_cudnn cudnn;
    crl_attention_cudnn *plans;
} library;

static const char key = 'k'; /* of the stream's context */

static void library_destroy(void *pointer) {
    library *own = pointer;
    while (own->plans) {
        crl_attention_cudnn *first = own->plans;
        own->plans = first->next;
        crl_attention_cudnn_destroy(first);
    }
    if (own->cudnn.handle)
        (void)own->cudnn.cudnnDestroy(own->cudnn.handle);
    crl_free(own);
}

static crl_status library_fill(crl_cudnn *cudnn, crl_stream *stream) {
    crl_cuda_symbol symbols[CRL_CUDNN_SYMBOLS];
    crl_cudnn_symbols(cudnn, symbols);
    CRL_TRY(crl_cuda_library_load(&crl_cuda_library_cudnn, symbols, CRL_CUDNN_SYMBOLS));
    cudnnStatus_t status = cudnn->cudnnCreate(&cudnn->handle);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn->cudnnSetStream(cudnn->handle, stream->handle);
    return status == CUDNN_STATUS_SUCCESS ? CRL_STATUS_OK
                                          : crl_cudnn_failed(cudnn, "handle", status);
}

/* The stream's, made at its first attention. */
static crl_status library_get(library **out, crl_stream *stream) {
    library *own = crl_cuda_context_get(stream, &key);
    if (!own) {
        CRL_TRY(crl_alloc(&own, 1, sizeof *own));
        const crl_status status = library_fill(&own->cudnn, stream);
        if (status != CRL_STATUS_OK) {
            library_destroy(own);
            return status;
        }
        crl_cuda_context_set(stream, &key, own, library_destroy);
    }
    *out = own;
    return CRL_STATUS_OK;
}

static bool is_same(const crl_attention_shape *a, const crl_attention_shape *b) {
    return a->b == b->b && a->t == b->t && a->heads == b->heads && a->d == b->d &&
           a->scale == b->scale && a->causal == b->causal && a->dtype == b->dtype;
}

static size_t round_up(size_t bytes) {
    return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

static size_t delta_bytes(const crl_attention_shape *part) {
    return round_up((size_t)(part->b * part->heads * part->t) * sizeof(float));
}

static crl_attention_shape part_of(const crl_attention_shape *shape) {
    crl_attention_shape part = *shape;
    part.b = crl_attention_graph_samples(shape);
    return part;
}

size_t crl_attention_cudnn_bytes(const crl_attention_shape *shape, bool backward) {
    if (!crl_attention_graph_takes(shape))
        return 0;
    const crl_attention_shape part = part_of(shape);
    return ALIGN_BYTES + crl_attention_graph_workspace_bytes(&part, backward) +
           (backward ? delta_bytes(&part) : 0);
}

static crl_status fits_device(bool *out, const crl_stream *stream) {
    int major = 0;
    CRL_CUDA_TRY("device",
                 cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, stream->device));
    *out = major == 8 || major == 9;
    return CRL_STATUS_OK;
}

static crl_status fill(crl_attention_cudnn *attention, const crl_cudnn *cudnn,
                       const crl_attention_shape *shape) {
    if (shape->t % WHOLE_TILES != 0 && cudnn->cudnnGetVersion() < MASKS_ENDS)
        return CRL_FAIL(UNSUPPORTED, "attention: cuDNN %zu takes no sequence of %lld",
                        cudnn->cudnnGetVersion(), (long long)shape->t);
    attention->cudnn = *cudnn;
    attention->shape = *shape;
    attention->part = part_of(shape);
    attention->runs = shape->b / attention->part.b;
    const crl_cudnn_target target = {&attention->cudnn, NULL};
    CRL_TRY(crl_attention_graph_forward(&attention->forward, &attention->part, &target));
    return crl_attention_graph_backward(&attention->backward, &attention->part, &target);
}

/* Of the stream's list, where it is put when it is new. */
static crl_status find(crl_attention_cudnn **out, library *own, const crl_attention_shape *shape) {
    crl_attention_cudnn *attention = own->plans;
    crl_status status = CRL_STATUS_OK;
    while (attention && !is_same(&attention->shape, shape))
        attention = attention->next;
    if (!attention) {
        CRL_TRY(crl_alloc(&attention, 1, sizeof *attention));
        attention->users = 1;
        status = fill(attention, &own->cudnn, shape);
        if (status != CRL_STATUS_OK) {
            crl_attention_cudnn_destroy(attention);
            return status;
        }
        attention->next = own->plans;
        own->plans = attention;
    }
    attention->users++;
    *out = attention;
    return CRL_STATUS_OK;
}

static crl_status create(crl_attention_cudnn **out, const crl_attention_shape *shape,
                         crl_stream *stream) {
    library *own = NULL;
    bool fits = false;
    CRL_TRY(fits_device(&fits, stream));
    if (!fits)
        return CRL_STATUS_OK;
    CRL_TRY(library_get(&own, stream));
    return find(out, own, shape);
}

crl_status crl_attention_cudnn_create(crl_attention_cudnn **out, const crl_attention_shape *shape,
                                      crl_stream *stream) {
    *out = NULL;
    if (!crl_attention_graph_takes(shape))
        return CRL_STATUS_OK;
    const crl_status status = create(out, shape, stream);
    if (status != CRL_STATUS_UNSUPPORTED)
        return status;
    crl_error_clear();
    return CRL_STATUS_OK;
}

void crl_attention_cudnn_destroy(crl_attention_cudnn *attention) {
    if (!attention || --attention->users > 0)
        return;
    crl_cudnn_plan_destroy(attention->forward);
    crl_cudnn_plan_destroy(attention->backward);
    crl_free(attention);
}

static void *aligned(void *scratch) {
    return (void *)round_up((size_t)(uintptr_t)scratch);
}

/* Element `row` of an array of the type whose rows are `width` elements of all heads. */
static char *at(const crl_attention_cudnn *attention, const void *x, int64_t run, int64_t width) {
    const crl_attention_shape *part = &attention->part;
    const int64_t elements = run * part->b * part->t * width * part->heads * part->d;
    return (char *)(uintptr_t)x + (size_t)elements * crl_dtype_bytes(part->dtype);
}

/* Parts 0 q, 1 k, 2 v of a packed array. */
static void *part_at(const crl_attention_cudnn *attention, const void *x, int64_t run, int part) {
    const size_t width = (size_t)(attention->part.heads * attention->part.d);
    return at(attention, x, run, 3) + (size_t)part * width * crl_dtype_bytes(attention->part.dtype);
}

static float *lse_at(const crl_attention_cudnn *attention, const float *lse, int64_t run) {
    const crl_attention_shape *part = &attention->part;
    return (float *)(uintptr_t)lse + run * part->b * part->heads * part->t;
}

crl_status crl_attention_cudnn_forward(const crl_attention_cudnn *attention, crl_stream *stream,
                                       const void *qkv, void *y, float *lse, void *scratch) {
    (void)stream; /* the handle's */
    float scale = attention->part.scale, masked = -INFINITY;
    const int64_t uids[] = {CRL_ATTENTION_Q,     CRL_ATTENTION_K,   CRL_ATTENTION_V,
                            CRL_ATTENTION_Y,     CRL_ATTENTION_LSE, CRL_ATTENTION_SCALE,
                            CRL_ATTENTION_MASKED};
    const int count = (int)(sizeof uids / sizeof *uids) - (attention->part.causal ? 0 : 1);
    for (int64_t run = 0; run < attention->runs; run++) {
        void *arrays[] = {part_at(attention, qkv, run, 0),
                          part_at(attention, qkv, run, 1),
                          part_at(attention, qkv, run, 2),
                          at(attention, y, run, 1),
                          lse_at(attention, lse, run),
                          &scale,
                          &masked};
        CRL_TRY(crl_cudnn_plan_run(attention->forward, count, uids, arrays, aligned(scratch)));
    }
    return CRL_STATUS_OK;
}

crl_status crl_attention_cudnn_backward(const crl_attention_cudnn *attention, crl_stream *stream,
                                        const void *qkv, const void *y, const float *lse,
                                        const void *dy, void *dqkv, void *scratch) {
    (void)stream;
    float scale = attention->part.scale, one = 1, masked = -INFINITY;
    char *const delta = aligned(scratch);
    const int64_t uids[] = {CRL_ATTENTION_Q,     CRL_ATTENTION_K,   CRL_ATTENTION_V,
                            CRL_ATTENTION_Y,     CRL_ATTENTION_LSE, CRL_ATTENTION_DY,
                            CRL_ATTENTION_DQ,    CRL_ATTENTION_DK,  CRL_ATTENTION_DV,
                            CRL_ATTENTION_DELTA, CRL_ATTENTION_ONE, CRL_ATTENTION_SCALE,
                            CRL_ATTENTION_MASKED};
    const int count = (int)(sizeof uids / sizeof *uids) - (attention->part.causal ? 0 : 1);
    for (int64_t run = 0; run < attention->runs; run++) {
        void *arrays[] = {part_at(attention, qkv, run, 0),
                          part_at(attention, qkv, run, 1),
                          part_at(attention, qkv, run, 2),
                          at(attention, y, run, 1),
                          lse_at(attention, lse, run),
                          at(attention, dy, run, 1),
                          part_at(attention, dqkv, run, 0),
                          part_at(attention, dqkv, run, 1),
                          part_at(attention, dqkv, run, 2),
                          delta,
                          &one,
                          &scale,
                          &masked};
        CRL_TRY(crl_cudnn_plan_run(attention->backward, count, uids, arrays,
                                   delta + delta_bytes(&attention->part)));
    }
    return CRL_STATUS_OK;
}
