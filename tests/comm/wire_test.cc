/* SPDX-License-Identifier: Apache-2.0 */
/* Wires over a device that does its work late: the bits of messages in host memory. */
#include <atomic>

#include <gtest/gtest.h>

#include "engine/base/registry.h"
#include "engine/kernels/kernels.h"
#include "tests/comm/wire_device.h"
#include "tests/comm/wire_scenarios.h"

using namespace comm_test;

namespace {

const wire_bench direct = {&crl_device_cpu, plain_reduce(), nullptr};

class CommWire : public testing::TestWithParam<const crl_wire_kind *> {
  protected:
    void SetUp() override {
        bench = {late(), late_reduce(), GetParam()};
        live = late_device::get().live();
    }
    void TearDown() override {
        late_device::get().hang(false);
        EXPECT_EQ(late_device::get().live(), live); /* everything given back */
    }
    /* The same bits on every rank as without a device, whatever the order of the device's work. */
    template <class Scenario, class... Arguments>
    void same_as_direct(int ranks, uint32_t seeds, Arguments... arguments) {
        outcome_bits expected, got;
        ASSERT_EQ(collect<Scenario>(ranks, direct, nullptr, &expected, arguments...), CRL_STATUS_OK)
            << crl_error_message();
        for (uint32_t seed = 0; seed < seeds; seed++) {
            late_device::get().seed(seed);
            ASSERT_EQ(collect<Scenario>(ranks, bench, nullptr, &got, arguments...), CRL_STATUS_OK)
                << crl_error_message();
            for (int rank = 0; rank < ranks; rank++) {
                const auto &a = expected[(size_t)rank], &b = got[(size_t)rank];
                ASSERT_EQ(a.size(), b.size());
                ASSERT_TRUE(a.empty() || memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0)
                    << GetParam()->name << ", rank " << rank << ", seed " << seed;
            }
        }
    }

    wire_bench bench;
    int64_t live;
};

} // namespace

TEST_P(CommWire, CarriesAPipelineBothWays) {
    for (int ranks = 2; ranks <= 5; ranks++) {
        same_as_direct<chain>(ranks, 6, (int64_t)1000);
    }
    same_as_direct<chain>(3, 1, (int64_t)0);
}

TEST_P(CommWire, CarriesManyTagsAndSizesInAnyOrder) {
    for (int ranks = 2; ranks <= 4; ranks++) {
        same_as_direct<crowd>(ranks, 3, false);
        same_as_direct<crowd>(ranks, 3, true);
    }
}

TEST_P(CommWire, SumsAreTheSameBits) {
    for (const void *const *row = crl_allreduce_algorithms; *row != nullptr; row++) {
        const auto *algorithm = static_cast<const crl_allreduce_algorithm *>(*row);
        for (int ranks = 2; ranks <= 5; ranks++) {
            for (int present : {8, 7, 0}) {
                const sum_case at = {algorithm, 8, present, 1003, present == 7};
                same_as_direct<lane_total>(ranks, 1, at);
            }
        }
    }
}

TEST_P(CommWire, GathersAndScatters) {
    for (int ranks = 1; ranks <= 4; ranks++) {
        same_as_direct<shards>(ranks, 2, (int64_t)100);
    }
}

/* The first wire is left with messages that are done but not cleared away. */
TEST_P(CommWire, ASecondWireOfTheJobCarriesToo) {
    const crl_status status =
        launch(&crl_transport_local, 2, 2000000000, [&](crl_comm *comm) -> crl_status {
            for (int wire = 0; wire < 2; wire++) {
                device_floats data;
                CRL_TRY(on_device(comm, bench, {}, [&](const wire_rank &at) -> crl_status {
                    crl_request request = {};
                    CRL_TRY(data.make(at, 100));
                    CRL_TRY(comm->rank == 0
                                ? crl_comm_send(at.tensors, 1, wire, data.data, 400, &request)
                                : crl_comm_recv(at.tensors, 0, wire, data.data, 400, &request));
                    return crl_comm_wait(at.tensors, &request, "it", nullptr, nullptr);
                }));
            }
            return CRL_STATUS_OK;
        });
    EXPECT_EQ(status, CRL_STATUS_OK) << crl_error_message();
}

