// SPDX-License-Identifier: Apache-2.0
// Graphs of the emulated cuDNN, operation by operation. Refuses what cuDNN's flash attention does
// not do: other types, other head sizes, more or fewer products.
#include "tests/cuda_on_cpu/cudnn_graph.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace cuda_on_cpu {

namespace {

using Values = std::vector<double>; // of a tensor, in the order of its dimensions

size_t bytes_of(cudnnDataType_t type) {
    return type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_INT32 ? 4
           : type == CUDNN_DATA_BOOLEAN                         ? 1
                                                                : 2;
}

double rounded(cudnnDataType_t type, double x) {
    switch (type) {
    case CUDNN_DATA_BFLOAT16:
        return __bfloat162float(__float2bfloat16_rn((float)x));
    case CUDNN_DATA_HALF:
        return __half2float(__float2half_rn((float)x));
    case CUDNN_DATA_FLOAT:
        return (float)x;
    default:
        return x;
    }
}

template <typename F> void each_place(const GraphTensor &t, F f) {
    size_t i = 0;
    for (int64_t a = 0; a < t.dims[0]; a++)
        for (int64_t b = 0; b < t.dims[1]; b++)
            for (int64_t c = 0; c < t.dims[2]; c++)
                for (int64_t d = 0; d < t.dims[3]; d++)
                    f(i++, std::array<int64_t, 4>{a, b, c, d});
}

size_t offset_of(const GraphTensor &t, const std::array<int64_t, 4> &at) {
    int64_t offset = 0;
    for (size_t k = 0; k < 4; k++)
        offset += at[k] * t.strides[k];
    return (size_t)offset;
}

Values load(const GraphTensor &t, const void *from) {
    Values x((size_t)t.count());
    each_place(t, [&](size_t i, const std::array<int64_t, 4> &at) {
        const size_t k = offset_of(t, at);
        if (t.type == CUDNN_DATA_BFLOAT16)
            x[i] = __bfloat162float(((const __nv_bfloat16 *)from)[k]);
        else if (t.type == CUDNN_DATA_HALF)
            x[i] = __half2float(((const __half *)from)[k]);
        else
            x[i] = ((const float *)from)[k];
    });
    return x;
}

void store(const GraphTensor &t, const Values &x, void *to) {
    each_place(t, [&](size_t i, const std::array<int64_t, 4> &at) {
        const size_t k = offset_of(t, at);
        if (t.type == CUDNN_DATA_BFLOAT16)
            ((__nv_bfloat16 *)to)[k] = __float2bfloat16_rn((float)x[i]);
        else if (t.type == CUDNN_DATA_HALF)
            ((__half *)to)[k] = __float2half_rn((float)x[i]);
        else
            ((float *)to)[k] = (float)x[i];
    });
}

// Where `at` of a larger tensor reads one that is 1 in some dimensions.
size_t broadcast(const GraphTensor &t, const std::array<int64_t, 4> &at) {
    int64_t i = 0;
    for (size_t k = 0; k < 4; k++)
        i = i * t.dims[k] + (t.dims[k] == 1 ? 0 : at[k]);
    return (size_t)i;
}

double map(int mode, double x, double b, double t) {
    switch (mode) {
    case CUDNN_POINTWISE_ADD:
        return x + b;
    case CUDNN_POINTWISE_MUL:
        return x * b;
    case CUDNN_POINTWISE_DIV:
        return x / b;
    case CUDNN_POINTWISE_SUB:
        return x - b;
    case CUDNN_POINTWISE_EXP:
        return std::exp(x);
    case CUDNN_POINTWISE_LOG:
        return std::log(x);
    case CUDNN_POINTWISE_CMP_GE:
        return x >= b;
    default: // CUDNN_POINTWISE_BINARY_SELECT
        return t != 0 ? x : b;
    }
}

// The run of one graph.
struct Run {
    const Graph &graph;
    std::map<int64_t, Values> values;

    const GraphTensor &tensor(int64_t uid) const { return graph.tensors.at(uid); }

    Values pointwise(const GraphOperation &op) {
        const GraphTensor &y = tensor(op.output);
        Values out((size_t)y.count());
        each_place(y, [&](size_t i, const std::array<int64_t, 4> &at) {
            double in[3] = {0, 0, 0};
            for (size_t k = 0; k < 3; k++) {
                if (op.inputs[k] != 0)
                    in[k] = values.at(op.inputs[k])[broadcast(tensor(op.inputs[k]), at)];
            }
            out[i] = op.mode == CUDNN_POINTWISE_GEN_INDEX ? (double)at[(size_t)op.axis]
                                                          : map(op.mode, in[0], in[1], in[2]);
        });
        return out;
    }

    Values matmul(const GraphOperation &op) {
        const GraphTensor &a = tensor(op.inputs[0]), &b = tensor(op.inputs[1]);
        const Values &x = values.at(a.uid), &w = values.at(b.uid);
        const GraphTensor &y = tensor(op.output);
        const size_t m = (size_t)y.dims[2], n = (size_t)y.dims[3], depth = (size_t)a.dims[3];
        Values out((size_t)y.count());
        for (size_t batch = 0; batch < out.size() / (m * n); batch++)
            for (size_t i = 0; i < m; i++)
                for (size_t k = 0; k < depth; k++)
                    for (size_t j = 0; j < n; j++)
                        out[(batch * m + i) * n + j] +=
                            x[(batch * m + i) * depth + k] * w[(batch * depth + k) * n + j];
        return out;
    }

