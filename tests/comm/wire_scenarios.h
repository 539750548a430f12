/* SPDX-License-Identifier: Apache-2.0 */
/* What every wire must do, on any device: each rank's results are compared with those that the same
 * scenario has over messages in host memory. */
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "engine/comm/collective_internal.h"
#include "engine/comm/wire.h"
#include "tests/comm/comm_test_util.h"

namespace comm_test {

/* A device, and what adds there. */
struct wire_bench {
    const crl_device *device;
    const crl_reduce_ops *reduce;
    const crl_wire_kind *kind; /* NULL: messages directly */
};

/* A rank's place in a scenario. */
struct wire_rank {
    crl_comm *host, *tensors;
    const wire_bench *bench;
    crl_stream *stream;
};
using wire_body = std::function<crl_status(const wire_rank &)>;
using route_list = std::vector<crl_route>;

/* Floats in the device's memory. */
class device_floats {
  public:
    device_floats() = default;
    device_floats(const device_floats &) = delete;
    device_floats &operator=(const device_floats &) = delete;
    ~device_floats() {
        if (at_.bench != nullptr) {
            crl_device_free(at_.bench->device, data);
            crl_device_host_free(at_.bench->device, pinned_);
        }
    }
    crl_status make(const wire_rank &at, size_t count) {
        at_ = at;
        count_ = count;
        CRL_TRY(crl_device_alloc(at.bench->device, &data, count * sizeof(float) + 64));
        CRL_TRY(crl_device_host_alloc(at.bench->device, &pinned_, count * sizeof(float) + 64));
        return CRL_STATUS_OK;
    }
    /* Blocks until the stream has taken them. */
    crl_status put(const std::vector<float> &from) {
        if (!from.empty()) {
            memcpy(pinned_, from.data(), from.size() * sizeof(float));
        }
        CRL_TRY(crl_device_copy(at_.bench->device, at_.stream, data, pinned_,
                                from.size() * sizeof(float)));
        return crl_device_stream_wait(at_.bench->device, at_.stream);
    }
    crl_status get(std::vector<float> *to) {
        to->resize(count_);
        CRL_TRY(
            crl_device_copy(at_.bench->device, at_.stream, pinned_, data, count_ * sizeof(float)));
        CRL_TRY(crl_comm_wait_stream(at_.tensors, "results", nullptr, nullptr));
        if (count_ > 0) {
            memcpy(to->data(), pinned_, count_ * sizeof(float));
        }
        return CRL_STATUS_OK;
    }
    float *data = nullptr;

  private:
    wire_rank at_ = {};
    size_t count_ = 0;
    float *pinned_ = nullptr;
};

/* Runs `body` with a comm for the bench's device. A failure ends the job before memory goes. */
inline crl_status on_device(crl_comm *host, const wire_bench &bench, const route_list &routes,
                            const wire_body &body) {
    crl_comm tensors = {};
    wire_rank at = {host, &tensors, &bench, nullptr};
    crl_status status = crl_device_stream_create(bench.device, &at.stream);
    if (status == CRL_STATUS_OK) {
        crl_wire_config config = {};
        config.host = host;
        config.device = bench.device;
        config.stream = at.stream;
        config.route = routes.data();
        config.routes = (int)routes.size();
        config.requests = 16;
        config.reduce = bench.reduce;
        status = crl_comm_on_device(&tensors, host, bench.kind, &config);
    }
    /* Memory of the body's may be freed only after leaving, so it lives in here until then. */
    status = status == CRL_STATUS_OK ? body(at) : status;
    if (status != CRL_STATUS_OK) {
        crl_comm_abort(host);
    }
    crl_comm_leave_device(&tensors);
    crl_device_stream_destroy(bench.device, at.stream);
    return status;
}

/* Activations down and gradients up a chain of all ranks, one forward, one backward, with two
 * buffers each: every rank's sum of gradients. */
class chain {
  public:
    static constexpr int micro_batches = 9;
    static route_list routes(int rank, int ranks) {
        route_list all;
        for (int m = 0; m < micro_batches; m++) {
            for (int r = rank - 1; r <= rank; r++) {
                if (r >= 0 && r + 1 < ranks) {
                    all.push_back({m, r, r + 1, 0});
                    all.push_back({micro_batches + m, r + 1, r, 0});
                }
            }
        }
        return all;
    }
    crl_status run(const wire_rank &at, int64_t n, std::vector<float> *out) {
        CRL_TRY(prepare(at, n));
        const int rank = at.host->rank, ranks = at.host->ranks;
        const int ahead = ranks - 1 - rank < micro_batches ? ranks - 1 - rank : micro_batches;
        CRL_TRY(expect_input(0));
        CRL_TRY(expect_gradient(0));
        for (int m = 0; m < micro_batches + ahead; m++) {
            CRL_TRY(m < micro_batches ? forward(m) : CRL_STATUS_OK);
            CRL_TRY(m >= ahead ? backward(m - ahead) : CRL_STATUS_OK);
        }
        for (int b = 0; b < 2; b++) {
            CRL_TRY(wait(&sending_[b]));
            CRL_TRY(wait(&returning_[b]));
        }
        return sum_.get(out);
    }

