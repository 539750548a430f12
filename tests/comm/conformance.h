/* SPDX-License-Identifier: Apache-2.0 */
/* What every transport must do, as bodies run by all ranks; used over local and over mpi. */
#pragma once

#include "tests/comm/comm_test_util.h"

namespace comm_test {

struct conformance_check {
    const char *name;
    crl_status (*run)(crl_comm *comm);
};
extern const std::vector<conformance_check> conformance_checks;

/* One all-reduce of a grid: compares with the sum that one rank makes of all lanes. */
struct allreduce_case {
    const crl_allreduce_algorithm *algorithm;
    int lanes, present; /* L, and how many of them somebody has */
    int64_t count;
    int64_t segment_bytes;
    bool exact;
    std::vector<int> lane_first; /* empty: dealt out evenly */
    bool lend_scratch = false;
};
crl_status check_allreduce(crl_comm *comm, const allreduce_case &at);
crl_status check_allreduce_grid(crl_comm *comm);

} // namespace comm_test
