// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_on_cpu/cublaslt_product.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <string.h>

#include <algorithm>
#include <cmath>

namespace cuda_on_cpu {

namespace {

size_t size_of(cudaDataType_t type) {
    return type == CUDA_R_32F ? 4 : 2;
}

double value(const void *x, cudaDataType_t type, int64_t i) {
    return type == CUDA_R_32F   ? (double)((const float *)x)[i]
           : type == CUDA_R_16F ? (double)__half2float(((const __half *)x)[i])
                                : (double)__bfloat162float(((const __nv_bfloat16 *)x)[i]);
}

void store(void *x, cudaDataType_t type, int64_t i, double value) {
    if (type == CUDA_R_32F)
        ((float *)x)[i] = (float)value;
    else if (type == CUDA_R_16F)
        ((__half *)x)[i] = __float2half_rn((float)value);
    else
        ((__nv_bfloat16 *)x)[i] = __float2bfloat16_rn((float)value);
}

double gelu(double x) {
    return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double gelu_slope(double x) {
    const double c = std::sqrt(2 / M_PI), t = std::tanh(c * (x + 0.044715 * x * x * x));
    return (1 + t) / 2 + x / 2 * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
}

// op(M)(row, column) for all, one row behind the other; or one column, for `by_column`.
std::vector<double> take(const void *x, const cublasLtMatrixLayout &m, bool transposed,
                         bool by_column) {
    const int64_t rows = transposed ? m.columns : m.rows;
    const int64_t columns = transposed ? m.rows : m.columns;
    std::vector<double> all((size_t)(rows * columns));
    for (int64_t j = 0; j < m.columns; j++) {
        for (int64_t i = 0; i < m.rows; i++) {
            const int64_t row = transposed ? j : i, column = transposed ? i : j;
            all[(size_t)(by_column ? column * rows + row : row * columns + column)] =
                value(x, m.type, j * m.ld + i);
        }
    }
    return all;
}

// Element (i, j) of D, from the sum of its products.
void finish(const Product &p, int64_t i, int64_t j, double sum) {
    const cublasLtMatmulDesc &op = p.op;
    const cublasLtMatrixLayout &d = p.d;
    const int64_t at = j * d.ld + i;
    double v = p.alpha * sum;
    if (p.beta != 0)
        v += p.beta * value(p.d_data, d.type, at);
    if (has_bias(op.epilogue))
        v += value(op.bias, d.type, i);
    if (op.epilogue == CUBLASLT_EPILOGUE_DGELU) {
        v *= gelu_slope(value(op.aux, d.type, j * op.aux_ld + i));
    } else if (has_aux(op.epilogue)) {
        store(op.aux, d.type, j * op.aux_ld + i, v);
        v = gelu(v);
    }
    store(p.d_data, d.type, at, v);
}

size_t bytes_of(const cublasLtMatrixLayout &m) {
    return (size_t)((m.columns - 1) * m.ld + m.rows) * size_of(m.type);
}

} // namespace

void Product::run() const {
    const std::vector<double> left = take(a_data, a, op.a_transposed, false);
    const std::vector<double> right = take(b_data, b, op.b_transposed, true);
    const int64_t k = op.a_transposed ? a.rows : a.columns;
    for (int64_t j = 0; j < d.columns; j++) {
        const double *const y = &right[(size_t)(j * k)];
        double total = 0;
        for (int64_t l = 0; l < k; l++)
            total += y[l];
        if (op.epilogue == CUBLASLT_EPILOGUE_BGRADB)
            store(op.bias, d.type, j, total);
        for (int64_t i = 0; i < d.rows; i++) {
            const double *const x = &left[(size_t)(i * k)];
            double sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += x[l] * y[l];
            finish(*this, i, j, sum);
        }
    }
    const size_t spoiled = std::min<size_t>(workspace_bytes, 4096);
    memset(workspace, 0xff, spoiled);
    memset((char *)workspace + workspace_bytes - spoiled, 0xff, spoiled);
}

std::vector<Range> Product::reads() const {
    std::vector<Range> all = {{a_data, bytes_of(a)}, {b_data, bytes_of(b)}};
    if (beta != 0)
        all.push_back({d_data, bytes_of(d)});
    if (has_bias(op.epilogue))
        all.push_back({op.bias, (size_t)d.rows * size_of(d.type)});
    if (op.epilogue == CUBLASLT_EPILOGUE_DGELU)
        all.push_back({op.aux, bytes_of({d.type, d.rows, d.columns, op.aux_ld})});
    return all;
}

// Of the workspace the two ends: its middle is megabytes that nobody shares alone.
std::vector<Range> Product::writes() const {
    std::vector<Range> all = {
        {d_data, bytes_of(d)}, {workspace, 64}, {(char *)workspace + workspace_bytes - 64, 64}};
    if (op.epilogue == CUBLASLT_EPILOGUE_BGRADB)
        all.push_back({op.bias, (size_t)d.columns * size_of(d.type)});
    else if (has_aux(op.epilogue) && op.epilogue != CUBLASLT_EPILOGUE_DGELU)
        all.push_back({op.aux, bytes_of({d.type, d.rows, d.columns, op.aux_ld})});
    return all;
}

} // namespace cuda_on_cpu