    Values reduce(const GraphOperation &op) {
        const GraphTensor &x = tensor(op.inputs[0]), &y = tensor(op.output);
        const bool max = op.mode == CUDNN_REDUCE_TENSOR_MAX;
        Values out((size_t)y.count(), max ? -INFINITY : 0);
        const Values &in = values.at(x.uid);
        each_place(x, [&](size_t i, const std::array<int64_t, 4> &at) {
            double &to = out[broadcast(y, at)];
            to = max ? std::max(to, in[i]) : to + in[i];
        });
        return out;
    }

    // Only exchanges the last two dimensions: element (c,d) of y is (d,c) of x.
    Values reshape(const GraphOperation &op) {
        const GraphTensor &x = tensor(op.inputs[0]), &y = tensor(op.output);
        Values out((size_t)y.count());
        const Values &in = values.at(x.uid);
        each_place(y, [&](size_t i, const std::array<int64_t, 4> &at) {
            out[i] = in[broadcast(x, {at[0], at[1], at[3], at[2]})];
        });
        return out;
    }

    Values result(const GraphOperation &op) {
        switch (op.kind) {
        case GraphKind::kPointwise:
            return pointwise(op);
        case GraphKind::kMatmul:
            return matmul(op);
        case GraphKind::kReduce:
            return reduce(op);
        default:
            return reshape(op);
        }
    }
};

bool is_head(const GraphTensor &t, int64_t d) {
    return (t.type == CUDNN_DATA_BFLOAT16 || t.type == CUDNN_DATA_HALF) && d % 8 == 0 && d <= 256;
}

bool fits(const Graph &graph, const GraphOperation &op) {
    const GraphTensor &a = graph.tensors.at(op.inputs[0]), &y = graph.tensors.at(op.output);
    if (op.kind == GraphKind::kReshape)
        return a.dims[2] == y.dims[3] && a.dims[3] == y.dims[2];
    if (op.kind != GraphKind::kMatmul)
        return true;
    const GraphTensor &b = graph.tensors.at(op.inputs[1]);
    return a.dims[0] == y.dims[0] && a.dims[1] == y.dims[1] && b.dims[0] == y.dims[0] &&
           b.dims[1] == y.dims[1] && a.dims[2] == y.dims[2] && b.dims[3] == y.dims[3] &&
           a.dims[3] == b.dims[2];
}

} // namespace

size_t GraphTensor::span_bytes() const {
    const std::array<int64_t, 4> last = {dims[0] - 1, dims[1] - 1, dims[2] - 1, dims[3] - 1};
    return (offset_of(*this, last) + 1) * bytes_of(type);
}

int Graph::matmuls() const {
    return (int)std::count_if(operations.begin(), operations.end(), [](const GraphOperation &op) {
        return op.kind == GraphKind::kMatmul;
    });
}

std::string Graph::problem() const {
    std::map<int64_t, bool> made;
    for (const auto &[uid, t] : tensors)
        made[uid] = !t.is_virtual;
    for (const GraphOperation &op : operations) {
        for (int64_t uid : op.inputs)
            if (uid != 0 && !made[uid])
                return "an operation reads what none before it makes";
        if (!fits(*this, op))
            return "dimensions of an operation do not fit";
        made[op.output] = true;
    }
    if (matmuls() != 2 && matmuls() != 5)
        return "is no attention";
    for (const auto &[uid, t] : tensors)
        if (!t.is_virtual && !t.is_value && t.type != CUDNN_DATA_FLOAT &&
            !is_head(t, t.strides[3] == 1 ? t.dims[3] : t.dims[2]))
            return "type or head size is not supported";
    return "";
}

std::vector<int64_t> Graph::outputs() const {
    std::vector<int64_t> all;
    for (const GraphOperation &op : operations)
        if (!tensors.at(op.output).is_virtual)
            all.push_back(op.output);
    return all;
}

// What cuDNN 9.19 asks for: backward keeps a matrix of scores in 16 bits.
size_t Graph::workspace_bytes() const {
    size_t bytes = 256;
    for (const auto &[uid, t] : tensors) {
        const size_t rows = (size_t)(t.dims[2] + 63) / 64 * 64;
        const size_t columns = (size_t)(t.dims[3] + 127) / 128 * 128;
        if (matmuls() == 5 && t.is_virtual && t.dims[2] == t.dims[3])
            bytes = std::max(bytes, 256 + 2 * (size_t)(t.dims[0] * t.dims[1]) * rows * columns);
    }
    return bytes;
}

void Graph::run(const std::map<int64_t, void *> &arrays,
                const std::map<int64_t, float> &numbers) const {
    Run run = {*this, {}};
    std::map<int64_t, bool> written;
    for (int64_t uid : outputs())
        written[uid] = true;
    for (const auto &[uid, t] : tensors) {
        if (t.is_value)
            run.values[uid] = {numbers.at(uid)};
        else if (!t.is_virtual && !written[uid])
            run.values[uid] = load(t, arrays.at(uid));
    }
    for (const GraphOperation &op : operations) {
        const GraphTensor &y = tensors.at(op.output);
        Values out = run.result(op);
        for (double &x : out)
            x = rounded(y.type, x);
        if (!y.is_virtual)
            store(y, out, arrays.at(op.output));
        run.values[op.output] = std::move(out);
    }
}

} // namespace cuda_on_cpu