  private:
    crl_status prepare(const wire_rank &at, int64_t n) {
        at_ = at;
        n_ = n;
        std::vector<float> values((size_t)n);
        for (int64_t i = 0; i < n; i++) {
            values[(size_t)i] = lane_value(7, at.host->rank, i);
        }
        for (device_floats *array : {&weight_, &sum_, &in_[0], &in_[1], &out_[0], &out_[1],
                                     &gradient_[0], &gradient_[1], &back_[0], &back_[1]}) {
            CRL_TRY(array->make(at, (size_t)n));
        }
        return weight_.put(values);
    }
    bool first() const { return at_.host->rank == 0; }
    bool last() const { return at_.host->rank == at_.host->ranks - 1; }
    crl_status wait(crl_request *request) {
        return crl_comm_wait(at_.tensors, request, "a message", nullptr, nullptr);
    }
    crl_status copy(device_floats &to, const device_floats &from) {
        return crl_device_copy(at_.bench->device, at_.stream, to.data, from.data, bytes());
    }
    crl_status add(device_floats &to, const device_floats &from) {
        return n_ > 0 ? at_.bench->reduce->add(at_.stream, to.data, from.data, n_) : CRL_STATUS_OK;
    }
    size_t bytes() const { return (size_t)n_ * sizeof(float); }
    crl_status expect_input(int m) {
        return first() || m >= micro_batches
                   ? CRL_STATUS_OK
                   : crl_comm_recv(at_.tensors, at_.host->rank - 1, m, in_[m % 2].data, bytes(),
                                   &coming_[m % 2]);
    }
    crl_status expect_gradient(int m) {
        return last() || m >= micro_batches
                   ? CRL_STATUS_OK
                   : crl_comm_recv(at_.tensors, at_.host->rank + 1, micro_batches + m,
                                   gradient_[m % 2].data, bytes(), &descending_[m % 2]);
    }
    crl_status forward(int m) {
        const int b = m % 2;
        CRL_TRY(expect_input(m + 1));
        CRL_TRY(wait(&coming_[b]));
        CRL_TRY(wait(&sending_[b]));
        if (first()) {
            CRL_TRY(m < 2 ? copy(out_[b], weight_) : CRL_STATUS_OK);
        } else {
            CRL_TRY(copy(out_[b], in_[b]));
        }
        CRL_TRY(add(out_[b], weight_));
        bool done;
        CRL_TRY(crl_comm_test(at_.tensors, &descending_[b], &done)); /* as between kernels */
        return last() ? CRL_STATUS_OK
                      : crl_comm_send(at_.tensors, at_.host->rank + 1, m, out_[b].data, bytes(),
                                      &sending_[b]);
    }
    crl_status backward(int m) {
        const int b = m % 2;
        CRL_TRY(expect_gradient(m + 1));
        CRL_TRY(wait(&descending_[b]));
        CRL_TRY(wait(&returning_[b]));
        CRL_TRY(copy(back_[b], last() ? out_[b] : gradient_[b]));
        CRL_TRY(add(back_[b], weight_));
        CRL_TRY(add(sum_, back_[b]));
        return first() ? CRL_STATUS_OK
                       : crl_comm_send(at_.tensors, at_.host->rank - 1, micro_batches + m,
                                       back_[b].data, bytes(), &returning_[b]);
    }

