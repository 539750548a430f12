/* SPDX-License-Identifier: Apache-2.0 */
/* The bodies, and their run over the local transport; mpi_conformance.cc runs them over mpi. */
#include "tests/comm/conformance.h"

#include <cmath>
#include <cstdio>
#include <numeric>

#include <gtest/gtest.h>

#include "engine/comm/collective_internal.h"

namespace comm_test {

namespace {

constexpr uint64_t seed = 20240817;

unsigned char pattern(int from, int to, int tag, int message, size_t i) {
    return (unsigned char)(from * 7 + to * 13 + tag * 31 + message * 101 + (int)(i % 251));
}

const size_t sizes[] = {0, 1, 3, 64, 5000, 100000};
constexpr int messages = 6;

/* Messages with one tag arrive in the order they were sent, whatever their size. */
crl_status order_with_one_tag(crl_comm *comm) {
    std::vector<std::vector<unsigned char>> out, in;
    std::vector<crl_request> requests;
    for (int peer = 0; peer < comm->ranks; peer++) {
        for (int m = 0; m < messages; m++) {
            std::vector<unsigned char> data(sizes[m]);
            for (size_t i = 0; i < data.size(); i++) {
                data[i] = pattern(comm->rank, peer, 5, m, i);
            }
            out.push_back(data);
            in.emplace_back(sizes[m], 0);
        }
    }
    requests.resize(out.size() * 2);
    for (size_t k = 0; k < out.size(); k++) {
        const int peer = (int)k / messages;
        CRL_TRY(crl_comm_send(comm, peer, CRL_TAG_USER + 5, out[k].data(), out[k].size(),
                              &requests[2 * k]));
        CRL_TRY(crl_comm_recv(comm, peer, CRL_TAG_USER + 5, in[k].data(), in[k].size(),
                              &requests[2 * k + 1]));
    }
    for (crl_request &request : requests) {
        CRL_TRY(crl_comm_wait(comm, &request, "ordered message", nullptr, nullptr));
    }
    for (size_t k = 0; k < in.size(); k++) {
        for (size_t i = 0; i < in[k].size(); i++) {
            COMM_CLAIM(in[k][i] == pattern((int)k / messages, comm->rank, 5, (int)k % messages, i),
                       "message %zu byte %zu", k, i);
        }
    }
    return CRL_STATUS_OK;
}

/* Tags are independent: received in the opposite order of sending. */
crl_status tags_are_independent(crl_comm *comm) {
    const int right = (comm->rank + 1) % comm->ranks;
    const int left = (comm->rank - 1 + comm->ranks) % comm->ranks;
    std::vector<std::vector<float>> out(8), in(8);
    std::vector<crl_request> sends(8);
    for (int tag = 0; tag < 8; tag++) {
        out[(size_t)tag].assign(20000, (float)(tag * 100 + comm->rank));
        in[(size_t)tag].assign(20000, -1);
        CRL_TRY(crl_comm_send(comm, right, CRL_TAG_ACTION + tag, out[(size_t)tag].data(), 80000,
                              &sends[(size_t)tag]));
    }
    for (int tag = 7; tag >= 0; tag--) {
        CRL_TRY(crl_comm_recv_wait(comm, left, CRL_TAG_ACTION + tag, in[(size_t)tag].data(), 80000,
                                   "tagged message"));
        COMM_CLAIM(in[(size_t)tag][19999] == (float)(tag * 100 + left), "tag %d", tag);
    }
    for (crl_request &request : sends) {
        CRL_TRY(crl_comm_wait(comm, &request, "tagged message", nullptr, nullptr));
    }
    return CRL_STATUS_OK;
}

crl_status counts_traffic(crl_comm *comm) {
    comm->sent_bytes = comm->received_bytes = comm->sent_messages = 0;
    char out[10] = {0}, in[10];
    crl_request send = {};
    const int right = (comm->rank + 1) % comm->ranks;
    const int left = (comm->rank - 1 + comm->ranks) % comm->ranks;
    CRL_TRY(crl_comm_send(comm, right, CRL_TAG_USER, out, 10, &send));
    CRL_TRY(crl_comm_recv_wait(comm, left, CRL_TAG_USER, in, 10, "a message"));
    CRL_TRY(crl_comm_wait(comm, &send, "a message", nullptr, nullptr));
    COMM_CLAIM(comm->sent_bytes == 10 && comm->received_bytes == 10 && comm->sent_messages == 1,
               "%lld %lld", (long long)comm->sent_bytes, (long long)comm->received_bytes);
    bool done = false;
    CRL_TRY(crl_comm_test(comm, &send, &done));
    COMM_CLAIM(done, "a request at rest is done");
    return CRL_STATUS_OK;
}

/* A wait moves other work on. */
crl_status wait_makes_progress(crl_comm *comm) {
    if (comm->ranks < 2 || comm->rank > 1) {
        return CRL_STATUS_OK;
    }
    struct side {
        crl_comm *comm;
        crl_request request;
        bool answered;
        char in;
    } side = {comm, {}, false, 0};
    const int peer = 1 - comm->rank;
    char token = 1;
    if (comm->rank == 1) { /* first a request for the side job, then the answer to the main one */
        CRL_TRY(crl_comm_send_wait(comm, peer, CRL_TAG_USER + 1, &token, 1, "side job"));
        CRL_TRY(crl_comm_recv_wait(comm, peer, CRL_TAG_USER + 2, &token, 1, "side answer"));
        CRL_TRY(crl_comm_send_wait(comm, peer, CRL_TAG_USER + 3, &token, 1, "main message"));
        return CRL_STATUS_OK;
    }
    CRL_TRY(crl_comm_recv(comm, peer, CRL_TAG_USER + 1, &side.in, 1, &side.request));
    crl_request main_request = {};
    CRL_TRY(crl_comm_recv(comm, peer, CRL_TAG_USER + 3, &token, 1, &main_request));
    const crl_progress_fn progress = [](void *argument) -> crl_status {
        struct side *s = static_cast<struct side *>(argument);
        bool done = false;
        CRL_TRY(crl_comm_test(s->comm, &s->request, &done));
        if (done && !s->answered) {
            s->answered = true;
            CRL_TRY(crl_comm_send(s->comm, 1, CRL_TAG_USER + 2, &s->in, 1, &s->request));
        }
        return CRL_STATUS_OK;
    };
    CRL_TRY(crl_comm_wait(comm, &main_request, "main message", progress, &side));
    CRL_TRY(crl_comm_wait(comm, &side.request, "side answer", nullptr, nullptr));
    return CRL_STATUS_OK;
}

/* All ranks, and the odd and the even ones backwards. */
std::vector<std::vector<int>> group_members(int rank, int ranks) {
    std::vector<int> all((size_t)ranks), half;
    std::iota(all.begin(), all.end(), 0);
    for (int r = ranks - 1; r >= 0; r--) {
        if (r % 2 == rank % 2) {
            half.push_back(r);
        }
    }
    return {all, half};
}

crl_status small_ones_in(const crl_group &group) {
    const int size = group.size;
    CRL_TRY(crl_barrier(&group));
    for (int root = 0; root < size; root++) {
        std::vector<int> data(1001, group.me == root ? 77 + root : 0);
        CRL_TRY(crl_broadcast(&group, root, data.data(), data.size() * sizeof(int)));
        COMM_CLAIM(data[0] == 77 + root && data[1000] == 77 + root, "root %d", root);
    }
    std::vector<int> blocks((size_t)size * 3, -1);
    for (int i = 0; i < 3; i++) {
        blocks[(size_t)(group.me * 3 + i)] = group.me * 10 + i;
    }
    CRL_TRY(crl_all_gather(&group, blocks.data(), 3 * sizeof(int)));
    for (int k = 0; k < size * 3; k++) {
        COMM_CLAIM(blocks[(size_t)k] == k / 3 * 10 + k % 3, "block %d", k);
    }
    const int64_t count = 37;
    std::vector<float> data((size_t)(size * count)), scratch((size_t)(size * count));
    for (int64_t k = 0; k < size * count; k++) {
        data[(size_t)k] = lane_value(seed, group.me, k);
    }
    CRL_TRY(crl_reduce_scatter(&group, data.data(), count, scratch.data()));
    for (int64_t k = 0; k < count; k++) {
        const int64_t at = group.me * count + k;
        float sum = lane_value(seed, 0, at);
        for (int member = 1; member < size; member++) {
            sum += lane_value(seed, member, at);
        }
        COMM_CLAIM(memcmp(&sum, &data[(size_t)at], sizeof sum) == 0, "element %lld", (long long)k);
    }
    return CRL_STATUS_OK;
}

/* Two sums at once, again and again: parts that do not overlap, and whole numbers at the end. */
crl_status agree_in(const crl_group &group) {
    const int64_t count = 23;
    crl_agree agree[2] = {};
    for (int i = 0; i < 2; i++) {
        CRL_TRY(crl_agree_init(&agree[i], &group, 3 + i, count));
    }
    for (int round = 0; round < 4; round++) {
        for (int s = 0; s < 2; s++) {
            crl_agree *a = &agree[(s + group.me) % 2]; /* an own order on every member */
            for (int64_t k = 0; k < count; k++) {
                a->data[k] = k % group.size == group.me ? 1.0 / (k + 3 + a->channel + round) : 0;
            }
            a->data[count - 1] = group.me + 1;
            CRL_TRY(crl_agree_start(a));
            COMM_CLAIM(group.size == 1 || crl_agree_start(a) == CRL_STATUS_INVALID, "twice");
        }
        for (crl_agree &a : agree) {
            CRL_TRY(crl_agree_wait(&a, "a few numbers", nullptr, nullptr));
            for (int64_t k = 0; k + 1 < count; k++) {
                const double sum = 1.0 / (k + 3 + a.channel + round);
                COMM_CLAIM(memcmp(&sum, &a.data[k], sizeof sum) == 0, "double %lld is %g",
                           (long long)k, a.data[k]);
            }
            COMM_CLAIM(a.data[count - 1] == group.size * (group.size + 1) / 2, "numbers");
        }
    }
    for (crl_agree &a : agree) {
        crl_agree_fini(&a);
    }
    return CRL_STATUS_OK;
}

crl_status small_collectives(crl_comm *comm) {
    int channel = 7;
    for (const std::vector<int> &members : group_members(comm->rank, comm->ranks)) {
        int me = 0;
        while (members[(size_t)me] != comm->rank) {
            me++;
        }
        const crl_group group = {comm, members.data(), (int)members.size(), me, channel};
        CRL_TRY(small_ones_in(group));
        CRL_TRY(agree_in(group));
        channel += 1 + comm->rank % 2;
    }
    const crl_group plain = {comm, nullptr, comm->ranks, comm->rank, 0};
    CRL_TRY(small_ones_in(plain));
    CRL_TRY(agree_in(plain));
    return CRL_STATUS_OK;
}

/* The canonical sum, straight from its definition. Empty when the subtree is absent. */
std::vector<float> tree_sum(int first, int count, int present, int64_t n) {
    if (first >= present) {
        return {};
    }
    if (count == 1) {
        std::vector<float> lane((size_t)n);
        for (int64_t i = 0; i < n; i++) {
            lane[(size_t)i] = lane_value(seed, first, i);
        }
        return lane;
    }
    std::vector<float> left = tree_sum(first, count / 2, present, n);
    const std::vector<float> right = tree_sum(first + count / 2, count / 2, present, n);
    for (size_t i = 0; i < right.size(); i++) {
        left[i] = left[i] + right[i];
    }
    return left;
}

/* A member's lanes, pushed one after the other as a training step does. */
struct lane_stack {
    std::vector<std::vector<float>> memory;
    crl_lane_node node[CRL_MAX_LANE_NODES];
    int nodes = 0;

