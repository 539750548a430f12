/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that fail, stop or lose messages, over threads; and what the others then say. */
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>

#include <gtest/gtest.h>

#include "engine/base/thread.h"
#include "tests/comm/conformance.h"

using namespace comm_test;

namespace {

constexpr int64_t long_ns = 60000000000, short_ns = 150000000;

/* Keeps a rank away until the others have ended. */
struct gate {
    std::mutex mutex;
    std::condition_variable changed;
    int waiting_for;
    explicit gate(int others) : waiting_for(others) {}
    void pass_one() {
        const std::lock_guard<std::mutex> lock(mutex);
        waiting_for--;
        changed.notify_all();
    }
    void wait() {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [this] { return waiting_for <= 0; });
    }
};

/* The local transport, with one rank's sends tampered with. A rank is a thread. */
enum class mode { none, drop, delay, die };
struct held_message {
    int peer, tag;
    const void *data;
    size_t bytes;
    crl_request *request;
};
struct tampering {
    mode what = mode::none;
    int countdown = 0;
    std::deque<held_message> held;
};
thread_local tampering tamper;

crl_status faulty_send(crl_endpoint *endpoint, int peer, int tag, const void *data, size_t bytes,
                       crl_request *request) {
    if (tamper.what == mode::drop && tamper.countdown-- == 0) {
        return CRL_STATUS_OK; /* the request stays at rest: done */
    }
    if (tamper.what == mode::die && tamper.countdown-- == 0) {
        const crl_status status = CRL_FAIL(IO, "cable %d is cut", peer);
        crl_transport_local.abort(endpoint, crl_error_get());
        return status;
    }
    if (tamper.what == mode::delay) {
        tamper.held.push_back({peer, tag, data, bytes, request});
        *request = {&tamper, peer, tag, false, true};
        tamper.countdown = 5;
        return CRL_STATUS_OK;
    }
    return crl_transport_local.send(endpoint, peer, tag, data, bytes, request);
}

crl_status faulty_test(crl_endpoint *endpoint, crl_request *request, bool *done) {
    if (!tamper.held.empty() && tamper.countdown-- <= 0) {
        const held_message m = tamper.held.front();
        tamper.held.pop_front();
        CRL_TRY(crl_transport_local.send(endpoint, m.peer, m.tag, m.data, m.bytes, m.request));
        tamper.countdown = 5;
    }
    if (request->slot == &tamper) {
        *done = false;
        return CRL_STATUS_OK;
    }
    return crl_transport_local.test(endpoint, request, done);
}

/* A held message must go out although nobody brings news: short naps. */
void faulty_idle(crl_endpoint *endpoint, int64_t at_most_ns) {
    crl_transport_local.idle(endpoint, tamper.held.empty() ? at_most_ns : 1000);
}

const crl_transport *faulty() {
    static const crl_transport transport = [] {
        crl_transport t = crl_transport_local;
        t.send = faulty_send;
        t.test = faulty_test;
        t.idle = faulty_idle;
        return t;
    }();
    return &transport;
}

/* Runs `body` on every rank and keeps what each ended with. */
struct outcome {
    crl_status status;
    std::string message;
    std::vector<crl_status> ended;
    std::vector<std::string> said;
};
outcome run(const crl_transport *transport, int ranks, int64_t deadline_ns, rank_body body) {
    outcome out;
    out.ended.assign((size_t)ranks, CRL_STATUS_OK);
    out.said.resize((size_t)ranks);
    out.status = launch(transport, ranks, deadline_ns, [&](crl_comm *comm) {
        const crl_status status = body(comm);
        out.ended[(size_t)comm->rank] = status;
        out.said[(size_t)comm->rank] = status == CRL_STATUS_OK ? "" : crl_error_message();
        return status;
    });
    out.message = out.status == CRL_STATUS_OK ? "" : crl_error_message();
    return out;
}

bool contains(const std::string &text, const char *part) {
    return text.find(part) != std::string::npos;
}

char byte;

crl_status wait_for(crl_comm *comm, int peer, const char *what) {
    char in;
    return crl_comm_recv_wait(comm, peer, CRL_TAG_USER, &in, 1, what);
}

} // namespace

