// SPDX-License-Identifier: Apache-2.0
// Captures and graphs. A graph is what was queued, in that order, with the lanes (streams) and
// points that ordered it; a launch queues all of it again, lane 0 on the launching stream and the
// others on streams of the graph's own, so every launch is checked like the first.
#include <map>
#include <utility>

#include "tests/cuda_on_cpu/queue.h"

struct CUgraph_st {
    std::vector<cuda_on_cpu::Node> nodes;
    int lanes, device;
};

struct CUgraphExec_st {
    CUgraph_st graph;
    std::vector<CUstream_st *> lanes; // from 1 on
    std::shared_ptr<cuda_on_cpu::Point> end;
};

namespace cuda_on_cpu {

namespace {

std::vector<std::shared_ptr<Capture>> captures;
size_t graphs_live;

size_t lane_of(Capture &capture, CUstream_st *stream) {
    for (size_t lane = 0; lane < capture.lanes.size(); lane++) {
        if (capture.lanes[lane] == stream)
            return lane;
    }
    capture.lanes.push_back(stream);
    capture.after.push_back({});
    return capture.lanes.size() - 1;
}

// Does lane 0 come after all that the others were given?
bool is_joined(const Capture &capture) {
    const Clock &end = capture.after[0];
    for (size_t lane = 1; lane < capture.lanes.size(); lane++) {
        const Clock &own = capture.after[lane];
        if (own.size() > lane && (end.size() <= lane || end[lane] < own[lane]))
            return false;
    }
    return true;
}

// What was captured; the capture itself stays with the points of events.
std::vector<Node> end(const std::shared_ptr<Capture> &capture) {
    capture->ended = true;
    for (CUstream_st *stream : capture->lanes)
        stream->capture.reset();
    for (size_t i = 0; i < captures.size(); i++) {
        if (captures[i] == capture)
            captures.erase(captures.begin() + (ptrdiff_t)i);
    }
    return std::exchange(capture->nodes, {});
}

cudaError_t queue_nodes(CUgraphExec_st &exec, CUstream_st *stream) {
    std::map<const Point *, std::shared_ptr<Point>> points;
    const auto begin = make_point(stream);
    push(stream, {nullptr, begin, nullptr});
    for (CUstream_st *lane : exec.lanes)
        push(lane, {nullptr, nullptr, begin});
    for (const Node &node : exec.graph.nodes) {
        CUstream_st *lane = node.lane == 0 ? stream : exec.lanes[(size_t)node.lane - 1];
        Item item = node.item;
        if (item.record)
            item.record = points[node.item.record.get()] = make_point(lane);
        if (item.wait)
            item.wait = points[node.item.wait.get()];
        push(lane, item);
    }
    exec.end = make_point(stream);
    return push(stream, {nullptr, exec.end, nullptr});
}

} // namespace

cudaError_t spoil(Capture &capture, cudaError_t error) {
    capture.invalid = true;
    return error;
}

cudaError_t capture_item(CUstream_st *stream, const Item &item) {
    const std::shared_ptr<Capture> capture = stream->capture ? stream->capture : item.wait->capture;
    if (capture->ended)
        return cudaErrorInvalidValue;
    if (capture->invalid)
        return cudaErrorStreamCaptureInvalidated;
    if (item.wait && item.wait->capture != capture)
        return spoil(*capture, item.wait->capture ? cudaErrorStreamCaptureMerge
                                                  : cudaErrorStreamCaptureIsolation);
    stream->capture = capture;
    const size_t lane = lane_of(*capture, stream);
    Clock &after = capture->after[lane];
    if (item.work) {
        if (after.size() <= lane)
            after.resize(lane + 1, 0);
        after[lane]++;
    }
    if (item.record) {
        item.record->capture = capture;
        item.record->clock = after;
    }
    if (item.wait)
        join(after, item.wait->clock);
    capture->nodes.push_back({(int)lane, item});
    return cudaSuccess;
}

cudaError_t refused_in_capture() {
    for (const auto &capture : captures) {
        const bool is_own = capture->thread == std::this_thread::get_id();
        if (capture->mode == cudaStreamCaptureModeGlobal ||
            (capture->mode == cudaStreamCaptureModeThreadLocal && is_own))
            return spoil(*capture, cudaErrorStreamCaptureUnsupported);
    }
    return cudaSuccess;
}

size_t live_graphs() {
    return graphs_live;
}

} // namespace cuda_on_cpu

using namespace cuda_on_cpu;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    const auto lock = hold();
    if (!is_stream(stream) || stream->capture)
        return fail(stream ? cudaErrorInvalidValue : cudaErrorStreamCaptureUnsupported);
    if (fails("cudaStreamBeginCapture"))
        return fail(cudaErrorUnknown);
    const auto capture = std::make_shared<Capture>();
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    lane_of(*capture, stream);
    stream->capture = capture;
    captures.push_back(capture);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out) {
    const auto lock = hold();
    *out = nullptr;
    if (!is_stream(stream) || !stream->capture)
        return fail(cudaErrorInvalidValue);
    const std::shared_ptr<Capture> capture = stream->capture;
    if (capture->lanes[0] != stream)
        return fail(spoil(*capture, cudaErrorStreamCaptureUnmatched));
    const std::vector<Node> nodes = end(capture);
    if (capture->invalid)
        return fail(cudaErrorStreamCaptureInvalidated);
    if (!is_joined(*capture))
        return fail(cudaErrorStreamCaptureUnjoined);
    if (fails("cudaStreamEndCapture"))
        return fail(cudaErrorUnknown);
    *out = new CUgraph_st{nodes, (int)capture->lanes.size(), stream->device};
    graphs_live++;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph,
                                 unsigned long long flags) {
    const auto lock = hold();
    if (!graph || flags != 0)
        return fail(cudaErrorInvalidValue);
    if (fails("cudaGraphInstantiate"))
        return fail(cudaErrorMemoryAllocation);
    *out = new CUgraphExec_st{*graph, {}, nullptr};
    for (int lane = 1; lane < graph->lanes; lane++) {
        (*out)->lanes.push_back(make_stream(graph->device));
        (*out)->lanes.back()->hidden = true;
    }
    graphs_live++;
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
    const auto lock = hold();
    return exec && is_stream(stream) && !fails("cudaGraphUpload") ? cudaSuccess
                                                                  : fail(cudaErrorInvalidValue);
}

// Launches of one graph follow each other, whatever their streams.
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    const auto lock = hold();
    if (!exec || !is_stream(stream))
        return fail(cudaErrorInvalidValue);
    if (stream->capture)
        return fail(spoil(*stream->capture, cudaErrorStreamCaptureUnsupported));
    if (fails("cudaGraphLaunch"))
        return fail(cudaErrorUnknown);
    if (exec->end)
        push(stream, {nullptr, nullptr, exec->end});
    return queue_nodes(*exec, stream);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    const auto lock = hold();
    if (!graph)
        return fail(cudaErrorInvalidValue);
    delete graph;
    graphs_live--;
    return fails("cudaGraphDestroy") ? fail(cudaErrorUnknown) : cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    const auto lock = hold();
    if (!exec)
        return fail(cudaErrorInvalidValue);
    for (CUstream_st *lane : exec->lanes)
        unmake_stream(lane);
    delete exec;
    graphs_live--;
    return fails("cudaGraphExecDestroy") ? fail(cudaErrorUnknown) : cudaSuccess;
}
