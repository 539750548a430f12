/* SPDX-License-Identifier: Apache-2.0 */
/* What all schedules do with their request. */
#pragma once

#include "engine/ir/schedule.h"

/* INVALID: sizes or widths below 1, stages that are not least_virtual to most_virtual per position,
 * costs below 0 or infinite. */
crl_status crl_schedule_check_request(const crl_schedule *schedule,
                                      const crl_schedule_request *request);

/* Appends the actions of a valid request to an empty program of its sizes. */
typedef crl_status (*crl_schedule_emit_fn)(crl_program *program,
                                           const crl_schedule_request *request);
/* A schedule's `build`: checks the request and has the lists of its program emitted. INVALID as
 * above; what `emit` returns; NOMEM. */
crl_status crl_schedule_build(crl_program **out, const crl_schedule *schedule,
                              const crl_schedule_request *request, crl_schedule_emit_fn emit);

/* What replicas make of a schedule's figures; without widths they stay as they are. Taken for
 * granted: shares of the micro-batches that differ by at most one (crl_program_deal). */

/* `exact` of schedules whose figures are exact until their lists are dealt out. */
bool crl_schedule_is_undealt(const crl_schedule_request *request);
/* Upper bound of the idle share. `bubble` is that of the schedule's lists before they are dealt
 * out. */
double crl_schedule_dealt_bubble(const crl_schedule_request *request, double bubble);
/* Upper bound of the micro-batches one replica holds, where the position's list holds `held` in
 * succession at a time; never more than there are. */
int crl_schedule_dealt_peak(const crl_schedule_request *request, int position, int held);
