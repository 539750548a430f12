/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers that schedules, the simulator and the planner reason with. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* What one micro-batch costs a stage. */
typedef struct crl_stage_cost {
    double forward_s, input_s, weight_s; /* B takes input + weight */
    double kept_bytes;                   /* from F on, until B or I */
    double held_bytes;                   /* from I on, until W */
    double output_bytes; /* of its message to the next stage, and of the gradient that comes back */
} crl_stage_cost;

/* A message of n bytes arrives latency_s + n / bytes_per_s after it has left. */
typedef struct crl_link {
    double latency_s;
    double bytes_per_s; /* 0: only the latency counts */
} crl_link;

#ifdef __cplusplus
}
#endif
