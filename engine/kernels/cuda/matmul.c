/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products on CUDA: cuBLASLt's, with what it can do in the same pass; own kernels do the
 * rest. What does what is settled when the product is created, by configuration and library alone,
 * never by `accumulate` or by addresses:
 *
 *     product, bias                       cuBLASLt, else crl_cuda_own_product
 *     gelu in its tanh form, its slope    cuBLASLt if it will (N a multiple of 8), else eltwise
 *     relu, gelu in its erf form          eltwise: the library keeps a relu's signs, not its input
 *     row sums                            cuBLASLt if it will, into scratch; else an own kernel
 *
 *     scratch  | to 256 | workspace 32 MiB | sums 4M | partial sums of the own kernel |
 *
 * Scratch is the same on every device, so that it can be planned without one. Refuses arrays that
 * are not aligned to 16 bytes: another algorithm would give other bits.
 */
#include "engine/kernels/cuda/matmul_internal.h"

#include "engine/base/alloc.h"
#include "engine/kernels/cuda/tables_internal.h"

struct crl_matmul {
    crl_matmul_config config;
    const crl_kernels *kernels; /* of the type */
    crl_cuda_lt *lt;            /* NULL: own product */
    bool ready;                 /* created on a stream */
    bool lt_epilogue, lt_sums;  /* done by the library */
};

enum { ALIGN_BYTES = 256 };

