/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings of a run: one struct per section of the config file, filled from option tables, and
 * checked against each other. docs/config.md is printed from the same tables.
 */
#pragma once

#include "engine/base/config.h"
#include "engine/carole.h"
#include "engine/run/optimizer.h"
#include "engine/run/registries.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_settings_data {
    crl_text_list train, validation; /* files */
    const char *format;              /* name in the registry, or "auto" */
    bool shuffle;
    const char *tokenizer;      /* "none", or a kind: how `generate` reads prompts */
    const char *tokenizer_path; /* rank file of gpt2 */
} crl_settings_data;

/* Who chooses the layout. */
typedef enum crl_layout_choice { CRL_LAYOUT_GIVEN = 0, CRL_LAYOUT_AUTO } crl_layout_choice;

typedef struct crl_settings_parallel {
    int layout; /* crl_layout_choice; AUTO: not chosen yet, the rest is what was given */
    int64_t pipeline, data;  /* P, D */
    crl_text_list replicas;  /* of every position, instead of `data`; empty: all `data` */
    int *widths;             /* (pipeline) the same as numbers; NULL: all `data` */
    int64_t virtual_stages;  /* stages per pipeline position; 0: the least of the schedule */
    int64_t group;           /* micro-batches that go through a position's stages together; 0: P */
    crl_text_list recompute; /* modes: one for all, one per stage, or "name=mode" */
    const char *schedule;
    const char *partitioner;
    crl_text_list cuts;         /* manual: names of the first node of stages 1.. */
    int64_t memory_limit_bytes; /* per device; 0: none */
    const char *profile;        /* file of measured costs; "": counted for */
    const char *machine;        /* a machine's file; "": a nominal one */
} crl_settings_parallel;

typedef struct crl_settings_train {
    int64_t steps, epochs; /* one of them > 0; both: whichever ends first */
    int64_t global_batch, micro_batch;
    int64_t seed;
    int64_t evaluate_every, evaluate_batch, evaluate_steps; /* steps 0: whole validation set */
    int64_t checkpoint_every, keep;
    bool profile; /* balance from measured instead of analytic costs */
} crl_settings_train;

/* When the norm and the finiteness of a step's gradient are looked at. */
typedef enum crl_validate { CRL_VALIDATE_BEFORE = 0, CRL_VALIDATE_AFTER } crl_validate;

typedef struct crl_settings_optimizer {
    const char *type;
    double learning_rate, minimum_rate;
    int rate_schedule; /* crl_lr_kind */
    int64_t warmup_steps;
    double clip;  /* global gradient norm; 0: none */
    int validate; /* crl_validate */
} crl_settings_optimizer;

/* Order of the choices of numerics.precision. */
typedef enum crl_precision_choice {
    CRL_PRECISION_F32 = 0,
    CRL_PRECISION_BF16,
    CRL_PRECISION_F16
} crl_precision_choice;

typedef struct crl_settings_numerics {
    int64_t lanes;     /* 0: the smallest power of two >= data-parallel width */
    int precision;     /* crl_precision_choice: what layers compute in */
    crl_text_list f32; /* patterns of the names or types of those that stay in f32 */
    double loss_scale; /* f16: fixed; 0: chosen while training */
    double loss_scale_initial;
    int64_t loss_scale_window;
    bool tf32;
} crl_settings_numerics;

typedef struct crl_settings_comm {
    const char *transport;
    const char *wire; /* between devices: of crl_wires, or "auto" */
    const char *allreduce;
    int64_t bucket_bytes, segment_bytes;
    double deadline_s;
} crl_settings_comm;

typedef struct crl_settings_run {
    const char *device; /* name of the backend */
    const char *directory;
    const char
        *resume; /* "auto": the newest checkpoint of the directory, if any; "none"; or a path */
    const char *initialize; /* weights to start from; "": random */
    int64_t log_every;      /* steps between lines of the console; the log file has all */
    int64_t threads;        /* per rank; 0: cores / local ranks */
} crl_settings_run;

typedef struct crl_settings {
    crl_config_source source;
    const char *model_type;
    const crl_model_def *model;
    void *model_options;
    const crl_optimizer *optimizer_kind;
    void *optimizer_options;
    const crl_backend *backend; /* of run.device */
    crl_settings_numerics numerics;
    crl_settings_data data;
    crl_settings_parallel parallel;
    crl_settings_train train;
    crl_settings_optimizer optimizer;
    crl_settings_comm comm;
    crl_settings_run run;
} crl_settings;

/* Reads `path` (NULL: defaults only) and the overrides "section.key=value". `model` (may be NULL)
 * is the default for model.type, besides those of the registry. INVALID: every problem, a line
 * each. */
CRL_NODISCARD crl_status crl_settings_load(crl_settings **out, const crl_registries *registries,
                                           const crl_model_def *model, const char *path,
                                           const char *const *sets, int set_count);
/* numerics.precision as a type. */
crl_dtype crl_settings_compute(const crl_settings *settings);
/* Replicas of a pipeline position. */
int crl_settings_width(const crl_settings *settings, int position);
/* The most any position has. */
int64_t crl_settings_widest(const crl_settings *settings);
/* Ranks the layout takes: the sum of all widths. */
int64_t crl_settings_ranks(const crl_settings *settings);
/* The same for a job: INVALID when there are more than 65535. */
CRL_NODISCARD crl_status crl_settings_count_ranks(int *out, const crl_settings *settings);
/* With every text that came from the file. NULL is fine. */
void crl_settings_destroy(crl_settings *settings);
/* docs/config.md */
CRL_NODISCARD crl_status crl_settings_reference(const crl_registries *registries, FILE *out);

#ifdef __cplusplus
}
#endif
