/* SPDX-License-Identifier: Apache-2.0 */
/* What all schedules ask of their request. */
#pragma once

#include "engine/ir/schedule.h"

/* INVALID: sizes or widths below 1, stages that are not least_virtual to most_virtual per position,
 * costs below 0 or infinite. */
crl_status crl_schedule_check_request(const crl_schedule *schedule,
                                      const crl_schedule_request *request);
