/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One product as one call of cuBLASLt. The library's matrices are column by column, so it is asked
 * for y^T = B^T A^T: what is stored as (K,N) row by row is its N x K, and so on.
 *
 *     ours    y (M,N) = A (M,K)  · B (K,N)     row by row
 *     theirs  D (N,M) = A (N,K)  · B (K,M)     column by column: theirs A is our B, theirs B our A
 *
 * Numbers: sums are f32. The algorithm is the first that the library proposes when the call is
 * prepared, and stays. It is asked for with the alignment that every array has, not with that of
 * the arrays given, and with a workspace that is the same everywhere: so neither can choose
 * another. Sums may be cut along K if the parts stay f32 and are added in a step of their own, in
 * order; adding in place, as parts come, and parts rounded to the matrix's type are refused.
 */
#include "engine/kernels/cuda/matmul_internal.h"

#include <cublasLt.h>

#include "engine/base/alloc.h"
#include "engine/device/cuda_library.h"

#define FUNCTION(name) __typeof__(name) *name

/* The library's functions, and a rank's handle. */
typedef struct lt_library {
    FUNCTION(cublasLtCreate);
    FUNCTION(cublasLtDestroy);
    FUNCTION(cublasLtGetStatusString);
    FUNCTION(cublasLtMatmul);
    FUNCTION(cublasLtMatmulAlgoGetHeuristic);
    FUNCTION(cublasLtMatmulDescCreate);
    FUNCTION(cublasLtMatmulDescDestroy);
    FUNCTION(cublasLtMatmulDescSetAttribute);
    FUNCTION(cublasLtMatmulPreferenceCreate);
    FUNCTION(cublasLtMatmulPreferenceDestroy);
    FUNCTION(cublasLtMatmulPreferenceSetAttribute);
    FUNCTION(cublasLtMatrixLayoutCreate);
    FUNCTION(cublasLtMatrixLayoutDestroy);
    cublasLtHandle_t handle;
} lt_library;

struct crl_cuda_lt {
    lt_library library; /* a copy: descriptors may outlive the stream that the handle hangs on */
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, d; /* theirs */
    cublasLtMatmulAlgo_t algorithm;
    bool bias, epilogue, sums;
};

static const char key = 'k'; /* of the stream's context */

static crl_status failed(const lt_library *library, const char *what, cublasStatus_t status) {
    if (status == CUBLAS_STATUS_ALLOC_FAILED)
        return CRL_FAIL(NOMEM, "cuda: %s: out of memory", what);
    return CRL_FAIL(DEVICE, "cuda: %s: %s", what, library->cublasLtGetStatusString(status));
}

