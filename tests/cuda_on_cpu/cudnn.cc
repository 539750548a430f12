// SPDX-License-Identifier: Apache-2.0
// cuDNN on the CPU: the backend calls that engine/kernels/cuda makes. Descriptors keep what they
// are given; a graph is read when it is finalised, and run like a kernel, queued on the handle's
// stream. It refuses attributes, orders and arrays that the real library refuses, and is stricter
// where that trusts its caller: plans must be deterministic, all arrays of a graph given and
// aligned, and the workspace is spoiled by every run. Its first proposal is never deterministic.
#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "tests/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/cuda_on_cpu/cudnn.h"
#include "tests/cuda_on_cpu/cudnn_graph.h"

struct cudnnContext {
    cudaStream_t stream;
};

namespace cuda_on_cpu {

namespace {

std::atomic<int> live, runs;
std::atomic<bool> refused;

struct Attribute {
    int type;
    int64_t count;
    std::vector<uint8_t> bytes;
};

struct Descriptor {
    int type;
    bool finalised = false;
    std::map<int, Attribute> attributes;
    std::shared_ptr<Graph> graph; // of a graph and what is made for one
    bool deterministic = false;   // of an engine and its configuration

    bool has(int name) const { return attributes.count(name) != 0; }
    template <typename T> std::vector<T> all(int name) const {
        const Attribute &a = attributes.at(name);
        std::vector<T> values(a.bytes.size() / sizeof(T));
        memcpy(values.data(), a.bytes.data(), values.size() * sizeof(T));
        return values;
    }
    template <typename T> T one(int name) const {
        T value;
        memcpy(&value, attributes.at(name).bytes.data(), sizeof value);
        return value;
    }
    // A finalised descriptor that this one holds; NULL: none.
    const Descriptor *held(int name) const {
        const Descriptor *other = has(name) ? (const Descriptor *)one<void *>(name) : nullptr;
        return other && other->finalised ? other : nullptr;
    }
};

size_t size_of(int type) {
    switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
        return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    default:
        return 4;
    }
}

GraphTensor tensor_of(const Descriptor &d) {
    GraphTensor t = {d.one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID),
                     (cudnnDataType_t)d.one<int>(CUDNN_ATTR_TENSOR_DATA_TYPE),
                     d.one<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL),
                     d.one<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE),
                     {},
                     {}};
    const auto dims = d.all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
    const auto strides = d.all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
    std::copy_n(dims.begin(), 4, t.dims.begin());
    std::copy_n(strides.begin(), 4, t.strides.begin());
    return t;
}

// The tensor's uid, which is the graph's from now on; 0 where there is none.
int64_t add_tensor(Graph *graph, const Descriptor &operation, int name) {
    const Descriptor *d = operation.held(name);
    if (!d)
        return 0;
    const GraphTensor t = tensor_of(*d);
    const auto found = graph->tensors.find(t.uid);
    if (found != graph->tensors.end() &&
        (found->second.dims != t.dims || found->second.strides != t.strides))
        report("cuDNN: two tensors have the uid " + std::to_string(t.uid));
    graph->tensors[t.uid] = t;
    return t.uid;
}

