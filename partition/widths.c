/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts × widths × memory, exactly: bisection between numbers that occur. A question (see
 * width_question.c) answered with yes gives the plan's own largest time, one answered with no the
 * least time that stood in the way, and the search ends when these meet: the result is the optimum
 * itself, not near it. The least memory likewise. Costs are the caller's.
 *
 * cost card: 20 to 60 questions
 */
#include "partition/widths.h"

#include <math.h>

#include "engine/base/alloc.h"
#include "engine/base/units.h"
#include "partition/request_internal.h"
#include "partition/width_question_internal.h"

/* Halfway, or the lower end where no number lies between. */
static double between(double low, double high) {
    const double middle = low + (high - low) / 2;
    return middle > low && middle < high ? middle : low;
}

/* The least B that anything fits in, whatever it takes. */
static double least_bytes(width_question *self, crl_width_plan *plan) {
    if (!crl_width_question_ask(self, INFINITY, INFINITY)) {
        return INFINITY;
    }
    crl_width_question_trace(plan, self);
    double low = 0, high = plan->peak_bytes;
    while (low < high) {
        const double bytes = between(low, high);
        if (crl_width_question_ask(self, INFINITY, bytes)) {
            crl_width_question_trace(plan, self);
            high = plan->peak_bytes;
        } else {
            low = self->next_bytes;
        }
    }
    return high;
}

static crl_status refuse(width_question *self, crl_width_plan *plan, const char *name,
                         double limit) {
    char allowed[CRL_UNITS_EXACT_BYTES], least[CRL_UNITS_EXACT_BYTES];
    const crl_width_problem *problem = self->problem;
    const double bytes = least_bytes(self, plan);
    if (isinf(bytes)) {
        return CRL_FAIL(UNSUPPORTED,
                        "%s: %d units in at most %d stages of at most %d replicas do not use %d "
                        "devices",
                        name, problem->units, self->stages, self->replicas, problem->devices);
    }
    return CRL_FAIL(UNSUPPORTED,
                    "%s: nothing fits %d devices in %s each, the least that would do is %s", name,
                    problem->devices, crl_units_exact_bytes(allowed, limit),
                    crl_units_exact_bytes(least, bytes));
}

crl_status crl_widths_solve(crl_width_plan *inout, const char *name,
                            const crl_width_problem *problem) {
    crl_status status = CRL_STATUS_OK;
    width_question self = {0};
    const double limit = problem->limit_bytes > 0 ? problem->limit_bytes : INFINITY;
    CRL_TRY_OUT(crl_width_question_init(&self, name, problem));
    if (!crl_width_question_ask(&self, INFINITY, limit)) {
        CRL_TRY_OUT(refuse(&self, inout, name, limit));
    }
    crl_width_question_trace(inout, &self);
    double low = 0, high = inout->bottleneck_s;
    while (low < high) {
        const double time_s = between(low, high);
        if (crl_width_question_ask(&self, time_s, limit)) {
            crl_width_question_trace(inout, &self);
            high = inout->bottleneck_s;
        } else {
            low = self.next_time_s;
        }
    }
    (void)crl_width_question_ask(&self, high, limit);
    crl_width_question_trace(inout, &self);
out:
    crl_width_question_fini(&self);
    return status;
}

crl_status crl_widths_least_bytes(double *out, const char *name, const crl_width_problem *problem) {
    crl_status status = CRL_STATUS_OK;
    width_question self = {0};
    crl_width_plan plan = {0};
    const int most = problem->units < problem->devices ? problem->units : problem->devices;
    CRL_TRY_OUT(crl_width_question_init(&self, name, problem));
    CRL_TRY_OUT(crl_alloc(&plan.first, (size_t)most, sizeof *plan.first));
    CRL_TRY_OUT(crl_alloc(&plan.replicas, (size_t)most, sizeof *plan.replicas));
    *out = least_bytes(&self, &plan);
out:
    crl_free(plan.first);
    crl_free(plan.replicas);
    crl_width_question_fini(&self);
    return status;
}