INSTANTIATE_TEST_SUITE_P(Kinds, CommWire, testing::Values(&crl_wire_staged, &crl_wire_shared),
                         [](const auto &kind) { return std::string(kind.param->name); });

namespace {

/* What each rank ended with. */
struct ends {
    crl_status status;
    std::string message;
};
template <class Body> ends run_all(int ranks, int64_t deadline_ns, Body body) {
    const crl_status status = launch(&crl_transport_local, ranks, deadline_ns, body);
    return {status, crl_error_message()};
}

} // namespace

/* A rank fails after a few messages: the others say so, and nothing is lost or touched later. */
TEST_P(CommWire, EndsWhenARankDies) {
    for (int dies = 0; dies < 3; dies++) {
        for (int after = 1; after < 12; after += 3) {
            std::vector<crl_status> ended(3);
            const ends all = run_all(3, 30000000000, [&](crl_comm *comm) {
                device_floats data[3];
                crl_request requests[3] = {};
                const crl_status status = on_device(comm, bench, {}, [&](const wire_rank &at) {
                    for (device_floats &floats : data) {
                        CRL_TRY(floats.make(at, 1000));
                    }
                    for (int step = 0;; step++) {
                        if (comm->rank == dies && step == after) {
                            return CRL_FAIL(IO, "rank %d has had enough", dies);
                        }
                        const int to = (comm->rank + 1) % 3, from = (comm->rank + 2) % 3;
                        CRL_TRY(crl_comm_recv(at.tensors, from, step, data[0].data, 4000,
                                              &requests[0]));
                        CRL_TRY(
                            crl_comm_send(at.tensors, to, step, data[1].data, 4000, &requests[1]));
                        CRL_TRY(crl_comm_wait(at.tensors, &requests[0], "ring", nullptr, nullptr));
                        CRL_TRY(crl_comm_wait(at.tensors, &requests[1], "ring", nullptr, nullptr));
                    }
                });
                ended[(size_t)comm->rank] = status;
                return status;
            });
            EXPECT_EQ(all.status, CRL_STATUS_IO);
            EXPECT_EQ(all.message, "rank " + std::to_string(dies) + " has had enough");
            for (int rank = 0; rank < 3; rank++) {
                EXPECT_EQ(ended[(size_t)rank], rank == dies ? CRL_STATUS_IO : CRL_STATUS_ABORTED);
            }
        }
    }
}

TEST_P(CommWire, ReportsAMessageThatNeverComes) {
    const ends all = run_all(2, 200000000, [&](crl_comm *comm) {
        device_floats data;
        return on_device(comm, bench, {}, [&](const wire_rank &at) {
            CRL_TRY(data.make(at, 10));
            crl_request request = {};
            const int other = 1 - comm->rank;
            CRL_TRY(crl_comm_recv(at.tensors, other, 5, data.data, 40, &request));
            return crl_comm_wait(at.tensors, &request, "rain", nullptr, nullptr);
        });
    });
    EXPECT_EQ(all.status, CRL_STATUS_TIMEOUT);
    EXPECT_NE(all.message.find("for rain from rank"), std::string::npos) << all.message;
    EXPECT_NE(all.message.find("waits for rank"), std::string::npos) << all.message;
}

/* Work that never ends, as that of a kernel whose peer is dead. */
TEST_P(CommWire, WaitingForAStreamHasADeadline) {
    const ends all = run_all(2, 200000000, [&](crl_comm *comm) {
        device_floats data;
        return on_device(comm, bench, {}, [&](const wire_rank &at) {
            CRL_TRY(data.make(at, 10));
            late_device::get().hang(true);
            CRL_TRY(crl_device_zero(bench.device, at.stream, data.data, 40));
            return crl_comm_wait_stream(at.tensors, "the losses", nullptr, nullptr);
        });
    });
    EXPECT_EQ(all.status, CRL_STATUS_TIMEOUT);
    EXPECT_NE(all.message.find("for the losses on its own device"), std::string::npos)
        << all.message;
}

