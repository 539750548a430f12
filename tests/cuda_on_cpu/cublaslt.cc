// SPDX-License-Identifier: Apache-2.0
// cuBLASLt on the CPU: the calls that engine/kernels/cuda makes, computed in double and rounded to
// the matrix's type, queued like kernels. It refuses what the documentation says the library
// refuses, and is stricter where the library trusts its caller: an algorithm is for the operation,
// the layouts and the alignment that it was asked for, and the workspace is spoiled by every
// product.
#include "tests/cuda_on_cpu/cublaslt_product.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <utility>

#include "tests/cuda_on_cpu/cublaslt.h"
#include "tests/cuda_on_cpu/cuda_on_cpu.h"

namespace cuda_on_cpu {

namespace {

std::atomic<int> objects, refusals;
std::mutex lock;
std::string products;

// What an algorithm was proposed for; the algorithm's eight words.
struct Proposal {
    uint64_t mark, epilogue, shape, types;
    uint64_t align_bytes, workspace_bytes, bias_align_bytes, aux_align_bytes;
};
constexpr uint64_t kMark = 0x6c745f6f6e637075;
static_assert(sizeof(Proposal) == sizeof(cublasLtMatmulAlgo_t), "fills an algorithm");

uint64_t align_of(const void *pointer) {
    const uint64_t address = (uint64_t)(uintptr_t)pointer;
    return address == 0 ? 0 : std::min<uint64_t>(address & (~address + 1), 256);
}

uint64_t mix(uint64_t hash, int64_t next) {
    return (hash ^ (uint64_t)next) * 0x100000001b3;
}

// Sizes and pointers that no library could take.
bool is_valid(const cublasLtMatmulDesc &op, const cublasLtMatrixLayout &a,
              const cublasLtMatrixLayout &b, const cublasLtMatrixLayout &c,
              const cublasLtMatrixLayout &d) {
    for (const cublasLtMatrixLayout *m : {&a, &b, &d}) {
        if (m->rows < 1 || m->columns < 1 || m->ld < m->rows)
            return false;
    }
    const int64_t rows = op.a_transposed ? a.columns : a.rows;
    const int64_t depth = op.a_transposed ? a.rows : a.columns;
    const int64_t columns = op.b_transposed ? b.rows : b.columns;
    if (rows != d.rows || columns != d.columns || depth != (op.b_transposed ? b.columns : b.rows) ||
        !(c == d))
        return false;
    if ((has_bias(op.epilogue) || op.epilogue == CUBLASLT_EPILOGUE_BGRADB) && !op.bias)
        return false;
    return !has_aux(op.epilogue) || (op.aux && op.aux_ld >= d.rows && op.aux_ld % 8 == 0);
}

// Types that the library has kernels for.
bool is_supported(const cublasLtMatmulDesc &op, const cublasLtMatrixLayout &a,
                  const cublasLtMatrixLayout &b, const cublasLtMatrixLayout &d) {
    if (a.type != b.type || (d.type != a.type && d.type != CUDA_R_32F))
        return false;
    if (op.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a.type != CUDA_R_32F)
        return false;
    return !has_aux(op.epilogue) || d.type == a.type;
}

Proposal proposal_of(const cublasLtMatmulDesc &op, const cublasLtMatrixLayout &a,
                     const cublasLtMatrixLayout &b, const cublasLtMatrixLayout &d) {
    uint64_t shape = 0xcbf29ce484222325;
    for (int64_t number : {(int64_t)op.a_transposed, (int64_t)op.b_transposed, a.rows, a.columns,
                           a.ld, b.rows, b.columns, b.ld, d.rows, d.columns, d.ld, op.aux_ld})
        shape = mix(shape, number);
    const uint64_t types = (uint64_t)a.type << 32 | (uint64_t)d.type << 16 | (uint64_t)op.compute;
    return {kMark, (uint64_t)op.epilogue, shape, types, 0, 0, align_of(op.bias), align_of(op.aux)};
}

const char *word_of(const cublasLtMatmulDesc &op) {
    switch (op.epilogue) {
    case CUBLASLT_EPILOGUE_BIAS:
        return "bias";
    case CUBLASLT_EPILOGUE_GELU_AUX:
        return "gelu";
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
        return "gelu-bias";
    case CUBLASLT_EPILOGUE_DGELU:
        return "dgelu";
    case CUBLASLT_EPILOGUE_BGRADB:
        return "sums";
    default:
        return "product";
    }
}

void note(const cublasLtMatmulDesc &op) {
    const std::lock_guard<std::mutex> hold(lock);
    products += products.empty() ? "" : " ";
    products += word_of(op);
    products += op.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? "-tf32" : "";
    if (products.size() > 1 << 12) // nobody listens
        products.clear();
}

template <typename T> cublasStatus_t make(T **out, const T &value) {
    if (fails("cublasLt"))
        return CUBLAS_STATUS_ALLOC_FAILED;
    *out = new T(value);
    objects++;
    return CUBLAS_STATUS_SUCCESS;
}

template <typename T> cublasStatus_t unmake(T *object) {
    objects -= object != nullptr;
    delete object;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t refuse(const char *what) {
    report(std::string("cublasLtMatmul: ") + what);
    return CUBLAS_STATUS_INVALID_VALUE;
}

} // namespace

int cublaslt_live() {
    return objects;
}

void cublaslt_refuse(int count) {
    refusals = count;
}

std::string cublaslt_take_products() {
    const std::lock_guard<std::mutex> hold(lock);
    return std::exchange(products, "");
}

} // namespace cuda_on_cpu

using namespace cuda_on_cpu;

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out) {
    return make(out, {0});
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    return unmake(handle);
}

