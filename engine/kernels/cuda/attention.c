/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention on CUDA: cuDNN's plans where it has them for the device and the sizes, else own
 * kernels. The choice is made once, when the operation is created, from sizes and the device alone;
 * sizes of scratch are the same either way, so they can be asked for without a device. A gradient
 * that is added to what is there is the own kernels' in any case: they round it once.
 * Refuses sizes below 1 and those that a grid cannot hold.
 */
#include "engine/kernels/cuda/attention_internal.h"
#include "engine/kernels/cuda/tables_internal.h"

#include <limits.h>
#include <math.h>

#include "engine/base/alloc.h"

struct crl_attention {
    crl_attention_shape shape;
    crl_attention_cudnn *cudnn; /* NULL: own kernels */
};

static crl_status check_config(const crl_attention_config *config) {
    if (config->b < 1 || config->t < 1 || config->heads < 1 || config->head_channels < 1)
        return CRL_FAIL(INVALID,
                        "attention: batch %lld, sequence %lld, heads %lld, head channels %lld, "
                        "expected 1 or more each",
                        (long long)config->b, (long long)config->t, (long long)config->heads,
                        (long long)config->head_channels);
    size_t elements = 3;
    CRL_TRY(crl_size_mul(&elements, elements, (size_t)config->heads, "attention"));
    CRL_TRY(crl_size_mul(&elements, elements, (size_t)config->head_channels, "attention"));
    const bool wide = elements > INT_MAX;
    CRL_TRY(crl_size_mul(&elements, elements, (size_t)config->t, "attention"));
    CRL_TRY(crl_size_mul(&elements, elements, (size_t)config->b * sizeof(float), "attention"));
    if (wide || config->t > INT_MAX || config->b > INT_MAX / config->heads ||
        config->b * config->heads > INT_MAX / config->t)
        return CRL_FAIL(UNSUPPORTED,
                        "attention: batch %lld, sequence %lld, heads %lld, head channels %lld, "
                        "expected at most 2^31 rows of all heads",
                        (long long)config->b, (long long)config->t, (long long)config->heads,
                        (long long)config->head_channels);
    return CRL_STATUS_OK;
}

static void attention_destroy(crl_attention *attention) {
    if (!attention)
        return;
    crl_attention_cudnn_destroy(attention->cudnn);
    crl_free(attention);
}

static crl_status create(crl_attention **out, const crl_attention_config *config,
                         crl_stream *stream, crl_dtype dtype) {
    crl_attention *attention = NULL;
    crl_status status;
    CRL_TRY_OUT(check_config(config));
    CRL_TRY_OUT(crl_alloc(&attention, 1, sizeof *attention));
    const double scale =
        config->scale != 0 ? config->scale : 1.0 / sqrt((double)config->head_channels);
    attention->shape =
        (crl_attention_shape){config->b,    config->t,      config->heads, config->head_channels,
                              (float)scale, config->causal, dtype};
    if (stream)
        CRL_TRY_OUT(crl_attention_cudnn_create(&attention->cudnn, &attention->shape, stream));
    *out = attention;
    attention = NULL;
out:
    attention_destroy(attention);
    return status;
}

static crl_status create_f32(crl_attention **out, const crl_attention_config *config,
                             crl_stream *stream) {
    return create(out, config, stream, CRL_DTYPE_F32);
}

static crl_status create_bf16(crl_attention **out, const crl_attention_config *config,
                              crl_stream *stream) {
    return create(out, config, stream, CRL_DTYPE_BF16);
}

static crl_status create_f16(crl_attention **out, const crl_attention_config *config,
                             crl_stream *stream) {
    return create(out, config, stream, CRL_DTYPE_F16);
}

static size_t forward_scratch_bytes(const crl_attention *attention) {
    return crl_attention_cudnn_bytes(&attention->shape, false);
}

static size_t backward_scratch_bytes(const crl_attention *attention) {
    const size_t own = crl_attention_flash_backward_bytes(&attention->shape);
    const size_t cudnn = crl_attention_cudnn_bytes(&attention->shape, true);
    return own > cudnn ? own : cudnn;
}

static crl_status attention_forward(const crl_attention *attention, crl_stream *stream,
                                    const void *qkv, void *y, float *lse, void *scratch) {
    if (attention->cudnn)
        return crl_attention_cudnn_forward(attention->cudnn, stream, qkv, y, lse, scratch);
    return crl_attention_flash_forward(&attention->shape, stream, qkv, y, lse);
}

static crl_status attention_backward(const crl_attention *attention, crl_stream *stream,
                                     const void *qkv, const void *y, const float *lse,
                                     const void *dy, void *dqkv, bool accumulate, void *scratch) {
    if (attention->cudnn && !accumulate)
        return crl_attention_cudnn_backward(attention->cudnn, stream, qkv, y, lse, dy, dqkv,
                                            scratch);
    return crl_attention_flash_backward(&attention->shape, stream, qkv, y, lse, dy, dqkv,
                                        accumulate, scratch);
}

#define TABLE(type)                                                                                \
    {                                                                                              \
        .create = create_##type, .destroy = attention_destroy,                                     \
        .forward_scratch_bytes = forward_scratch_bytes,                                            \
        .backward_scratch_bytes = backward_scratch_bytes, .forward = attention_forward,            \
        .backward = attention_backward,                                                            \
    }

const crl_attention_ops crl_attention_cuda_f32 = TABLE(f32);
const crl_attention_ops crl_attention_cuda_bf16 = TABLE(bf16);
const crl_attention_ops crl_attention_cuda_f16 = TABLE(f16);

const char *crl_attention_cuda_path(const crl_attention *attention) {
    return attention->cudnn ? "cuDNN" : "own";
}