TEST_P(CommWire, RefusesSizesThatDiffer) {
    const ends all = run_all(2, 30000000000, [&](crl_comm *comm) {
        device_floats data;
        return on_device(comm, bench, {}, [&](const wire_rank &at) {
            CRL_TRY(data.make(at, 10));
            crl_request request = {};
            CRL_TRY(comm->rank == 0 ? crl_comm_send(at.tensors, 1, 7, data.data, 36, &request)
                                    : crl_comm_recv(at.tensors, 0, 7, data.data, 40, &request));
            return crl_comm_wait(at.tensors, &request, "it", nullptr, nullptr);
        });
    });
    EXPECT_EQ(all.status, CRL_STATUS_COMM);
    EXPECT_EQ(all.message, "message from rank 0 to rank 1, tag 7: sent 36 bytes, the receive "
                           "expects 40");
}

/* The n-th allocation fails, for every n until none does: an error on all ranks, nothing lost. */
TEST_P(CommWire, SurvivesEveryFailingAllocation) {
    bool passed = false;
    for (int64_t n = 1; !passed; n++) {
        ASSERT_LT(n, 2000);
        crl_alloc_watch watch = {};
        watch.fail_at = n;
        crl_alloc_watch *before = crl_alloc_attach(&watch);
        outcome_bits bits;
        const crl_status status = collect<chain>(3, bench, nullptr, &bits, (int64_t)100);
        crl_alloc_attach(before);
        ASSERT_EQ(watch.live_bytes, 0) << n;
        passed = status == CRL_STATUS_OK;
        ASSERT_TRUE(passed || status == CRL_STATUS_NOMEM) << crl_error_message();
    }
}

TEST_P(CommWire, AllocatesNothingAfterTheFirstSteps) {
    std::atomic<int64_t> grown{0};
    const ends all = run_all(2, 30000000000, [&](crl_comm *comm) {
        device_floats data[2];
        return on_device(comm, bench, {}, [&](const wire_rank &at) -> crl_status {
            CRL_TRY(data[0].make(at, 1000));
            CRL_TRY(data[1].make(at, 1000));
            int64_t before = 0;
            for (int step = 0; step < 40; step++) {
                before = step == 5 ? crl_alloc_thread_count() : before;
                crl_request request[2] = {};
                const int other = 1 - comm->rank;
                CRL_TRY(crl_comm_recv(at.tensors, other, 1, data[0].data, 4000, &request[0]));
                CRL_TRY(crl_comm_send(at.tensors, other, 1, data[1].data, 4000, &request[1]));
                CRL_TRY(crl_comm_wait(at.tensors, &request[0], "x", nullptr, nullptr));
                CRL_TRY(crl_comm_wait(at.tensors, &request[1], "x", nullptr, nullptr));
                CRL_TRY(crl_comm_wait_stream(at.tensors, "x", nullptr, nullptr));
            }
            grown += crl_alloc_thread_count() - before;
            return CRL_STATUS_OK;
        });
    });
    EXPECT_EQ(all.status, CRL_STATUS_OK) << all.message;
    EXPECT_EQ(grown, 0);
}

TEST(CommWireChoice, TakesTheFirstThatCanBeUsed) {
    for (const char *name : {"auto", "shared", "staged"}) {
        const crl_status status =
            launch(&crl_transport_local, 2, 30000000000, [&](crl_comm *comm) -> crl_status {
                crl_wire_config config = {};
                config.host = comm;
                config.device = late();
                const crl_wire_kind *kind = nullptr;
                CRL_TRY(crl_wire_find(&kind, name, &config));
                COMM_CLAIM(strcmp(kind->name, strcmp(name, "auto") == 0 ? "shared" : name) == 0,
                           "%s for %s", kind->name, name);
                config.device = &crl_device_cpu;
                CRL_TRY(crl_wire_find(&kind, name, &config));
                COMM_CLAIM(kind == nullptr, "a wire for the host");
                crl_transport apart = *comm->transport;
                crl_comm other = *comm;
                apart.share = nullptr; /* as between processes */
                other.transport = &apart;
                config.host = &other;
                config.device = late();
                CRL_TRY(crl_wire_find(&kind, "auto", &config));
                COMM_CLAIM(kind == &crl_wire_staged, "%s between processes", kind->name);
                COMM_CLAIM(crl_wire_find(&kind, "shared", &config) == CRL_STATUS_UNSUPPORTED,
                           "shared between processes");
                COMM_CLAIM(crl_wire_find(&kind, "stagd", &config) == CRL_STATUS_NOT_FOUND,
                           "a wire that is not there");
                return CRL_STATUS_OK;
            });
        EXPECT_EQ(status, CRL_STATUS_OK) << crl_error_message();
    }
}
