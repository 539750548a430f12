/* SPDX-License-Identifier: Apache-2.0 */
/*
 * List scheduling, shared by zb-1p, zb-2p and auto: a *problem* is a request in the form a
 * scheduler reads, a *policy* turns it into a *sequence* of all actions, the search keeps the best
 * of many.
 */
#pragma once

#include "engine/base/arena.h"
#include "engine/ir/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LIST_FORWARD = 0, LIST_INPUT, LIST_WEIGHT, LIST_KINDS };

/* What is scheduled. A server is one replica of a position. */
typedef struct list_problem {
    int positions, stages, micro_batches, servers;
    int tasks;                        /* 3SM; task (3s + kind)M + m */
    int *position_of;                 /* (S) */
    int *first_stage, *stage;         /* (P + 1), (S) the stages of each position, ascending */
    int *first_server;                /* (P + 1) */
    int *server;                      /* (P x M) of each micro-batch, as crl_program_deal has it */
    double (*duration_s)[LIST_KINDS]; /* (S) */
    double *arrive_s, *return_s;      /* (S) delay of F's and of I's input after its producer */
    double *kept, *held;              /* (S) bytes */
    double *reserve;                  /* (S) room that an F leaves, so that what is begun can end */
    double limit;                     /* bytes of a server */
    double *work_s;                   /* (servers) */
    int *inputs;                      /* (servers) I to do */
    double *round_trip;               /* (S) F and I of the stages after it, in F + I of its own */
    double least_s, least_span_s;     /* no sequence has a shorter makespan, a shorter span */
    crl_arena arena;                  /* owns all of the above */
} list_problem;

typedef enum list_order { LIST_INPUT_FIRST = 0, LIST_FORWARD_FIRST, LIST_ALTERNATE } list_order;

/* How a server that is free chooses; times are shares of an action's own. */
typedef struct list_policy {
    double lead;      /* micro-batches in flight, in those of 1F1B; 0: what memory allows */
    double wait_f;    /* an I that comes within this share of an F is waited for */
    double wait_w;    /* an F or I that comes within this share of a W is waited for */
    int end_inputs;   /* the last I of a server, so many, are waited for instead of any W */
    double target_s;  /* nobody waits by choice who could not end at this time any more */
    bool of_span;     /* the target counts from each server's first start */
    list_order order; /* of F and I where both could run */
    bool make_room;   /* after an I a W that is due goes before the next I */
    bool deep_first;  /* of two stages the later one's F first; else the earlier micro-batch */
    int debt;         /* a W of a stage runs at once when more than this many are due; 0: never */
} list_policy;

/* All tasks in an order that respects what each needs, and what it takes. */
typedef struct list_sequence {
    int *task;         /* (tasks) */
    double makespan_s; /* from the first start to the last end */
    double span_s;     /* the same of one server, the longest: a step's share of many in a row */
} list_sequence;

/* What of a sequence counts most. */
typedef enum list_goal { LIST_GOAL_MAKESPAN = 0, LIST_GOAL_SPAN } list_goal;

static inline int crl_list_server(const list_problem *problem, int stage, int micro_batch) {
    return problem->server[problem->position_of[stage] * problem->micro_batches + micro_batch];
}

/* From a valid request; without a memory limit, that of `pipelines` · P micro-batches. UNSUPPORTED:
 * the limit does not hold one micro-batch. NOMEM. */
crl_status crl_list_problem_init(list_problem *self, const crl_schedule *schedule,
                                 const crl_schedule_request *request, double pipelines);
/* Safe on a zeroed one. */
void crl_list_problem_fini(list_problem *self);

/* State of one run of a policy, kept between runs. */
typedef struct list_machine list_machine;
/* NOMEM. */
crl_status crl_list_machine_create(list_machine **out, const list_problem *problem);
/* NULL is fine. */
void crl_list_machine_destroy(list_machine *machine);
/* Follows a policy to the end; fills `out`, whose tasks the caller has allocated. */
void crl_list_run(list_machine *self, const list_policy *policy, list_sequence *out);

/* Times a given sequence; state of one run, kept between runs. */
typedef struct list_timer {
    const list_problem *problem;
    double *end_s;         /* (tasks) */
    int *before;           /* (tasks) the one before on its server; -1: none */
    double *free_s, *used; /* (servers) */
    double *begin_s;       /* (servers) */
    int *last;             /* (servers) last task */
    int critical;          /* the server that ends last, or has the longest span */
    crl_arena arena;
} list_timer;
/* NOMEM. */
crl_status crl_list_timer_init(list_timer *self, const list_problem *problem);
/* Safe on a zeroed one. */
void crl_list_timer_fini(list_timer *self);
/* Every task as early as its server and its inputs allow. False: more memory than the limit. */
bool crl_list_time(list_timer *self, list_sequence *sequence, list_goal goal);
/* Moves W behind what waits for them, along the critical path, as long as that does no harm: at
 * most `tries` times. `sequence` has been accepted by crl_list_time. */
void crl_list_improve(list_timer *self, list_sequence *sequence, list_goal goal, int tries);

/* Whether a is better than b. */
bool crl_list_is_better(const list_sequence *a, const list_sequence *b, list_goal goal);

/* The best sequence that at most `runs` policies give (0: as many as the effort allows); its tasks
 * are the caller's to free. NOMEM. */
crl_status crl_list_search(list_sequence *out, const list_problem *problem, list_goal goal,
                           int runs);

/* The cost of a stage as the limit counts it: of a request without bytes every micro-batch is 1
 * until its end. */
crl_stage_cost crl_list_cost(const crl_schedule_request *request, int stage);
/* Bytes that a server may hold: the request's limit, or what `pipelines` · P micro-batches keep. */
double crl_list_limit(const crl_schedule *schedule, const crl_schedule_request *request,
                      double pipelines);
/* What makes a schedule of this kind. */
typedef struct list_recipe {
    double pipelines; /* its own memory limit, in what P micro-batches keep */
    list_goal goal;
    const crl_schedule *const *known; /* its result is never worse than these; NULL ends */
} list_recipe;

/* A schedule's `build`: checks the request, searches, compares, emits. */
crl_status crl_list_build(crl_program **out, const crl_schedule *schedule,
                          const crl_schedule_request *request, const list_recipe *recipe);
/* Its `bubble` and `peak_activations`. */
double crl_list_bubble(const crl_schedule_request *request);
int crl_list_peak(const crl_schedule *schedule, const crl_schedule_request *request, int stage,
                  double pipelines);

/* Replaces `best` by the order of a program if that is better and within memory. NOMEM. */
crl_status crl_list_compare(list_sequence *best, const list_problem *problem, list_goal goal,
                            const crl_program *program);

#ifdef __cplusplus
}
#endif
