/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport conformance over MPI, one process per rank:
 *
 *   mpirun -n 3 comm_mpi_conformance           every check, then one long message
 *   mpirun -n 3 comm_mpi_conformance fail R    rank R returns a failure
 *   ... sizes | stall R | kill R | exit R      other ways to end a job; stall: SIGSTOP
 *   ... ranks                                  expects one rank more than there are
 *   ... nomem N                                the N-th allocation of rank 1 fails
 *
 * Exits with 0 when all is well. A failed job says "rank R of N ended with: message" on every rank.
 */
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "tests/comm/conformance.h"

using namespace comm_test;

namespace {

constexpr int64_t long_ns = 60000000000, short_ns = 500000000;

/* Longer than one piece of the transport, by an odd number. */
crl_status long_message(crl_comm *comm) {
    if (comm->ranks < 2 || comm->rank > 1) {
        return CRL_STATUS_OK;
    }
    const size_t bytes = ((size_t)1 << 28) + 12345;
    std::vector<char> data(bytes, 0);
    char last = 0;
    if (comm->rank == 0) {
        data[0] = 1;
        data[bytes - 12346] = 2;
        data[bytes - 1] = 3;
        CRL_TRY(crl_comm_send_wait(comm, 1, CRL_TAG_USER, data.data(), bytes, "long message"));
        CRL_TRY(crl_comm_send_wait(comm, 1, CRL_TAG_USER, &data[bytes - 1], 1, "short message"));
    } else {
        CRL_TRY(crl_comm_recv_wait(comm, 0, CRL_TAG_USER, data.data(), bytes, "long message"));
        CRL_TRY(crl_comm_recv_wait(comm, 0, CRL_TAG_USER, &last, 1, "short message"));
        COMM_CLAIM(data[0] == 1 && data[bytes - 12346] == 2 && data[bytes - 1] == 3 && last == 3,
                   "bytes %d %d %d", data[0], data[bytes - 12346], data[bytes - 1]);
    }
    return CRL_STATUS_OK;
}

crl_status native_allreduce(crl_comm *comm) {
    std::vector<float> data(1000, (float)(comm->rank + 1));
    CRL_TRY(comm->transport->allreduce(comm->endpoint, data.data(), 1000));
    const int sum = comm->ranks * (comm->ranks + 1) / 2;
    COMM_CLAIM(data[0] == (float)sum && data[999] == (float)sum, "%g", (double)data[0]);
    return CRL_STATUS_OK;
}

crl_transport transport; /* mpi's, or one made to fail */

int report(crl_status status) {
    if (status == CRL_STATUS_OK) {
        return 0;
    }
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    fprintf(stderr, "rank %s ended with: %s: %s\n", rank != nullptr ? rank : "0",
            crl_status_name(status), crl_error_message());
    return 1;
}

int all_checks() {
    std::vector<conformance_check> checks = conformance_checks;
    checks.push_back({"LongMessage", long_message});
    checks.push_back({"NativeAllReduce", native_allreduce});
    for (const conformance_check &check : checks) { /* one job each: a process may launch several */
        const crl_status status = launch(&transport, 0, long_ns, check.run);
        if (status != CRL_STATUS_OK) {
            fprintf(stderr, "%s: ", check.name);
            return report(status);
        }
    }
    return 0;
}

crl_status misbehave(crl_comm *comm, const std::string &how, int culprit) {
    char data[8] = {0};
    const int right = (comm->rank + 1) % comm->ranks;
    const crl_group group = {comm, nullptr, comm->ranks, comm->rank, 0};
    CRL_TRY(crl_barrier(&group));
    if (how == "sizes") {
        return comm->rank == 0 ? crl_comm_send_wait(comm, right, 5, data, 5, "five bytes")
               : comm->rank == 1
                   ? crl_comm_recv_wait(comm, 0, 5, data, (size_t)culprit, "other bytes")
                   : crl_comm_recv_wait(comm, 0, 6, data, 1, "what never comes");
    }
    if (comm->rank != culprit) {
        return crl_comm_recv_wait(comm, right, 5, data, 1, "activation 3");
    }
    if (how == "fail") {
        return CRL_FAIL(IO, "disk %d is full", comm->rank);
    }
    if (how == "tag") {
        return crl_comm_send_wait(comm, right, CRL_TAG_USER | 1 << 27, data, 1, "activation 3");
    }
    if (how == "exit") {
        exit(3);
    }
    raise(how == "stall" ? SIGSTOP : SIGKILL);
    return CRL_STATUS_OK;
}

} // namespace

int main(int argc, char **argv) {
    const std::string how = argc > 1 ? argv[1] : "";
    const int number = argc > 2 ? atoi(argv[2]) : 0;
    transport = crl_transport_mpi;
    if (how.empty()) {
        return all_checks();
    }
    if (how == "ranks") {
        const char *size = getenv("OMPI_COMM_WORLD_SIZE");
        return report(launch(&transport, (size != nullptr ? atoi(size) : 1) + 1, 0,
                             [](crl_comm *) { return CRL_STATUS_OK; }));
    }
    crl_alloc_watch watch = {};
    if (how == "nomem") {
        const char *rank = getenv("OMPI_COMM_WORLD_RANK");
        watch.fail_at = rank != nullptr && atoi(rank) == 1 ? number : 0;
        crl_alloc_attach(&watch);
        return report(launch(&transport, 0, short_ns, conformance_checks[0].run));
    }
    const int code = report(launch(&transport, 0, short_ns,
                                   [&](crl_comm *comm) { return misbehave(comm, how, number); }));
    if (launch(&transport, 0, short_ns, [](crl_comm *) { return CRL_STATUS_OK; }) ==
        CRL_STATUS_OK) {
        fprintf(stderr, "a job started after a failed one\n");
    }
    return code;
}