TEST(CommFaults, MismatchedSizesNameBoth) {
    const outcome out = run(&crl_transport_local, 2, long_ns, [](crl_comm *comm) {
        char data[8] = {0};
        return comm->rank == 0
                   ? crl_comm_send_wait(comm, 1, CRL_TAG_USER + 3, data, 5, "five bytes")
                   : crl_comm_recv_wait(comm, 0, CRL_TAG_USER + 3, data, 8, "eight bytes");
    });
    EXPECT_EQ(out.status, CRL_STATUS_COMM);
    EXPECT_EQ(out.message, "message from rank 0 to rank 1, tag " +
                               std::to_string((int)CRL_TAG_USER + 3) +
                               ": sent 5 bytes, the receive expects 8");
    EXPECT_EQ(out.said[0], out.said[1]);
}

TEST(CommFaults, RefusesPeersAndTagsThatDoNotExist) {
    for (int peer : {-1, 2}) {
        const outcome out = run(&crl_transport_local, 2, long_ns, [&](crl_comm *comm) {
            return comm->rank == 0 ? crl_comm_send_wait(comm, peer, 0, &byte, 1, "x")
                                   : wait_for(comm, 0, "y");
        });
        EXPECT_EQ(out.status, CRL_STATUS_INVALID);
        EXPECT_TRUE(contains(out.message, "expected 0 to 1")) << out.message;
        EXPECT_EQ(out.ended[1], CRL_STATUS_ABORTED);
    }
}

TEST(CommFaults, OneFailureEndsAllWithItsRecord) {
    for (int culprit = 0; culprit < 4; culprit++) {
        const outcome out =
            run(&crl_transport_local, 4, long_ns, [&](crl_comm *comm) -> crl_status {
                if (comm->rank == culprit) {
                    return CRL_FAIL(IO, "disk %d is full", culprit);
                }
                return wait_for(comm, (comm->rank + 1) % 4, "what never comes");
            });
        EXPECT_EQ(out.status, CRL_STATUS_IO);
        EXPECT_EQ(out.message, "disk " + std::to_string(culprit) + " is full");
        EXPECT_EQ(crl_error_get()->rank, culprit);
        for (int rank = 0; rank < 4; rank++) {
            EXPECT_EQ(out.ended[(size_t)rank],
                      rank == culprit ? CRL_STATUS_IO : CRL_STATUS_ABORTED);
            EXPECT_EQ(out.said[(size_t)rank], out.message);
        }
    }
}

TEST(CommFaults, DyingTransportEndsAll) {
    const outcome out = run(faulty(), 3, long_ns, [](crl_comm *comm) {
        tamper = {};
        if (comm->rank == 2) {
            tamper.what = mode::die;
            tamper.countdown = 4;
        }
        const crl_status status = check_allreduce_grid(comm);
        tamper = {};
        return status;
    });
    EXPECT_EQ(out.status, CRL_STATUS_IO);
    EXPECT_TRUE(contains(out.message, "is cut")) << out.message;
    EXPECT_EQ(out.said[0], out.message);
    EXPECT_EQ(out.said[1], out.message);
}

TEST(CommFaults, DelayedMessagesChangeNothing) {
    const outcome out = run(faulty(), 3, long_ns, [](crl_comm *comm) -> crl_status {
        tamper = {};
        tamper.what = comm->rank == 1 ? mode::delay : mode::none;
        for (const void *const *row = crl_allreduce_algorithms; *row != nullptr; row++) {
            const auto *algorithm = static_cast<const crl_allreduce_algorithm *>(*row);
            CRL_TRY(check_allreduce(comm, {algorithm, 4, 4, 1000, 512, algorithm->canonical, {}}));
        }
        tamper.what = mode::none;
        return CRL_STATUS_OK;
    });
    EXPECT_EQ(out.status, CRL_STATUS_OK) << out.message;
}

TEST(CommFaults, StalledRankIsNamed) {
    gate others(3);
    const outcome out = run(&crl_transport_local, 4, short_ns, [&](crl_comm *comm) {
        if (comm->rank == 2) {
            others.wait(); /* a computation without end */
            return wait_for(comm, 0, "anything");
        }
        const crl_status status = wait_for(comm, comm->rank == 1 ? 2 : 1, "gradient of stage 1");
        others.pass_one();
        return status;
    });
    EXPECT_EQ(out.status, CRL_STATUS_TIMEOUT);
    EXPECT_TRUE(contains(out.message, "waited 0.")) << out.message;
    EXPECT_TRUE(contains(out.message, " s for gradient of stage 1 from rank ")) << out.message;
    EXPECT_TRUE(contains(out.message, "rank 2 does not answer")) << out.message;
    EXPECT_TRUE(contains(out.message, " waits for rank ")) << out.message;
    EXPECT_TRUE(!contains(out.message, "rank 1 does not")) << out.message;
    for (int rank = 0; rank < 4; rank++) {
        EXPECT_EQ(out.said[(size_t)rank], out.message);
    }
}