    wire_rank at_ = {};
    int64_t n_ = 0;
    device_floats weight_, sum_, in_[2], out_[2], gradient_[2], back_[2];
    crl_request coming_[2] = {}, sending_[2] = {}, descending_[2] = {}, returning_[2] = {};
};

/* Everybody sends everybody messages of many sizes with tags of their own, received in another
 * order than they are sent in; each is doubled, and all are returned one after the other. */
class crowd {
  public:
    static std::vector<size_t> sizes() { return {0, 1, 3, 16, 1000, 4097, 16384}; }
    /* Each message has a channel of its own: the orders are opposite. */
    static route_list routes(int rank, int ranks) {
        route_list all;
        for (int other = 0; other < ranks; other++) {
            for (int k = 0; other != rank && k < (int)sizes().size(); k++) {
                all.push_back({k, rank, other, k});
                all.push_back({k, other, rank, k});
            }
        }
        return all;
    }
    crl_status run(const wire_rank &at, bool poll, std::vector<float> *out) {
        const int rank = at.host->rank, ranks = at.host->ranks, kinds = (int)sizes().size();
        from_ = std::vector<device_floats>((size_t)(kinds * ranks));
        to_ = std::vector<device_floats>((size_t)(kinds * ranks));
        sends_.assign((size_t)(kinds * ranks), {});
        receives_.assign((size_t)(kinds * ranks), {});
        for (int round = 0; round < 2; round++) {
            for (int other = 0; other < ranks; other++) {
                for (int k = 0; other != rank && k < kinds; k++) {
                    CRL_TRY(send(at, other, k, round));
                }
                for (int k = kinds - 1; other != rank && k >= 0; k--) {
                    CRL_TRY(receive(at, other, k));
                }
            }
            CRL_TRY(finish(at, poll, out));
        }
        return CRL_STATUS_OK;
    }

  private:
    size_t index(int other, int k) const { return (size_t)other * sizes().size() + (size_t)k; }
    crl_status send(const wire_rank &at, int other, int k, int round) {
        device_floats &from = from_[index(other, k)];
        const size_t n = sizes()[(size_t)k];
        std::vector<float> values(n);
        for (size_t i = 0; i < n; i++) {
            values[i] = lane_value(11, at.host->rank * 8 + other + round, (int64_t)i);
        }
        if (from.data == nullptr) {
            CRL_TRY(from.make(at, n));
        }
        CRL_TRY(from.put(values));
        CRL_TRY(n == 0 ? CRL_STATUS_OK
                       : at.bench->reduce->add(at.stream, from.data, from.data, (int64_t)n));
        return crl_comm_send(at.tensors, other, k, from.data, n * sizeof(float),
                             &sends_[index(other, k)]);
    }
    crl_status receive(const wire_rank &at, int other, int k) {
        device_floats &to = to_[index(other, k)];
        if (to.data == nullptr) {
            CRL_TRY(to.make(at, sizes()[(size_t)k]));
        }
        return crl_comm_recv(at.tensors, other, k, to.data, sizes()[(size_t)k] * sizeof(float),
                             &receives_[index(other, k)]);
    }
    crl_status finish(const wire_rank &at, bool poll, std::vector<float> *out) {
        bool all = !poll;
        while (!all) {
            all = true;
            for (std::vector<crl_request> *list : {&sends_, &receives_}) {
                for (crl_request &request : *list) {
                    bool done;
                    CRL_TRY(crl_comm_test(at.tensors, &request, &done));
                    all = all && done;
                }
            }
            std::this_thread::yield();
        }
        for (size_t i = 0; i < sends_.size(); i++) {
            CRL_TRY(crl_comm_wait(at.tensors, &receives_[i], "a message", nullptr, nullptr));
            CRL_TRY(crl_comm_wait(at.tensors, &sends_[i], "a message", nullptr, nullptr));
        }
        for (device_floats &to : to_) {
            std::vector<float> got;
            CRL_TRY(to.data != nullptr ? to.get(&got) : CRL_STATUS_OK);
            out->insert(out->end(), got.begin(), got.end());
        }
        return CRL_STATUS_OK;
    }

