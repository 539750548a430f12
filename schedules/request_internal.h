/* SPDX-License-Identifier: Apache-2.0 */
/* What all schedules ask of their request. */
#pragma once

#include "engine/ir/schedule.h"

/* INVALID: sizes below 1, stages not a multiple of positions, unequal widths, and for a schedule of
 * one stage per position any other number. `name` begins the message. */
crl_status crl_schedule_check_request(const char *name, const crl_schedule_request *request,
                                      bool virtual_stages);