TEST(CommFaults, DroppedMessageShowsWhoWaitsForWhom) {
    const outcome out = run(faulty(), 2, short_ns, [](crl_comm *comm) {
        tamper = {};
        if (comm->rank == 0) {
            tamper.what = mode::drop;
            return crl_comm_send_wait(comm, 1, CRL_TAG_USER, &byte, 1, "activation 4");
        }
        return wait_for(comm, 0, "activation 4");
    });
    EXPECT_EQ(out.status, CRL_STATUS_TIMEOUT);
    const bool receiver = contains(out.message, "for activation 4 from rank 0; rank 0 waits for "
                                                "rank 1 (the end of the job) since");
    const bool sender = contains(out.message, "for the end of the job from rank 1; rank 1 waits "
                                              "for rank 0 (activation 4) since");
    EXPECT_TRUE(receiver || sender) << out.message;
}

TEST(CommFaults, SendersTimeOutToo) {
    gate others(1);
    const outcome out = run(&crl_transport_local, 2, short_ns, [&](crl_comm *comm) -> crl_status {
        if (comm->rank == 1) {
            others.wait();
            return CRL_STATUS_OK;
        }
        const crl_status status = crl_comm_send_wait(comm, 1, 0, &byte, 1, "activation 0");
        others.pass_one();
        return status;
    });
    EXPECT_EQ(out.status, CRL_STATUS_TIMEOUT);
    EXPECT_TRUE(contains(out.message, "to send activation 0 to rank 1; rank 1 does not answer"))
        << out.message;
}

TEST(CommFaults, AllReduceNamesTheStalledMember) {
    for (const void *const *row = crl_allreduce_algorithms; *row != nullptr; row++) {
        const auto *algorithm = static_cast<const crl_allreduce_algorithm *>(*row);
        gate others(2);
        const outcome out =
            run(&crl_transport_local, 3, short_ns, [&](crl_comm *comm) -> crl_status {
                if (comm->rank == 1) {
                    others.wait();
                    return CRL_STATUS_OK;
                }
                const crl_status status =
                    check_allreduce(comm, {algorithm, 4, 4, 1000, 0, algorithm->canonical, {}});
                others.pass_one();
                return status;
            });
        EXPECT_EQ(out.status, CRL_STATUS_TIMEOUT);
        EXPECT_TRUE(contains(out.message, "rank 1 does not answer")) << out.message;
        EXPECT_EQ(out.said[0], out.said[2]);
    }
}

/* Member 2 hears of the others through member 0 alone. */
TEST(CommFaults, AgreementNamesTheStalledMember) {
    for (int stalled = 0; stalled < 3; stalled++) {
        gate others(2);
        const outcome out =
            run(&crl_transport_local, 3, short_ns, [&](crl_comm *comm) -> crl_status {
                if (comm->rank == stalled) {
                    others.wait();
                    return CRL_STATUS_OK;
                }
                const crl_group group = {comm, nullptr, 3, comm->rank, 0};
                double part = comm->rank;
                const crl_status status = crl_agree_sum(&group, 0, &part, 1, "the losses");
                others.pass_one();
                return status;
            });
        EXPECT_EQ(out.status, CRL_STATUS_TIMEOUT);
        EXPECT_TRUE(contains(out.message, " the losses ")) << out.message;
        const std::string who = "rank " + std::to_string(stalled) + " does not answer";
        EXPECT_TRUE(contains(out.message, who.c_str())) << out.message;
    }
}

/* A rank that fails on its own gives its buffers back only after crl_comm_abort: nobody writes to
 * them afterwards (the sanitizers watch). */
TEST(CommFaults, AbortWithdrawsRequests) {
    for (int round = 0; round < 20; round++) {
        const outcome out = run(&crl_transport_local, 3, long_ns, [](crl_comm *comm) -> crl_status {
            const size_t bytes = 1 << 20;
            std::vector<char> out_data(bytes, 1);
            auto in = std::make_unique<std::vector<char>>(bytes);
            crl_request requests[4] = {};
            const int right = (comm->rank + 1) % 3, left = (comm->rank + 2) % 3;
            crl_status status = crl_comm_recv(comm, left, 0, in->data(), bytes, &requests[0]);
            if (status == CRL_STATUS_OK && comm->rank == 1) {
                status = CRL_FAIL(NOMEM, "no memory for more");
                crl_comm_abort(comm);
            }
            if (status == CRL_STATUS_OK) {
                status = crl_comm_send(comm, right, 0, out_data.data(), bytes, &requests[1]);
            }
            if (status == CRL_STATUS_OK) {
                status = crl_comm_wait(comm, &requests[0], "a message", nullptr, nullptr);
            }
            if (status == CRL_STATUS_OK) {
                status = crl_comm_wait(comm, &requests[1], "a message", nullptr, nullptr);
            }
            in.reset();
            return status;
        });
        ASSERT_EQ(out.status, CRL_STATUS_NOMEM) << out.message;
        ASSERT_EQ(crl_error_get()->rank, 1);
    }
}

