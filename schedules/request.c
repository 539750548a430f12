/* SPDX-License-Identifier: Apache-2.0 */
/* What all schedules do with what they are asked for. Refuses to know any of them. */
#include "schedules/request_internal.h"

#include <math.h>

/* Sums over a whole step stay finite. */
static const double largest_cost = 1e100;

static bool is_cost(double value) {
    return value >= 0 && value <= largest_cost;
}

static crl_status check_costs(const crl_schedule *schedule, const crl_schedule_request *request) {
    for (int s = 0; request->cost && s < request->stages; s++) {
        const crl_stage_cost *c = &request->cost[s];
        if (!is_cost(c->forward_s) || !is_cost(c->input_s) || !is_cost(c->weight_s) ||
            !is_cost(c->kept_bytes) || !is_cost(c->held_bytes)) {
            return CRL_FAIL(INVALID, "%s: a cost of stage %d is not from 0 to %g", schedule->name,
                            s, largest_cost);
        }
    }
    if (!is_cost(request->message_s) || !is_cost(request->memory_limit_bytes)) {
        return CRL_FAIL(INVALID, "%s: message %g s, memory limit %g bytes, expected 0 to %g",
                        schedule->name, request->message_s, request->memory_limit_bytes,
                        largest_cost);
    }
    return CRL_STATUS_OK;
}

crl_status crl_schedule_check_request(const crl_schedule *schedule,
                                      const crl_schedule_request *request) {
    if (request->positions < 1 || request->stages < 1 || request->micro_batches < 1 ||
        request->group < 0) {
        return CRL_FAIL(INVALID,
                        "%s: %d positions, %d stages, %d micro-batches in groups of %d, expected "
                        "1 or more",
                        schedule->name, request->positions, request->stages, request->micro_batches,
                        request->group);
    }
    CRL_TRY(crl_schedule_check_stages(schedule, request->positions, request->stages));
    for (int p = 0; request->widths && p < request->positions; p++) {
        if (request->widths[p] < 1) {
            return CRL_FAIL(INVALID, "%s: position %d has %d replicas, expected 1 or more",
                            schedule->name, p, request->widths[p]);
        }
    }
    return check_costs(schedule, request);
}

crl_status crl_schedule_build(crl_program **out, const crl_schedule *schedule,
                              const crl_schedule_request *request, crl_schedule_emit_fn emit) {
    crl_status status = CRL_STATUS_OK;
    crl_program *program = NULL;
    CRL_TRY_OUT(crl_schedule_check_request(schedule, request));
    CRL_TRY_OUT(
        crl_program_create(&program, request->positions, request->stages, request->micro_batches));
    CRL_TRY_OUT(emit(program, request));
    *out = program;
    program = NULL;
out:
    crl_program_destroy(program);
    return status;
}

bool crl_schedule_is_undealt(const crl_schedule_request *request) {
    return !request->widths;
}

/*
 * Dealing a list out to replicas takes actions out of it, which delays none of the others: the
 * makespan does not grow, the time spent computing stays, and idle or not there are now
 * sum(widths) devices instead of P.
 */
double crl_schedule_dealt_bubble(const crl_schedule_request *request, double bubble) {
    double devices = 0;
    for (int p = 0; p < request->positions; p++) {
        devices += request->widths ? request->widths[p] : 1;
    }
    return 1 - (1 - bubble) * request->positions / devices;
}

static int ceil_div(int a, int b) {
    return (a + b - 1) / b;
}

/*
 * Micro-batches are taken from the replicas of the widest position, of W, in turn: of any n in
 * succession each has at most n/W, rounded up. A replica of a position of w has the shares of W/w
 * of those; where shares do not align it may touch one more at both ends.
 */
int crl_schedule_dealt_peak(const crl_schedule_request *request, int position, int held) {
    const int micro_batches = request->micro_batches;
    const int width = request->widths ? request->widths[position] : 1;
    int widest = 1;
    for (int p = 0; request->widths && p < request->positions; p++) {
        widest = request->widths[p] > widest ? request->widths[p] : widest;
    }
    const bool aligned = micro_batches % widest == 0 && widest % width == 0;
    const int successive = held < micro_batches ? held : micro_batches;
    const int64_t replicas = widest / width + (aligned ? 0 : 2);
    const int64_t touched = ceil_div(successive, widest) * replicas;
    const int share = ceil_div(micro_batches, width);
    const int least = successive < share ? successive : share;
    return touched < least ? (int)touched : least;
}
