/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cut with the least bottleneck: the largest time of any stage or boundary, within the memory
 * limit. Exact. Refuses to guess costs: they come measured or computed.
 *
 * Ties: fewest stages (where fewer will do), then the least sum of squared stage times, then the
 * leftmost cuts.
 *
 * cost card: time O(units² · stages) at worst · the optimum over all cuts
 */
#include "engine/ir/partitioner.h"

#include <math.h>

#include "engine/base/units.h"
#include "partition/chain_internal.h"
#include "partition/request_internal.h"

static crl_status report_infeasible(const crl_partition_request *request,
                                    const chain_problem *problem) {
    char limit[CRL_UNITS_EXACT_BYTES], least[CRL_UNITS_EXACT_BYTES];
    double bytes;
    CRL_TRY(crl_chain_least_bytes(&bytes, problem));
    return CRL_FAIL(UNSUPPORTED,
                    "balance: no cut into %s%d stages fits in %s per device, the least that would "
                    "do is %s",
                    request->fewer_stages ? "at most " : "", problem->stages,
                    crl_units_exact_bytes(limit, request->memory_limit_bytes),
                    crl_units_exact_bytes(least, bytes));
}

static crl_status cut(crl_partition *out, const crl_partition_request *request) {
    crl_partition result;
    bool feasible;
    CRL_TRY(crl_partition_check_request("balance", request));
    if (!request->compute_s) {
        return CRL_FAIL(INVALID, "balance: has no times of the units");
    }
    const double limit = request->memory_limit_bytes;
    const chain_problem problem = {.units = request->units,
                                   .stages = crl_partition_stages(request),
                                   .fewer_stages = request->fewer_stages,
                                   .time = request->compute_s,
                                   .state_bytes = request->state_bytes,
                                   .active_bytes = request->activation_bytes,
                                   .in_flight = request->in_flight,
                                   .widths = request->widths,
                                   .boundary = request->boundary_s,
                                   .may_cut_before = request->may_cut_before,
                                   .limit_bytes = limit > 0 ? limit : INFINITY};
    CRL_TRY(crl_chain_solve(&result, &feasible, &problem));
    if (!feasible) {
        return report_infeasible(request, &problem);
    }
    crl_partition_measure(&result, request);
    *out = result;
    return CRL_STATUS_OK;
}

const crl_partitioner crl_partitioner_balance = {
    .name = "balance",
    .help = "least time of the slowest stage or boundary, within the memory limit",
    .cut = cut,
};