    crl_status fill(int first, int last, int64_t n) {
        nodes = 0;
        memory.clear();
        for (int lane = first; lane < last; lane++) {
            COMM_CLAIM(nodes < CRL_MAX_LANE_NODES, "lane %d: the stack is full", lane);
            if ((size_t)nodes == memory.size()) {
                memory.emplace_back((size_t)n);
            }
            float *data = memory[(size_t)nodes].data();
            for (int64_t i = 0; i < n; i++) {
                data[i] = lane_value(seed, lane, i);
            }
            CRL_TRY(crl_lane_push_node(node, &nodes, {lane, 1, data}, n, plain_reduce(), nullptr));
        }
        return CRL_STATUS_OK;
    }
};

crl_status compare(const float *sum, const float *expected, const allreduce_case &at, int size) {
    for (int64_t i = 0; i < at.count; i++) {
        const bool same = at.exact ? memcmp(&sum[i], &expected[i], sizeof *sum) == 0
                                   : std::fabs(sum[i] - expected[i]) <= 0.1f * (float)at.lanes;
        COMM_CLAIM(same, "%s, %d members, %d of %d lanes, %lld elements: [%lld] is %.9g, not %.9g",
                   at.algorithm->name, size, at.present, at.lanes, (long long)at.count,
                   (long long)i, (double)sum[i], (double)expected[i]);
    }
    return CRL_STATUS_OK;
}

} // namespace

crl_status check_allreduce(crl_comm *comm, const allreduce_case &at) {
    const crl_group group = {comm, nullptr, comm->ranks, comm->rank, 1};
    std::vector<int> first = at.lane_first;
    for (int i = 0; first.size() <= (size_t)comm->ranks; i++) {
        first.push_back(i * at.present / comm->ranks);
    }
    crl_allreduce_config config = {};
    config.group = &group;
    config.reduce = plain_reduce();
    config.channel = 3;
    config.max_count = at.count;
    config.segment_bytes = at.segment_bytes;
    config.lanes = at.lanes;
    config.lane_first = first.data();
    const size_t scratch_bytes = at.algorithm->scratch_bytes(&config);
    std::vector<char> scratch(scratch_bytes + 2 * CRL_ALIGN_BYTES, 'x');
    const size_t shift = CRL_ALIGN_BYTES - (uintptr_t)scratch.data() % CRL_ALIGN_BYTES;
    config.scratch = at.lend_scratch ? scratch.data() + shift : nullptr;
    crl_allreduce *allreduce = nullptr;
    CRL_TRY(at.algorithm->create(&allreduce, &config));
    std::vector<float> result((size_t)at.count, -1), expected((size_t)at.count),
        other((size_t)at.count);
    crl_status status = CRL_STATUS_OK;
    for (int round = 0; round < 2 && status == CRL_STATUS_OK; round++) {
        lane_stack stack;
        CRL_TRY(stack.fill(first[(size_t)comm->rank], first[(size_t)comm->rank + 1], at.count));
        status = at.algorithm->start(allreduce, stack.node, stack.nodes, result.data(), at.count);
        if (status == CRL_STATUS_OK) {
            status = crl_allreduce_wait(at.algorithm, allreduce, comm, "sum");
        }
        if (status == CRL_STATUS_OK && stack.nodes > 0) {
            result.assign(stack.node[0].data, stack.node[0].data + at.count);
        }
    }
    at.algorithm->destroy(allreduce);
    CRL_TRY(status);
    for (size_t i = 0; i < scratch.size(); i++) {
        COMM_CLAIM((i >= shift && i < shift + scratch_bytes) || scratch[i] == 'x',
                   "%s wrote beside its scratch", at.algorithm->name);
    }
    if (comm->rank == 0) {
        expected = tree_sum(0, at.lanes, at.present, at.count);
        expected.resize((size_t)at.count);
        other = result;
    }
    CRL_TRY(crl_broadcast(&group, 0, expected.data(), expected.size() * sizeof(float)));
    CRL_TRY(crl_broadcast(&group, 0, other.data(), other.size() * sizeof(float)));
    CRL_TRY(compare(result.data(), expected.data(), at, comm->ranks));
    COMM_CLAIM(at.count == 0 ||
                   memcmp(other.data(), result.data(), other.size() * sizeof(float)) == 0,
               "%s: members 0 and %d differ", at.algorithm->name, comm->rank);
    return CRL_STATUS_OK;
}

crl_status check_allreduce_grid(crl_comm *comm) {
    const bool power = (comm->ranks & (comm->ranks - 1)) == 0;
    for (const void *const *row = crl_allreduce_algorithms; *row != nullptr; row++) {
        const auto *algorithm = static_cast<const crl_allreduce_algorithm *>(*row);
        for (int lanes = 1; lanes <= 16; lanes *= 2) {
            for (int64_t count : {0, 1, 15, 16, 17, 1000}) {
                for (int present : {lanes, lanes * 3 / 4, 1}) {
                    const bool even = power && lanes >= comm->ranks && present == lanes &&
                                      strcmp(algorithm->name, "halving") == 0;
                    CRL_TRY(check_allreduce(
                        comm,
                        {algorithm, lanes, present, count, 256, algorithm->canonical || even, {}}));
                }
            }
        }
        CRL_TRY(check_allreduce(comm, {algorithm, 8, 8, 100003, 0, algorithm->canonical, {}}));
        CRL_TRY(check_allreduce(comm, {algorithm, 4, 3, 100003, 4096, algorithm->canonical, {}}));
        CRL_TRY(check_allreduce(comm, {algorithm, 4, 0, 100, 0, true, {}}));
    }
    return CRL_STATUS_OK;
}

namespace {

/* Several sums on their way at once, each rank starting them when it likes. */
crl_status sums_in_flight(crl_comm *comm) {
    const int sums = 6;
    const int64_t count = 3000;
    const crl_group group = {comm, nullptr, comm->ranks, comm->rank, 2};
    std::vector<int> first;
    for (int i = 0; i <= comm->ranks; i++) {
        first.push_back(i * 8 / comm->ranks);
    }
    const auto at = [](int k) {
        return static_cast<const crl_allreduce_algorithm *>(crl_allreduce_algorithms[k % 3]);
    };
    std::vector<crl_allreduce *> all((size_t)sums, nullptr);
    std::vector<lane_stack> stacks((size_t)sums);
    std::vector<std::vector<float>> results((size_t)sums, std::vector<float>((size_t)count));
    for (int k = 0; k < sums; k++) {
        crl_allreduce_config config = {};
        config.group = &group;
        config.reduce = plain_reduce();
        config.channel = k;
        config.max_count = count;
        config.segment_bytes = 128;
        config.lanes = 8;
        config.lane_first = first.data();
        CRL_TRY(at(k)->create(&all[(size_t)k], &config));
        CRL_TRY(stacks[(size_t)k].fill(first[(size_t)comm->rank], first[(size_t)comm->rank + 1],
                                       count));
    }
    for (int s = 0; s < sums; s++) {
        const int k = (s + comm->rank * 5) % sums; /* an own order on every rank */
        lane_stack &stack = stacks[(size_t)k];
        CRL_TRY(at(k)->start(all[(size_t)k], stack.node, stack.nodes, results[(size_t)k].data(),
                             count));
    }
    for (bool busy = true; busy;) {
        busy = false;
        for (int k = 0; k < sums; k++) {
            bool done = false;
            int peer = -1;
            CRL_TRY(at(k)->progress(all[(size_t)k], &done, &peer));
            busy = busy || !done;
        }
        if (busy) {
            comm->transport->idle(comm->endpoint, 1000000);
        }
    }
    const std::vector<float> expected = tree_sum(0, 8, 8, count);
    for (int k = 0; k < sums; k++) {
        const lane_stack &stack = stacks[(size_t)k];
        const float *sum = stack.nodes > 0 ? stack.node[0].data : results[(size_t)k].data();
        CRL_TRY(compare(sum, expected.data(), {at(k), 8, 8, count, 0, at(k)->canonical, {}},
                        comm->ranks));
        at(k)->destroy(all[(size_t)k]);
    }
    return CRL_STATUS_OK;
}

} // namespace

const std::vector<conformance_check> conformance_checks = {
    {"OrderWithOneTag", order_with_one_tag}, {"TagsAreIndependent", tags_are_independent},
    {"CountsTraffic", counts_traffic},       {"WaitMakesProgress", wait_makes_progress},
    {"SmallCollectives", small_collectives}, {"AllReduceGrid", check_allreduce_grid},
    {"SumsInFlight", sums_in_flight},
};

namespace {

class CommConformance : public testing::TestWithParam<int> {};

TEST_P(CommConformance, EveryCheckOverThreads) {
    for (const conformance_check &check : conformance_checks) {
        const crl_status status = launch(&crl_transport_local, GetParam(), 60000000000, check.run);
        ASSERT_EQ(status, CRL_STATUS_OK) << check.name << ": " << crl_error_message();
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, CommConformance, testing::Values(1, 2, 3, 4, 5, 6, 7, 8));

} // namespace
} // namespace comm_test
