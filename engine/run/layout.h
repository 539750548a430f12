/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From settings to a parallel layout: the graph, the costs of its nodes, the cuts the partitioner
 * makes of them, the plan, and each replica's program. Pure but for reading the settings.
 */
#pragma once

#include "engine/comm/mesh.h"
#include "engine/ir/partitioner.h"
#include "engine/ir/schedule.h"
#include "engine/ir/simulate.h"
#include "engine/run/lane_plan.h"
#include "engine/run/machine.h"
#include "engine/run/settings.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_layout {
    const crl_settings *settings;   /* lent */
    const crl_optimizer *optimizer; /* lent, with its number of state arrays: */
    int states;
    crl_graph *graph; /* of training micro-batches */
    crl_plan *plan;
    crl_graph *evaluate_graph; /* of validation micro-batches; the same nodes and cuts */
    crl_plan *evaluate_plan;
    crl_mesh mesh;
    int *first_row; /* (P + 1) of the mesh; widths that are all equal have one row each */
    int *widths;    /* (P) replicas of each position */
    const crl_schedule *schedule; /* NULL: */
    crl_program *own_schedule;    /* the user's, from a file */
    int stages;                   /* S */
    int lane_buffers;             /* of gradients, on the rank with the most; lanes in order */
    int lanes;                    /* L in effect: at most the micro-batches */
    int micro_batches;            /* M of a step, training and validation */
    crl_machine_file machine; /* the settings', or the nominal one */
    double *node_s;               /* (nodes × CRL_PHASES) of one micro-batch */
    crl_stage_cost *stage; /* (stages) the same by stage, with what it keeps and makes again */
    double message_s;      /* the largest of all edges, over the nominal link */
    double activation_limit_bytes; /* of a position, below the settings' limit; 0: none */
    crl_partition partition;
} crl_layout;

/* The settings' model for micro-batches of `batch` samples. Owned by the caller. */
CRL_NODISCARD crl_status crl_layout_graph(crl_graph **out, const crl_settings *settings,
                                          const crl_registries *registries, int64_t batch);

/* `node_s` measured times (nodes × CRL_PHASES seconds), or NULL: those of the settings' profile, or
 * counted for their machine. */
CRL_NODISCARD crl_status crl_layout_create(crl_layout **out, const crl_settings *settings,
                                           const crl_registries *registries, const double *node_s);
/* NULL is fine. */
void crl_layout_destroy(crl_layout *layout);

/* Micro-batches of a step that go through a pipeline. */
crl_range crl_layout_pipeline(const crl_layout *layout, int pipeline);
/* The first pipeline that has any: there may be fewer lanes than pipelines. */
int crl_layout_busy_pipeline(const crl_layout *layout);
/* Micro-batches of a step that a replica of a position runs. */
crl_range crl_layout_own(const crl_layout *layout, int position, int replica);

/* The program of one pipeline, a list per row, with messages, checked. Micro-batches are the
 * pipeline's own, from 0. forward_only: evaluation. */
CRL_NODISCARD crl_status crl_layout_program(crl_program **out, const crl_layout *layout,
                                            const crl_plan *plan, int pipeline, bool forward_only);
/* A schedule in a file (program.h's text form), not checked yet. */
CRL_NODISCARD crl_status crl_layout_read_schedule(crl_program **out, const char *path);
/* Whether the name of a schedule is a file's. */
bool crl_layout_is_file(const char *schedule);
/* What a rank's gradient sums need, of the stage `stage` of `program`. Owned by the caller. */
CRL_NODISCARD crl_status crl_layout_lane_plan(crl_lane_plan **out, const crl_layout *layout,
                                              const crl_program *program, crl_coordinates at,
                                              int stage);

/* What a rank reserves, by purpose. */
typedef struct crl_memory_report {
    size_t weights_bytes, gradients_bytes;
    size_t optimizer_bytes;   /* its state, and what an update may be taken back to */
    size_t activations_bytes; /* saved values and message buffers, at their peak */
    size_t workspace_bytes;   /* values inside one action, kernel scratch */
    size_t comm_bytes;        /* all-reduce and exchange buffers */
    size_t total_bytes;
} crl_memory_report;

/* Of a rank of this layout, exactly what training will reserve; prepares (and releases) its layers
 * to know their scratch, and allocates no tensor. */
CRL_NODISCARD crl_status crl_layout_memory(crl_memory_report *out, const crl_layout *layout,
                                           int rank);

/* UNSUPPORTED when that is more than the settings' memory limit. A partitioner only knows what
 * grows with the layers it cuts; this is the whole of it. */
CRL_NODISCARD crl_status crl_layout_memory_fits(const crl_layout *layout,
                                                const crl_memory_report *memory);

/* Time of every node by phase, in seconds (nodes × CRL_PHASES), measured on this machine with the
 * settings' threads. Owned by the caller (crl_free). */
CRL_NODISCARD crl_status crl_layout_profile(double **out, const crl_settings *settings,
                                            const crl_registries *registries);

#ifdef __cplusplus
}
#endif
