// SPDX-License-Identifier: Apache-2.0
// What the emulated cuBLASLt describes a product by, and does when it runs.
#pragma once

#include <cublasLt.h>

#include <tuple>
#include <vector>

#include "tests/cuda_on_cpu/machine.h"

struct cublasLtContext {
    int device;
};

struct cublasLtMatmulDesc {
    cublasComputeType_t compute;
    int a_transposed, b_transposed;
    int epilogue;
    void *bias, *aux;
    int64_t aux_ld;
};

struct cublasLtMatrixLayout {
    cudaDataType_t type;
    int64_t rows, columns, ld;
    bool operator==(const cublasLtMatrixLayout &o) const {
        return std::tie(type, rows, columns, ld) == std::tie(o.type, o.rows, o.columns, o.ld);
    }
};

struct cublasLtMatmulPreference {
    uint64_t workspace_bytes;
    uint32_t reductions;
    uint32_t align_bytes[4]; // A, B, C, D
};

namespace cuda_on_cpu {

inline bool has_bias(int epilogue) {
    return epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

inline bool has_aux(int epilogue) {
    return (epilogue & 128) != 0;
}

// One product with everything it needs, by value: descriptors may change before it runs.
struct Product {
    cublasLtMatmulDesc op;
    cublasLtMatrixLayout a, b, d;
    const void *a_data, *b_data;
    void *d_data, *workspace;
    size_t workspace_bytes;
    float alpha, beta;

    // In double; every result is rounded once. Spoils the ends of the workspace.
    void run() const;
    std::vector<Range> reads() const, writes() const;
};

} // namespace cuda_on_cpu
