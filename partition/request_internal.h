/* SPDX-License-Identifier: Apache-2.0 */
/* What partitioners ask of their request and say about their result. */
#pragma once

#include "engine/ir/partitioner.h"

enum { PARTITION_MAX_UNITS = 65536 };

/* INVALID: sizes out of range, costs negative or beyond 1e100, more stages than the chain can be
 * cut into (unless fewer will do). `name` begins the message. */
crl_status crl_partition_check_request(const char *name, const crl_partition_request *request);
/* The number of stages to look for: fewer than asked where fewer will do and no more are possible.
 */
int crl_partition_stages(const crl_partition_request *request);
/* Micro-batches that stage s of `stages` holds at once. */
int crl_partition_in_flight(const int *in_flight, int stages, int s);
/* Fills bottleneck_s and peak_bytes from `stages` and `first`. */
void crl_partition_measure(crl_partition *inout, const crl_partition_request *request);
/* UNSUPPORTED when the measured peak is above the limit. */
crl_status crl_partition_require_fit(const char *name, const crl_partition *partition,
                                     const crl_partition_request *request);