TEST(CommFaults, DestroyInFlightEndsTheJob) {
    const outcome out = run(&crl_transport_local, 2, long_ns, [](crl_comm *comm) -> crl_status {
        const crl_group group = {comm, nullptr, 2, comm->rank, 0};
        const int first[] = {0, 1, 2};
        crl_allreduce_config config = {};
        config.group = &group;
        config.reduce = plain_reduce();
        config.max_count = 100;
        config.lanes = 2;
        config.lane_first = first;
        if (comm->rank == 1) {
            return wait_for(comm, 0, "nothing");
        }
        crl_allreduce *allreduce = nullptr;
        std::vector<float> data(100);
        crl_lane_node node = {0, 1, data.data()};
        CRL_TRY(crl_allreduce_tree.create(&allreduce, &config));
        CRL_TRY(crl_allreduce_tree.start(allreduce, &node, 1, nullptr, 100));
        const crl_status status = CRL_FAIL(INVALID, "a layer failed");
        crl_allreduce_tree.destroy(allreduce);
        return status;
    });
    EXPECT_EQ(out.status, CRL_STATUS_INVALID);
    EXPECT_EQ(out.message, "a layer failed");
    EXPECT_EQ(out.said[1], "a layer failed");
}

TEST(CommFaults, LocalRefusesNoRanksAndTooMany) {
    EXPECT_EQ(launch(&crl_transport_local, 0, 0, [](crl_comm *) { return CRL_STATUS_OK; }),
              CRL_STATUS_INVALID);
    EXPECT_EQ(launch(&crl_transport_local, 1025, 0, [](crl_comm *) { return CRL_STATUS_OK; }),
              CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(),
                 "local transport: the job has 1025 ranks, expected 1 to 1024");
}

TEST(CommLocal, SendCompletesOnlyWhenReceived) {
    const crl_status status =
        launch(&crl_transport_local, 2, long_ns, [](crl_comm *comm) -> crl_status {
            crl_request request = {};
            bool done = true;
            if (comm->rank == 0) {
                CRL_TRY(crl_comm_send(comm, 1, CRL_TAG_USER + 1, &byte, 1, &request));
                CRL_TRY(crl_comm_test(comm, &request, &done));
                COMM_CLAIM(!done, "the receive is not posted before the next message is sent");
                CRL_TRY(crl_comm_send_wait(comm, 1, CRL_TAG_USER, &byte, 1, "permission"));
                CRL_TRY(crl_comm_wait(comm, &request, "a message", nullptr, nullptr));
                return CRL_STATUS_OK;
            }
            char in;
            CRL_TRY(wait_for(comm, 0, "permission"));
            CRL_TRY(crl_comm_recv_wait(comm, 0, CRL_TAG_USER + 1, &in, 1, "a message"));
            return CRL_STATUS_OK;
        });
    EXPECT_EQ(status, CRL_STATUS_OK) << crl_error_message();
}

TEST(CommLocal, ManyRequestsAtOnce) {
    const crl_status status =
        launch(&crl_transport_local, 2, long_ns, [](crl_comm *comm) -> crl_status {
            const int count = 1000;
            std::vector<int> out((size_t)count), in((size_t)count);
            std::vector<crl_request> requests((size_t)count * 2);
            const int peer = 1 - comm->rank;
            for (int k = 0; k < count; k++) {
                out[(size_t)k] = k;
                CRL_TRY(crl_comm_send(comm, peer, k % 7, &out[(size_t)k], sizeof(int),
                                      &requests[(size_t)k]));
            }
            for (int k = 0; k < count; k++) {
                CRL_TRY(crl_comm_recv(comm, peer, k % 7, &in[(size_t)k], sizeof(int),
                                      &requests[(size_t)(count + k)]));
            }
            for (crl_request &request : requests) {
                CRL_TRY(crl_comm_wait(comm, &request, "one of many", nullptr, nullptr));
            }
            COMM_CLAIM(in == out, "order");
            return CRL_STATUS_OK;
        });
    EXPECT_EQ(status, CRL_STATUS_OK) << crl_error_message();
}