#define LT_TRY(library, name, ...)                                                                 \
    do {                                                                                           \
        const cublasStatus_t lt_status_ = (library)->name(__VA_ARGS__);                            \
        if (lt_status_ != CUBLAS_STATUS_SUCCESS)                                                   \
            return failed((library), #name, lt_status_);                                           \
    } while (0)

static void library_destroy(void *pointer) {
    lt_library *library = pointer;
    if (library->handle)
        (void)library->cublasLtDestroy(library->handle);
    crl_free(library);
}

static crl_status library_fill(lt_library *l) {
#define SYMBOL(name)                                                                               \
    { #name, &l->name }
    const crl_cuda_symbol symbols[] = {
        SYMBOL(cublasLtCreate),
        SYMBOL(cublasLtDestroy),
        SYMBOL(cublasLtGetStatusString),
        SYMBOL(cublasLtMatmul),
        SYMBOL(cublasLtMatmulAlgoGetHeuristic),
        SYMBOL(cublasLtMatmulDescCreate),
        SYMBOL(cublasLtMatmulDescDestroy),
        SYMBOL(cublasLtMatmulDescSetAttribute),
        SYMBOL(cublasLtMatmulPreferenceCreate),
        SYMBOL(cublasLtMatmulPreferenceDestroy),
        SYMBOL(cublasLtMatmulPreferenceSetAttribute),
        SYMBOL(cublasLtMatrixLayoutCreate),
        SYMBOL(cublasLtMatrixLayoutDestroy),
    };
#undef SYMBOL
    CRL_TRY(crl_cuda_library_load(&crl_cuda_library_cublaslt, symbols,
                                  (int)(sizeof symbols / sizeof *symbols)));
    LT_TRY(l, cublasLtCreate, &l->handle);
    return CRL_STATUS_OK;
}

static crl_status library_get(const lt_library **out, crl_stream *stream) {
    lt_library *library = crl_cuda_context_get(stream, &key);
    if (!library) {
        CRL_TRY(crl_alloc(&library, 1, sizeof *library));
        const crl_status status = library_fill(library);
        if (status != CRL_STATUS_OK) {
            library_destroy(library);
            return status;
        }
        crl_cuda_context_set(stream, &key, library, library_destroy);
    }
    *out = library;
    return CRL_STATUS_OK;
}

static cudaDataType_t type_of(crl_dtype dtype) {
    return dtype == CRL_DTYPE_BF16 ? CUDA_R_16BF : dtype == CRL_DTYPE_F16 ? CUDA_R_16F : CUDA_R_32F;
}

/* A matrix of ours stored (rows, columns), as theirs. */
static crl_status describe(const lt_library *l, cublasLtMatrixLayout_t *out, crl_dtype dtype,
                           int64_t rows, int64_t columns) {
    LT_TRY(l, cublasLtMatrixLayoutCreate, out, type_of(dtype), (uint64_t)columns, (uint64_t)rows,
           columns);
    return CRL_STATUS_OK;
}

#define SET(lt, attribute, value)                                                                  \
    LT_TRY(&(lt)->library, cublasLtMatmulDescSetAttribute, (lt)->operation,                        \
           CUBLASLT_MATMUL_DESC_##attribute, &(value), sizeof(value))

static cublasLtEpilogue_t epilogue_of(const crl_cuda_lt_config *config) {
    const crl_matmul_config *m = config->matmul;
    if (config->epilogue && m->epilogue == CRL_EPILOGUE_SLOPE)
        return CUBLASLT_EPILOGUE_DGELU;
    if (config->epilogue)
        return m->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    if (config->sums)
        return CUBLASLT_EPILOGUE_BGRADB;
    return m->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/* The operation; pointers only say how they will be aligned. */
static crl_status set_operation(crl_cuda_lt *lt, const crl_cuda_lt_config *config) {
    const crl_matmul_config *m = config->matmul;
    const cublasComputeType_t compute =
        config->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasOperation_t a = m->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t b = m->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t epilogue = epilogue_of(config);
    const void *const aligned = (const void *)(uintptr_t)CRL_CUDA_LT_ALIGN_BYTES;
    LT_TRY(&lt->library, cublasLtMatmulDescCreate, &lt->operation, compute, CUDA_R_32F);
    SET(lt, TRANSA, a);
    SET(lt, TRANSB, b);
    SET(lt, EPILOGUE, epilogue);
    if (m->bias || config->sums)
        SET(lt, BIAS_POINTER, aligned);
    if (config->epilogue) {
        SET(lt, EPILOGUE_AUX_POINTER, aligned);
        SET(lt, EPILOGUE_AUX_LD, m->n);
    }
    return CRL_STATUS_OK;
}

static crl_status set_matrices(crl_cuda_lt *lt, const crl_cuda_lt_config *config) {
    const crl_matmul_config *m = config->matmul;
    const crl_dtype y = m->y_is_f32 ? CRL_DTYPE_F32 : config->dtype;
    CRL_TRY(describe(&lt->library, &lt->a, config->dtype, m->b_transposed ? m->n : m->k,
                     m->b_transposed ? m->k : m->n));
    CRL_TRY(describe(&lt->library, &lt->b, config->dtype, m->a_transposed ? m->k : m->m,
                     m->a_transposed ? m->m : m->k));
    return describe(&lt->library, &lt->d, y, m->m, m->n);
}

static crl_status set_preference(const lt_library *l, cublasLtMatmulPreference_t preference) {
    const uint64_t workspace_bytes = CRL_CUDA_LT_WORKSPACE_BYTES;
    const uint32_t align_bytes = CRL_CUDA_LT_ALIGN_BYTES;
    const uint32_t reductions =
        CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        const void *value;
        size_t bytes;
    } all[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes, sizeof workspace_bytes},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align_bytes, sizeof align_bytes},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align_bytes, sizeof align_bytes},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align_bytes, sizeof align_bytes},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align_bytes, sizeof align_bytes},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        LT_TRY(l, cublasLtMatmulPreferenceSetAttribute, preference, all[i].attribute, all[i].value,
               all[i].bytes);
    return CRL_STATUS_OK;
}