    std::vector<device_floats> from_, to_;
    std::vector<crl_request> sends_, receives_;
};

/* The canonical sum of lanes first..first+count-1. */
inline std::vector<float> lane_sum(int first, int count, int64_t n) {
    std::vector<float> sum((size_t)n);
    if (count == 1) {
        for (int64_t i = 0; i < n; i++) {
            sum[(size_t)i] = lane_value(5, first, i);
        }
        return sum;
    }
    sum = lane_sum(first, count / 2, n);
    const std::vector<float> right = lane_sum(first + count / 2, count / 2, n);
    for (size_t i = 0; i < sum.size(); i++) {
        sum[i] += right[i];
    }
    return sum;
}

/* One sum over all ranks, twice with the same object; `polls`: by progress alone. */
struct sum_case {
    const crl_allreduce_algorithm *algorithm;
    int lanes, present;
    int64_t n;
    bool polls;
};
class lane_total {
  public:
    crl_status run(const wire_rank &at, const sum_case &sum, std::vector<float> *out) {
        const int rank = at.host->rank, ranks = at.host->ranks;
        const crl_group group = {at.tensors, nullptr, ranks, rank, 1};
        const auto *algorithm = crl_allreduce_on(at.tensors, sum.algorithm);
        std::vector<int> first;
        for (int i = 0; i <= ranks; i++) {
            first.push_back(i * sum.present / ranks);
        }
        crl_allreduce_config config = {};
        config.group = &group;
        config.reduce = at.bench->reduce;
        config.stream = at.stream;
        config.max_count = sum.n;
        config.segment_bytes = 256;
        config.lanes = sum.lanes;
        config.lane_first = first.data();
        CRL_TRY(scratch_.make(at, sum.algorithm->scratch_bytes(&config) / sizeof(float)));
        config.scratch = scratch_.data;
        algorithm_ = algorithm;
        CRL_TRY(result_.make(at, (size_t)sum.n));
        node_ = std::vector<device_floats>(CRL_MAX_LANE_NODES);
        CRL_TRY(algorithm->create(&sum_, &config));
        crl_status status = CRL_STATUS_OK;
        for (int round = 0; round < 2 && status == CRL_STATUS_OK; round++) {
            status = total(at, sum, first.data(), out);
        }
        algorithm->destroy(sum_); /* ends the job when in flight: before the comm goes */
        return status;
    }

  private:
    crl_status total(const wire_rank &at, const sum_case &sum, const int *first,
                     std::vector<float> *out) {
        crl_lane_node node[CRL_MAX_LANE_NODES];
        const int rank = at.host->rank;
        const int nodes = crl_lane_split(first[rank], first[rank + 1], node);
        for (int i = 0; i < nodes; i++) {
            device_floats &data = node_[(size_t)i];
            if (data.data == nullptr) {
                CRL_TRY(data.make(at, (size_t)sum.n));
            }
            std::vector<float> half = lane_sum(node[i].first, node[i].count, sum.n);
            for (float &value : half) {
                value *= 0.5f;
            }
            CRL_TRY(data.put(half)); /* and doubled by work that is queued when the sum starts */
            CRL_TRY(at.bench->reduce->add(at.stream, data.data, data.data, sum.n));
            node[i].data = data.data;
        }
        CRL_TRY(algorithm_->start(sum_, node, nodes, result_.data, sum.n));
        bool done = false;
        int peer;
        while (sum.polls && !done) {
            CRL_TRY(algorithm_->progress(sum_, &done, &peer));
            std::this_thread::yield();
        }
        CRL_TRY(crl_allreduce_wait(algorithm_, sum_, at.tensors, "sum"));
        return (nodes > 0 ? node_[0] : result_).get(out);
    }

    const crl_allreduce_algorithm *algorithm_ = nullptr;
    crl_allreduce *sum_ = nullptr;
    device_floats scratch_, result_;
    std::vector<device_floats> node_;
};

/* Every rank's part of the sums, and of what all ranks give. */
class shards {
  public:
    crl_status run(const wire_rank &at, int64_t n, std::vector<float> *out) {
        const int rank = at.host->rank, ranks = at.host->ranks;
        const crl_group group = {at.tensors, nullptr, ranks, rank, 1};
        std::vector<float> values((size_t)(n * ranks));
        for (size_t i = 0; i < values.size(); i++) {
            values[i] = lane_value(3, rank, (int64_t)i);
        }
        CRL_TRY(data_.make(at, values.size()));
        CRL_TRY(scratch_.make(at, values.size()));
        CRL_TRY(data_.put(values));
        CRL_TRY(crl_reduce_scatter(&group, data_.data, n, scratch_.data));
        CRL_TRY(crl_all_gather(&group, data_.data, (size_t)n * sizeof(float)));
        return data_.get(out);
    }

  private:
    device_floats data_, scratch_;
};

/* The bits of every rank of a scenario. */
using outcome_bits = std::vector<std::vector<float>>;
template <class Scenario, class... Arguments>
crl_status collect(int ranks, const wire_bench &bench, route_list (*routes)(int, int),
                   outcome_bits *out, Arguments... arguments) {
    out->assign((size_t)ranks, {});
    return launch(&crl_transport_local, ranks, 30000000000, [&](crl_comm *comm) -> crl_status {
        Scenario scenario; /* its memory outlives the comm of the device */
        const route_list list = routes != nullptr ? routes(comm->rank, ranks) : route_list();
        return on_device(comm, bench, list, [&](const wire_rank &at) {
            return scenario.run(at, arguments..., &(*out)[(size_t)comm->rank]);
        });
    });
}

} // namespace comm_test