const char *cublasLtGetStatusString(cublasStatus_t status) {
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "the operation completed successfully";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "the operation is not supported";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "the execution failed";
    default:
        return "an invalid parameter was passed";
    }
}

size_t cublasLtGetVersion(void) {
    return 130100;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    if (scale != CUDA_R_32F)
        return CUBLAS_STATUS_INVALID_VALUE;
    return make(out, {compute, 0, 0, CUBLASLT_EPILOGUE_DEFAULT, nullptr, nullptr, 0});
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
    return unmake(operation);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes) {
    const auto set = [&](auto *field) {
        if (!value || bytes != sizeof *field)
            return CUBLAS_STATUS_INVALID_VALUE;
        memcpy(field, value, bytes);
        return CUBLAS_STATUS_SUCCESS;
    };
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(&operation->a_transposed);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(&operation->b_transposed);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(&operation->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(&operation->bias);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return set(&operation->aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return set(&operation->aux_ld);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t ld) {
    return make(out, {type, (int64_t)rows, (int64_t)columns, ld});
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    return unmake(layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
    return make(out, {0, 7, {256, 256, 256, 256}});
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    return unmake(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes) {
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
        if (bytes != sizeof preference->workspace_bytes)
            return CUBLAS_STATUS_INVALID_VALUE;
        memcpy(&preference->workspace_bytes, value, bytes);
        return CUBLAS_STATUS_SUCCESS;
    }
    if (bytes != sizeof preference->reductions)
        return CUBLAS_STATUS_INVALID_VALUE;
    uint32_t *const field =
        attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK
            ? &preference->reductions
            : &preference->align_bytes[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES];
    memcpy(field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int *count) {
    *count = 0;
    if (!handle || fails("cublasLtMatmulAlgoGetHeuristic"))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (requested < 1 || !is_valid(*operation, *a, *b, *c, *d))
        return CUBLAS_STATUS_INVALID_VALUE;
    const bool is_refused = refusals > 0 && refusals-- > 0;
    if (is_refused || !is_supported(*operation, *a, *b, *d))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (preference->reductions & ~(uint32_t)CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
        report("cublasLtMatmulAlgoGetHeuristic: sums in no fixed order, or in the output's type");
    Proposal proposal = proposal_of(*operation, *a, *b, *d);
    proposal.workspace_bytes = preference->workspace_bytes;
    proposal.align_bytes = *std::min_element(preference->align_bytes, preference->align_bytes + 4);
    results[0] = {};
    memcpy(&results[0].algo, &proposal, sizeof proposal);
    results[0].workspaceSize = (size_t)preference->workspace_bytes;
    results[0].state = CUBLAS_STATUS_SUCCESS;
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
    if (!handle || fails("cublasLtMatmul"))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    const cublasLtMatmulDesc &op = *operation;
    if (c != d || !is_valid(op, *a_layout, *b_layout, *c_layout, *d_layout))
        return refuse("matrices do not fit each other");
    Proposal asked;
    memcpy(&asked, algorithm, sizeof asked);
    const Proposal now = proposal_of(op, *a_layout, *b_layout, *d_layout);
    if (std::tie(asked.mark, asked.epilogue, asked.shape, asked.types) !=
        std::tie(now.mark, now.epilogue, now.shape, now.types))
        return refuse("the algorithm is for another product");
    for (const void *pointer : {a, b, (const void *)d}) {
        if (align_of(pointer) < asked.align_bytes)
            return refuse("a matrix is less aligned than was said");
    }
    if (now.bias_align_bytes < asked.bias_align_bytes ||
        now.aux_align_bytes < asked.aux_align_bytes)
        return refuse("bias or auxiliary matrix are less aligned than was said");
    if (!workspace || workspace_bytes < asked.workspace_bytes || align_of(workspace) < 16)
        return refuse("the workspace is too small, or not aligned");
    Product product = {op,
                       *a_layout,
                       *b_layout,
                       *d_layout,
                       a,
                       b,
                       d,
                       workspace,
                       workspace_bytes,
                       *(const float *)alpha,
                       *(const float *)beta};
    const cudaError_t error = enqueue(stream, "cublasLtMatmul", product.reads(), product.writes(),
                                      [product] { product.run(); });
    if (error != cudaSuccess)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    note(op);
    return CUBLAS_STATUS_SUCCESS;
}