/* *found: is there an algorithm? */
static crl_status choose(crl_cuda_lt *lt, cublasLtMatmulPreference_t preference, bool *found) {
    const lt_library *l = &lt->library;
    cublasLtMatmulHeuristicResult_t proposed[4];
    int count = 0;
    CRL_TRY(set_preference(l, preference));
    const cublasStatus_t status = l->cublasLtMatmulAlgoGetHeuristic(
        l->handle, lt->operation, lt->a, lt->b, lt->d, lt->d, preference,
        (int)(sizeof proposed / sizeof *proposed), proposed, &count);
    *found = false;
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE)
        return CRL_STATUS_OK;
    if (status != CUBLAS_STATUS_SUCCESS)
        return failed(l, "cublasLtMatmulAlgoGetHeuristic", status);
    for (int i = 0; i < count && !*found; i++) {
        *found = proposed[i].state == CUBLAS_STATUS_SUCCESS &&
                 proposed[i].workspaceSize <= CRL_CUDA_LT_WORKSPACE_BYTES;
        lt->algorithm = proposed[i].algo;
    }
    return CRL_STATUS_OK;
}

static crl_status prepare(crl_cuda_lt *lt, const crl_cuda_lt_config *config, bool *found) {
    CRL_TRY(set_operation(lt, config));
    CRL_TRY(set_matrices(lt, config));
    cublasLtMatmulPreference_t preference = NULL;
    LT_TRY(&lt->library, cublasLtMatmulPreferenceCreate, &preference);
    const crl_status status = choose(lt, preference, found);
    (void)lt->library.cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

crl_status crl_cuda_lt_create(crl_cuda_lt **out, const crl_cuda_lt_config *config,
                              crl_stream *stream) {
    crl_cuda_lt *lt = NULL;
    const lt_library *library;
    bool found = false;
    crl_status status;
    CRL_TRY_OUT(library_get(&library, stream));
    CRL_TRY_OUT(crl_alloc(&lt, 1, sizeof *lt));
    lt->library = *library;
    lt->bias = config->matmul->bias;
    lt->epilogue = config->epilogue;
    lt->sums = config->sums;
    CRL_TRY_OUT(prepare(lt, config, &found));
    *out = found ? lt : NULL;
    lt = found ? NULL : lt;
out:
    crl_cuda_lt_destroy(lt);
    return status;
}

void crl_cuda_lt_destroy(crl_cuda_lt *lt) {
    if (!lt)
        return;
    const lt_library *l = &lt->library;
    cublasLtMatrixLayout_t const layouts[] = {lt->a, lt->b, lt->d};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i])
            (void)l->cublasLtMatrixLayoutDestroy(layouts[i]);
    if (lt->operation)
        (void)l->cublasLtMatmulDescDestroy(lt->operation);
    crl_free(lt);
}

/* The pointers in the operation are this call's: hence one thread at a time. */
crl_status crl_cuda_lt_run(const crl_cuda_lt *lt, crl_stream *stream, const crl_matmul_call *call,
                           float *sums, void *workspace) {
    const float alpha = 1.0f, beta = call->accumulate ? 1.0f : 0.0f;
    const void *const bias = lt->sums ? sums : call->bias;
    if (lt->bias || lt->sums)
        SET(lt, BIAS_POINTER, bias);
    if (lt->epilogue)
        SET(lt, EPILOGUE_AUX_POINTER, call->aux);
    LT_TRY(&lt->library, cublasLtMatmul, lt->library.handle, lt->operation, &alpha, call->b, lt->a,
           call->a, lt->b, &beta, call->y, lt->d, call->y, lt->d, &lt->algorithm, workspace,
           CRL_CUDA_LT_WORKSPACE_BYTES, stream->handle);
    return CRL_STATUS_OK;
}
