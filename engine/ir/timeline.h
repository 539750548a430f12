/* SPDX-License-Identifier: Apache-2.0 */
/* A timed program as a picture for people (SVG) and as a trace for viewers (Perfetto, Chrome). */
#pragma once

#include "engine/ir/simulate.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_timeline {
    const char *title; /* "1f1b" */
    const crl_program *program;
    const crl_simulation_config *config;
    const crl_simulation *times; /* of that program under that config */
} crl_timeline;

/*
 * One row per position, time to the right, a block per action in the colour of its kind with its
 * micro-batch number where there is room; the stages of one position in shades, first one darkest;
 * idle time white. Of more than 64 positions an even choice is drawn, and what is narrower than a
 * pixel is drawn together, so that no picture exceeds a few megabytes. NOMEM; the caller sees to
 * write errors of `out`.
 */
CRL_NODISCARD crl_status crl_timeline_write_svg(const crl_timeline *timeline, FILE *out);

/*
 * Trace Event Format, JSON object form: a complete event per action that takes time, process =
 * node, thread = position, microseconds; an arrow (flow) from each action to the one on another
 * position that uses its result. NOMEM; the caller sees to write errors of `out`.
 */
CRL_NODISCARD crl_status crl_timeline_write_trace(const crl_timeline *timeline, FILE *out);

#ifdef __cplusplus
}
#endif
