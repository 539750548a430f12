// SPDX-License-Identifier: Apache-2.0
// A graph of the emulated cuDNN, once its descriptors are read: tensors of four dimensions and
// operations in the order they were given. Everything is by value: descriptors may go.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "engine/kernels/cuda/cudnn_backend.h"
#include "tests/cuda_on_cpu/machine.h"

namespace cuda_on_cpu {

struct GraphTensor {
    int64_t uid;
    cudnnDataType_t type;
    bool is_virtual, is_value;
    std::array<int64_t, 4> dims, strides;

    int64_t count() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
    // Bytes from the first element to the end of the last.
    size_t span_bytes() const;
};

enum class GraphKind { kPointwise, kMatmul, kReduce, kReshape };

struct GraphOperation {
    GraphKind kind;
    int mode; // of pointwise operations and reductions
    int64_t axis;
    std::vector<int64_t> inputs; // uids; 0: none
    int64_t output;
};

struct Graph {
    std::map<int64_t, GraphTensor> tensors;
    std::vector<GraphOperation> operations;

    // Why no kernel could do it; empty: one can. Only what attention needs is known.
    std::string problem() const;
    int matmuls() const;
    std::vector<int64_t> outputs() const; // on the device
    size_t workspace_bytes() const;
    // In double, every tensor rounded to its type. Arrays of the device by uid; values likewise.
    void run(const std::map<int64_t, void *> &arrays, const std::map<int64_t, float> &values) const;
};

} // namespace cuda_on_cpu