GraphOperation operation_of(Graph *graph, const Descriptor &d) {
    const auto uid = [&](int name) { return add_tensor(graph, d, name); };
    switch (d.type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: {
        const Descriptor &kind = *d.held(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
        return {
            GraphKind::kPointwise,
            kind.one<int>(CUDNN_ATTR_POINTWISE_MODE),
            kind.has(CUDNN_ATTR_POINTWISE_AXIS) ? kind.one<int64_t>(CUDNN_ATTR_POINTWISE_AXIS) : 0,
            {uid(CUDNN_ATTR_OPERATION_POINTWISE_XDESC), uid(CUDNN_ATTR_OPERATION_POINTWISE_BDESC),
             uid(CUDNN_ATTR_OPERATION_POINTWISE_TDESC)},
            uid(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)};
    }
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return {GraphKind::kMatmul,
                0,
                0,
                {uid(CUDNN_ATTR_OPERATION_MATMUL_ADESC), uid(CUDNN_ATTR_OPERATION_MATMUL_BDESC)},
                uid(CUDNN_ATTR_OPERATION_MATMUL_CDESC)};
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return {
            GraphKind::kReduce,
            d.held(CUDNN_ATTR_OPERATION_REDUCTION_DESC)->one<int>(CUDNN_ATTR_REDUCTION_OPERATOR),
            0,
            {uid(CUDNN_ATTR_OPERATION_REDUCTION_XDESC)},
            uid(CUDNN_ATTR_OPERATION_REDUCTION_YDESC)};
    default:
        return {GraphKind::kReshape,
                0,
                0,
                {uid(CUDNN_ATTR_OPERATION_RESHAPE_XDESC)},
                uid(CUDNN_ATTR_OPERATION_RESHAPE_YDESC)};
    }
}

// Which attributes a descriptor must have when it is finalised.
std::vector<int> needed(int type) {
    switch (type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        return {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_ATTR_TENSOR_DIMENSIONS,
                CUDNN_ATTR_TENSOR_STRIDES, CUDNN_ATTR_TENSOR_UNIQUE_ID,
                CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT};
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
        return {CUDNN_ATTR_POINTWISE_MODE, CUDNN_ATTR_POINTWISE_MATH_PREC};
    case CUDNN_BACKEND_MATMUL_DESCRIPTOR:
        return {CUDNN_ATTR_MATMUL_COMP_TYPE};
    case CUDNN_BACKEND_REDUCTION_DESCRIPTOR:
        return {CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_ATTR_REDUCTION_COMP_TYPE};
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return {CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                CUDNN_ATTR_OPERATION_POINTWISE_YDESC};
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC,
                CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_ATTR_OPERATION_MATMUL_DESC};
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_ATTR_OPERATION_REDUCTION_YDESC,
                CUDNN_ATTR_OPERATION_REDUCTION_DESC};
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        return {CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_ATTR_OPERATION_RESHAPE_YDESC};
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        return {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_ATTR_OPERATIONGRAPH_HANDLE};
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        return {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_ATTR_ENGINEHEUR_MODE};
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        return {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_ATTR_EXECUTION_PLAN_HANDLE};
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
        return {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                CUDNN_ATTR_VARIANT_PACK_WORKSPACE};
    default:
        return {};
    }
}

