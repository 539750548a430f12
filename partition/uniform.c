/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Equal numbers of units per stage, as equal as the places where cuts may be allow: least largest
 * stage, then least sum of squares, then leftmost cuts (larger stages last). Looks at no cost, and
 * refuses a result above the memory limit instead of changing it.
 */
#include "engine/ir/partitioner.h"

#include <math.h>

#include "engine/base/alloc.h"
#include "partition/chain_internal.h"
#include "partition/request_internal.h"

static crl_status solve(crl_partition *result, const crl_partition_request *request) {
    crl_status status = CRL_STATUS_OK;
    bool feasible;
    double *one = NULL;
    CRL_TRY_OUT(crl_alloc(&one, (size_t)request->units, sizeof *one));
    for (int j = 0; j < request->units; j++) {
        one[j] = 1;
    }
    const chain_problem problem = {.units = request->units,
                                   .stages = crl_partition_stages(request),
                                   .time = one,
                                   .may_cut_before = request->may_cut_before,
                                   .limit_bytes = INFINITY};
    CRL_TRY_OUT(crl_chain_solve(result, &feasible, &problem));
    CRL_ASSERT(feasible);
out:
    crl_free(one);
    return status;
}

static crl_status cut(crl_partition *out, const crl_partition_request *request) {
    crl_partition result;
    CRL_TRY(crl_partition_check_request("uniform", request));
    CRL_TRY(solve(&result, request));
    crl_partition_measure(&result, request);
    CRL_TRY(crl_partition_require_fit("uniform", &result, request));
    *out = result;
    return CRL_STATUS_OK;
}

const crl_partitioner crl_partitioner_uniform = {
    .name = "uniform",
    .help = "the same number of layers in every stage",
    .cut = cut,
};