static size_t round_up(size_t bytes) {
    return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

static crl_status check_config(const crl_matmul_config *config, crl_dtype dtype) {
    const long long m = config->m, n = config->n, k = config->k;
    if (m < 1 || n < 1 || k < 1 || m > INT32_MAX || n > INT32_MAX || k > INT32_MAX)
        return CRL_FAIL(INVALID, "matmul: size is %lld x %lld x %lld, expected 1 to %d each", m, n,
                        k, INT32_MAX);
    if (config->y_is_f32 && dtype != CRL_DTYPE_F32 && config->epilogue != CRL_EPILOGUE_NONE)
        return CRL_FAIL(UNSUPPORTED, "matmul: %lld x %lld x %lld has an epilogue and y in f32", m,
                        n, k);
    size_t bytes;
    CRL_TRY(crl_size_mul(&bytes, (size_t)m, (size_t)k * sizeof(float), "matmul"));
    CRL_TRY(crl_size_mul(&bytes, (size_t)n, (size_t)k * sizeof(float), "matmul"));
    return crl_size_mul(&bytes, (size_t)m, (size_t)n * sizeof(float), "matmul");
}

/* May the library be asked for the epilogue? GELU's input needs rows of a multiple of 8. */
static bool may_fuse(const crl_matmul_config *config) {
    return config->epilogue != CRL_EPILOGUE_NONE &&
           config->activation == CRL_ACTIVATION_GELU_TANH && config->n % 8 == 0 &&
           !(config->epilogue == CRL_EPILOGUE_SLOPE && config->bias);
}

/* And for the row sums? It writes them in y's type. */
static bool may_sum(const crl_matmul_config *config, crl_dtype dtype) {
    return config->row_sums && config->epilogue == CRL_EPILOGUE_NONE && !config->bias &&
           (config->y_is_f32 || dtype == CRL_DTYPE_F32);
}

/* The most the library will do. */
static crl_status choose(crl_matmul *matmul, crl_stream *stream) {
    const crl_dtype dtype = matmul->kernels->dtype;
    crl_cuda_lt_config config = {.matmul = &matmul->config,
                                 .dtype = dtype,
                                 .tf32 = stream->tf32 && dtype == CRL_DTYPE_F32,
                                 .epilogue = may_fuse(&matmul->config),
                                 .sums = may_sum(&matmul->config, dtype)};
    const bool more = config.epilogue || config.sums;
    matmul->ready = true;
    if (matmul->config.bias && matmul->config.y_is_f32 && dtype != CRL_DTYPE_F32)
        return CRL_STATUS_OK; /* the library takes a bias in y's type only */
    CRL_TRY(crl_cuda_lt_create(&matmul->lt, &config, stream));
    if (matmul->lt) {
        matmul->lt_epilogue = config.epilogue;
        matmul->lt_sums = config.sums;
    } else if (more) {
        config.epilogue = config.sums = false;
        CRL_TRY(crl_cuda_lt_create(&matmul->lt, &config, stream));
    }
    return CRL_STATUS_OK;
}

static void matmul_destroy(crl_matmul *matmul) {
    if (!matmul)
        return;
    crl_cuda_lt_destroy(matmul->lt);
    crl_free(matmul);
}

static crl_status create(crl_matmul **out, const crl_matmul_config *config, crl_stream *stream,
                         const crl_kernels *kernels) {
    crl_matmul *matmul = NULL;
    crl_status status;
    CRL_TRY_OUT(check_config(config, kernels->dtype));
    CRL_TRY_OUT(crl_alloc(&matmul, 1, sizeof *matmul));
    matmul->config = *config;
    matmul->kernels = kernels;
    if (stream)
        CRL_TRY_OUT(choose(matmul, stream));
    *out = matmul;
    matmul = NULL;
out:
    matmul_destroy(matmul);
    return status;
}

static size_t sums_bytes(const crl_matmul_config *config) {
    return config->row_sums ? round_up((size_t)config->m * sizeof(float)) : 0;
}

static size_t matmul_scratch_bytes(const crl_matmul *matmul) {
    const crl_matmul_config *config = &matmul->config;
    const size_t partial_bytes =
        config->row_sums && config->a_transposed
            ? matmul->kernels->reduce->column_sum_scratch_bytes(config->k, config->m)
            : 0;
    return ALIGN_BYTES + CRL_CUDA_LT_WORKSPACE_BYTES + sums_bytes(config) + partial_bytes;
}

static crl_status check_call(const crl_matmul *matmul, const crl_matmul_call *call) {
    const struct {
        const char *name;
        const void *address;
    } arrays[] = {
        {"a", call->a}, {"b", call->b}, {"y", call->y}, {"bias", call->bias}, {"aux", call->aux}};
    CRL_ASSERT(matmul->ready);
    CRL_ASSERT(!call->accumulate || matmul->config.may_accumulate);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        if ((uintptr_t)arrays[i].address % CRL_CUDA_LT_ALIGN_BYTES != 0)
            return CRL_FAIL(INVALID, "matmul: %s is at an address that is no multiple of %d",
                            arrays[i].name, CRL_CUDA_LT_ALIGN_BYTES);
    return CRL_STATUS_OK;
}

static crl_status run_sums(const crl_matmul *matmul, crl_stream *stream,
                           const crl_matmul_call *call, float *found, void *partial) {
    const crl_matmul_config *config = &matmul->config;
    const crl_kernels *kernels = matmul->kernels;
    if (matmul->lt_sums)
        return crl_kernels_cuda.eltwise->copy(stream, found, call->sums, config->m,
                                              call->accumulate);
    if (config->a_transposed)
        return kernels->reduce->column_sum(stream, call->a, call->sums, config->k, config->m,
                                           call->accumulate, partial);
    return crl_cuda_own_row_sums(stream, kernels->dtype, call->a, config->m, config->k, call->sums,
                                 call->accumulate);
}

static crl_status run_epilogue(const crl_matmul *matmul, crl_stream *stream,
                               const crl_matmul_call *call) {
    const crl_matmul_config *config = &matmul->config;
    const crl_eltwise_ops *ops = matmul->kernels->eltwise;
    const int64_t n = config->m * config->n;
    if (config->epilogue == CRL_EPILOGUE_ACTIVATION)
        return ops->activation(stream, config->activation, call->aux, call->y, n);
    return ops->activation_backward(stream, config->activation, call->aux, call->y, call->y, n,
                                    false);
}

static crl_status matmul_run(const crl_matmul *matmul, crl_stream *stream,
                             const crl_matmul_call *call) {
    const crl_matmul_config *config = &matmul->config;
    CRL_TRY(check_call(matmul, call));
    char *const workspace = (char *)round_up((uintptr_t)call->scratch);
    char *const found = workspace + CRL_CUDA_LT_WORKSPACE_BYTES;
    const bool rest = config->epilogue != CRL_EPILOGUE_NONE && !matmul->lt_epilogue;
    crl_matmul_call product = *call;
    if (rest && config->epilogue == CRL_EPILOGUE_ACTIVATION)
        product.y = call->aux;
    if (matmul->lt)
        CRL_TRY(crl_cuda_lt_run(matmul->lt, stream, &product, (float *)found, workspace));
    else
        CRL_TRY(crl_cuda_own_product(stream, config, matmul->kernels->dtype, &product));
    if (rest)
        CRL_TRY(run_epilogue(matmul, stream, call));
    if (config->row_sums)
        CRL_TRY(run_sums(matmul, stream, call, (float *)found, found + sums_bytes(config)));
    return CRL_STATUS_OK;
}

#define TABLE(type, kernels)                                                                       \
    static crl_status create_##type(crl_matmul **out, const crl_matmul_config *config,             \
                                    crl_stream *stream) {                                          \
        return create(out, config, stream, &(kernels));                                            \
    }                                                                                              \
    const crl_matmul_ops crl_matmul_cuda_##type = {                                                \
        .create = create_##type,                                                                   \
        .destroy = matmul_destroy,                                                                 \
        .scratch_bytes = matmul_scratch_bytes,                                                     \
        .run = matmul_run,                                                                         \
    };

TABLE(f32, crl_kernels_cuda)
TABLE(bf16, crl_kernels_cuda_bf16)
TABLE(f16, crl_kernels_cuda_f16)
