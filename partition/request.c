/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of a request, and the figures of a result, the same for all partitioners. */
#include "partition/request_internal.h"

#include <math.h>

#include "engine/base/units.h"

static int possible_stages(const crl_partition_request *request) {
    int stages = request->units;
    for (int j = 1; j < request->units && request->may_cut_before; j++) {
        stages -= !request->may_cut_before[j];
    }
    return stages;
}

int crl_partition_stages(const crl_partition_request *request) {
    const int possible = possible_stages(request);
    return request->stages < possible ? request->stages : possible;
}

int crl_partition_in_flight(const int *in_flight, int stages, int s) {
    return in_flight ? in_flight[s] : stages - s;
}

/* Sums and squares of sums stay finite. */
static const double largest_cost = 1e100;

static crl_status check_costs(const char *name, const char *what, const double *cost, int units) {
    for (int j = 0; cost && j < units; j++) {
        if (!(cost[j] >= 0 && cost[j] <= largest_cost)) {
            return CRL_FAIL(INVALID, "%s: %s of unit %d is %g, expected 0 to %g", name, what, j,
                            cost[j], largest_cost);
        }
    }
    return CRL_STATUS_OK;
}

crl_status crl_partition_check_request(const char *name, const crl_partition_request *request) {
    const int units = request->units, stages = request->stages;
    if (units < 1 || units > PARTITION_MAX_UNITS) {
        return CRL_FAIL(INVALID, "%s: %d units, expected 1 to %d", name, units,
                        PARTITION_MAX_UNITS);
    }
    if (stages < 1 || stages > CRL_PARTITION_MAX_STAGES) {
        return CRL_FAIL(INVALID, "%s: %d stages, expected 1 to %d", name, stages,
                        CRL_PARTITION_MAX_STAGES);
    }
    const int possible = possible_stages(request);
    if (stages > possible && !request->fewer_stages) {
        return CRL_FAIL(INVALID, "%s: %d stages, but %d units can be cut into %d at most", name,
                        stages, units, possible);
    }
    if (request->in_flight && request->fewer_stages) {
        return CRL_FAIL(INVALID,
                        "%s: micro-batches in flight are given for %d stages, but fewer "
                        "may be made",
                        name, stages);
    }
    for (int s = 0; request->widths && s < stages; s++) {
        if (request->widths[s] < 1 || request->fewer_stages) {
            return CRL_FAIL(INVALID, "%s: stage %d has %d replicas%s", name, s, request->widths[s],
                            request->fewer_stages ? ", but fewer stages may be made"
                                                  : ", expected 1 or more");
        }
    }
    const double limit = request->memory_limit_bytes;
    if (!isfinite(limit) || limit < 0) {
        return CRL_FAIL(INVALID, "%s: memory limit is %g bytes, expected 0 or more", name, limit);
    }
    CRL_TRY(check_costs(name, "time", request->compute_s, units));
    CRL_TRY(check_costs(name, "state", request->state_bytes, units));
    CRL_TRY(check_costs(name, "activation", request->activation_bytes, units));
    return check_costs(name, "boundary time", request->boundary_s, units);
}

static double sum_of(const double *cost, int first, int last) {
    double sum = 0;
    for (int j = first; cost && j < last; j++) {
        sum += cost[j];
    }
    return sum;
}

void crl_partition_measure(crl_partition *inout, const crl_partition_request *request) {
    inout->bottleneck_s = 0;
    inout->peak_bytes = 0;
    for (int s = 0; s < inout->stages; s++) {
        const int first = inout->first[s];
        const int last = s + 1 < inout->stages ? inout->first[s + 1] : request->units;
        const double bytes = sum_of(request->state_bytes, first, last) +
                             crl_partition_in_flight(request->in_flight, inout->stages, s) *
                                 sum_of(request->activation_bytes, first, last);
        const double time_s = sum_of(request->compute_s, first, last);
        inout->bottleneck_s =
            fmax(inout->bottleneck_s, request->widths ? time_s / request->widths[s] : time_s);
        if (s > 0 && request->boundary_s) {
            inout->bottleneck_s = fmax(inout->bottleneck_s, request->boundary_s[first - 1]);
        }
        inout->peak_bytes = fmax(inout->peak_bytes, bytes);
    }
}

crl_status crl_partition_require_fit(const char *name, const crl_partition *partition,
                                     const crl_partition_request *request) {
    char limit[CRL_UNITS_EXACT_BYTES], peak[CRL_UNITS_EXACT_BYTES];
    if (request->memory_limit_bytes == 0 || partition->peak_bytes <= request->memory_limit_bytes) {
        return CRL_STATUS_OK;
    }
    return CRL_FAIL(UNSUPPORTED, "%s: %d stages need %s on one device, the limit is %s", name,
                    partition->stages, crl_units_exact_bytes(peak, partition->peak_bytes),
                    crl_units_exact_bytes(limit, request->memory_limit_bytes));
}