cudnnStatus_t finalise_graph(Descriptor *d) {
    d->graph = std::make_shared<Graph>();
    for (void *operation : d->all<void *>(CUDNN_ATTR_OPERATIONGRAPH_OPS))
        d->graph->operations.push_back(operation_of(d->graph.get(), *(Descriptor *)operation));
    const std::string problem = d->graph->problem();
    if (!problem.empty())
        report("cuDNN: a graph " + problem);
    return problem.empty() ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t finalise(Descriptor *d) {
    for (int name : needed(d->type))
        if (!d->has(name))
            return CUDNN_STATUS_BAD_PARAM;
    for (const auto &[name, attribute] : d->attributes) {
        if (attribute.type != CUDNN_TYPE_BACKEND_DESCRIPTOR)
            continue;
        for (void *other : d->all<void *>(name))
            if (!((Descriptor *)other)->finalised)
                return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    }
    if (d->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
        return finalise_graph(d);
    if (d->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)
        d->graph = d->held(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)->graph;
    if (d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        const Descriptor *config = d->held(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
        d->graph = config->graph;
        d->deterministic = config->deterministic;
        return refused ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t give_proposals(const Descriptor &advice, int64_t most, int64_t *count, void *out) {
    *count = std::min<int64_t>(most, 2);
    for (int64_t i = 0; i < *count; i++) {
        Descriptor *config = ((Descriptor **)out)[i];
        config->graph = advice.graph;
        config->deterministic = i == 1;
        config->finalised = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t give_notes(const Descriptor &engine, int64_t most, int64_t *count, void *out) {
    const cudnnBackendNumericalNote_t notes[] = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE,
                                                 CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
    *count = std::min<int64_t>(most, engine.deterministic ? 1 : 2);
    memcpy(out, notes, (size_t)*count * sizeof *notes);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t bad_run(const std::string &what) {
    report("cudnnBackendExecute: " + what);
    return CUDNN_STATUS_BAD_PARAM;
}

// Spoils the beginning and the end of what the run may use.
void spoil(void *workspace, size_t bytes) {
    const size_t part = std::min<size_t>(bytes, 4096);
    memset(workspace, 0xff, part);
    memset((char *)workspace + bytes - part, 0xff, part);
}

} // namespace

int cudnn_live() {
    return live;
}

void cudnn_refuse(bool refuse) {
    refused = refuse;
}

int cudnn_take_runs() {
    return runs.exchange(0);
}

} // namespace cuda_on_cpu

using namespace cuda_on_cpu;

size_t cudnnGetVersion(void) {
    return 91900;
}

const char *cudnnGetErrorString(cudnnStatus_t status) {
    switch (CUDNN_STATUS_CATEGORY(status)) {
    case CUDNN_STATUS_SUCCESS:
        return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM:
        return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED:
        return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_INTERNAL_ERROR:
        return "CUDNN_STATUS_INTERNAL_ERROR";
    default:
        return "CUDNN_STATUS_EXECUTION_FAILED";
    }
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *out) {
    if (fails("cudnnCreate"))
        return CUDNN_STATUS_INTERNAL_ERROR;
    *out = new cudnnContext{nullptr};
    live++;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    live--;
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    if (fails("cudnnSetStream"))
        return CUDNN_STATUS_INTERNAL_ERROR;
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *out) {
    if (fails("cudnnBackendCreateDescriptor"))
        return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    Descriptor *d = new Descriptor();
    d->type = type;
    *out = d;
    live++;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
    live--;
    delete (Descriptor *)descriptor;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
    Descriptor *d = (Descriptor *)descriptor;
    if (fails("cudnnBackendFinalize"))
        return CUDNN_STATUS_INTERNAL_ERROR;
    if (d->finalised)
        return CUDNN_STATUS_BAD_PARAM;
    const cudnnStatus_t status = finalise(d);
    d->finalised = status == CUDNN_STATUS_SUCCESS;
    return status;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void *values) {
    Descriptor *d = (Descriptor *)descriptor;
    if (fails("cudnnBackendSetAttribute"))
        return CUDNN_STATUS_INTERNAL_ERROR;
    if (d->finalised || count < 1 || !values)
        return CUDNN_STATUS_BAD_PARAM;
    const uint8_t *bytes = (const uint8_t *)values;
    d->attributes[name] = {type, count, {bytes, bytes + (size_t)count * size_of(type)}};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t most, int64_t *count,
                                       void *values) {
    const Descriptor &d = *(const Descriptor *)descriptor;
    if (fails("cudnnBackendGetAttribute"))
        return CUDNN_STATUS_INTERNAL_ERROR;
    if (!d.finalised)
        return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        return give_proposals(d, most, count, values);
    case CUDNN_ATTR_ENGINECFG_ENGINE:
        (*(Descriptor **)values)->deterministic = d.deterministic;
        (*(Descriptor **)values)->finalised = true;
        *count = 1;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        return give_notes(d, most, count, values);
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        *(int64_t *)values = (int64_t)d.graph->workspace_bytes();
        *count = 1;
        return CUDNN_STATUS_SUCCESS;
    default:
        return CUDNN_STATUS_BAD_PARAM;
    }
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan_,
                                  cudnnBackendDescriptor_t pack_) {
    const Descriptor &plan = *(Descriptor *)plan_, &pack = *(Descriptor *)pack_;
    if (fails("cudnnBackendExecute"))
        return CUDNN_STATUS_EXECUTION_FAILED;
    if (!plan.finalised || !pack.finalised)
        return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    if (!plan.deterministic)
        return bad_run("the plan is not deterministic");
    const auto uids = pack.all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const auto pointers = pack.all<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    void *const workspace = pack.one<void *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    const std::shared_ptr<Graph> graph = plan.graph;
    std::map<int64_t, void *> arrays;
    std::map<int64_t, float> values;
    for (size_t i = 0; i < uids.size(); i++) {
        const auto found = graph->tensors.find(uids[i]);
        if (found == graph->tensors.end())
            return bad_run("the graph has no tensor " + std::to_string(uids[i]));
        if (found->second.is_value)
            values[uids[i]] = *(const float *)pointers[i];
        else
            arrays[uids[i]] = pointers[i];
    }
    const auto outputs = graph->outputs();
    std::vector<Range> reads, writes;
    for (const auto &[uid, t] : graph->tensors) {
        if (t.is_virtual || (t.is_value && values.count(uid)))
            continue;
        if (!arrays.count(uid) || (uintptr_t)arrays[uid] % 16 != 0)
            return bad_run("tensor " + std::to_string(uid) + " is not given, or not aligned");
        const bool written = std::count(outputs.begin(), outputs.end(), uid) != 0;
        (written ? writes : reads).push_back({arrays[uid], t.span_bytes()});
    }
    const size_t bytes = graph->workspace_bytes();
    writes.push_back({workspace, bytes});
    runs++;
    const cudaError_t error = enqueue(handle->stream, "cudnnBackendExecute", reads, writes,
                                      [graph, arrays, values, workspace, bytes] {
                                          spoil(workspace, bytes);
                                          graph->run(arrays, values);
                                      });
    return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}
