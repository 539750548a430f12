/* SPDX-License-Identifier: Apache-2.0 */
/* The option tables of all sections: what docs/config.md is printed from. */
#include <string.h>

#include "engine/base/registry.h"
#include "engine/run/settings_internal.h"

#define ROW(type_, struct_, field_, name_, value_, low, high, help_)                               \
    {                                                                                              \
        .name = name_, .value = value_, .help = help_, .type = &type_,                             \
        .offset = offsetof(struct_, field_), .min = low, .max = high                               \
    }

typedef struct model_section {
    const char *type;
} model_section;

static const crl_option model_table[] = {
    {.name = "type",
     .value = NULL,
     .help = "which model; its own options follow in this section",
     .type = &crl_option_text,
     .offset = offsetof(model_section, type)},
    {0}};

#define DATA(type, field, name, value, help)                                                       \
    ROW(type, crl_settings_data, field, name, value, 0, 0, help)
static const crl_option data_table[] = {
    DATA(crl_option_list, train, "train", "",
         "files of the training set, e.g. [images.gz, labels.gz] or shards"),
    DATA(crl_option_list, validation, "validation", "", "files of the validation set; empty: none"),
    DATA(crl_option_text, format, "format", "auto",
         "dataset format, or auto: by content (carole info lists them)"),
    DATA(crl_option_bool, shuffle, "shuffle", "true", "a new order of samples every epoch"),
    DATA(crl_option_text, tokenizer, "tokenizer", "none",
         "how generate reads text (carole info lists them), or none"),
    DATA(crl_option_text, tokenizer_path, "tokenizer_path", "", "rank file of the gpt2 tokenizer"),
    {0}};

#define PARALLEL(type, field, name, value, low, high, help)                                        \
    ROW(type, crl_settings_parallel, field, name, value, low, high, help)
static const char *const layouts[] = {"given", "auto", NULL};
static const crl_option parallel_table[] = {
    {.name = "layout",
     .value = "given",
     .help = "given: as the keys below say; auto: chosen at the start for the ranks of the job, by "
             "counted costs; keys that are given keep their values",
     .type = &crl_option_choice,
     .offset = offsetof(crl_settings_parallel, layout),
     .choices = layouts},
    PARALLEL(crl_option_int, pipeline, "pipeline", "1", 1, 65535,
             "pipeline width: devices a replica is cut into"),
    PARALLEL(crl_option_int, data, "data", "1", 1, 65535,
             "data-parallel width: replicas of the pipeline"),
    PARALLEL(crl_option_list, replicas, "replicas", "", 0, 0,
             "instead of data: replicas of every pipeline position, e.g. [3, 1]"),
    PARALLEL(crl_option_int, virtual_stages, "virtual_stages", "0", 0, 1024,
             "stages per device, for schedules that take several; 0: as few as the schedule takes"),
    PARALLEL(crl_option_int, group, "group", "0", 0, 65535,
             "micro-batches that go through the stages of a device together; 0: pipeline"),
    PARALLEL(crl_option_text, schedule, "schedule", "1f1b", 0, 0,
             "order of the micro-batches (carole info lists them)"),
    PARALLEL(crl_option_text, partitioner, "partitioner", "balance", 0, 0,
             "who cuts the layers into stages (carole info lists them)"),
    PARALLEL(crl_option_list, cuts, "cuts", "", 0, 0,
             "partitioner manual: the first node of every stage but the first, e.g. [h2.ln1]"),
    PARALLEL(crl_option_bytes, memory_limit_bytes, "memory_limit", "0", 0, 1e18,
             "of a device; 0: none"),
    PARALLEL(crl_option_text, profile, "profile", "", 0, 0,
             "costs for cuts and automatic schedules: a file of `carole profile`; empty: counted"),
    PARALLEL(crl_option_text, machine, "machine", "", 0, 0,
             "what costs are counted for and messages take: a machine description; empty: a "
             "nominal CPU core"),
    PARALLEL(crl_option_list, recompute, "recompute", "none", 0, 0,
             "what backward makes again instead of keeping: none, selective or full; one for all, "
             "one per stage, or layers by name, e.g. [h0=full, h1=selective]"),
    {0}};

#define TRAIN(type, field, name, value, low, high, help)                                           \
    ROW(type, crl_settings_train, field, name, value, low, high, help)
static const crl_option train_table[] = {
    TRAIN(crl_option_int, steps, "steps", "0", 0, 4e9, "optimizer steps; 0: by epochs"),
    TRAIN(crl_option_int, epochs, "epochs", "0", 0, 1e9,
          "passes over the training set; 0: by steps"),
    TRAIN(crl_option_int, global_batch, "global_batch", "32", 1, 1e9,
          "samples of a step, over all replicas"),
    TRAIN(crl_option_int, micro_batch, "micro_batch", "8", 1, 1e9,
          "samples that go through the pipeline together"),
    TRAIN(crl_option_int, seed, "seed", "1", 0, 9e15, "of initial weights, data order and dropout"),
    TRAIN(crl_option_int, evaluate_every, "evaluate_every", "0", 0, 4e9,
          "steps between validations; 0: at the end"),
    TRAIN(crl_option_int, evaluate_batch, "evaluate_batch", "0", 0, 1e9,
          "samples of a validation micro-batch; 0: micro_batch"),
    TRAIN(crl_option_int, evaluate_steps, "evaluate_steps", "0", 0, 4e9,
          "global batches of a validation; 0: the whole set"),
    TRAIN(crl_option_int, checkpoint_every, "checkpoint_every", "0", 0, 4e9,
          "steps between checkpoints; 0: at the end"),
    TRAIN(crl_option_int, keep, "keep", "2", 0, 1e9, "checkpoints to keep; 0: all"),
    TRAIN(crl_option_bool, profile, "profile", "false", 0, 0,
          "balance by measured instead of counted costs"),
    {0}};

#define OPTIMIZER(type, field, name, value, low, high, help)                                       \
    ROW(type, crl_settings_optimizer, field, name, value, low, high, help)
static const char *const validations[] = {"before", "after", NULL};
static const char *const rate_schedules[] = {"constant", "linear", "cosine", NULL};
static const crl_option optimizer_table[] = {
    OPTIMIZER(crl_option_text, type, "type", "adamw", 0, 0,
              "which update; its own options follow in this section"),
    OPTIMIZER(crl_option_double, learning_rate, "learning_rate", "0.0003", 0, 1e6,
              "peak learning rate"),
    OPTIMIZER(crl_option_double, minimum_rate, "minimum_rate", "0", 0, 1e6,
              "at the end of linear and cosine"),
    {.name = "rate_schedule",
     .value = "constant",
     .help = "after the warm-up",
     .type = &crl_option_choice,
     .offset = offsetof(crl_settings_optimizer, rate_schedule),
     .choices = rate_schedules},
    OPTIMIZER(crl_option_int, warmup_steps, "warmup_steps", "0", 0, 4e9, "linear warm-up from 0"),
    OPTIMIZER(crl_option_double, clip, "clip", "0", 0, 1e18,
              "largest global gradient norm; 0: no clipping"),
    {.name = "validate",
     .value = "before",
     .help = "look at the global norm before the update, or after it, rolling back where it was "
             "too large: the same bits, no barrier between steps, twice the weights and state",
     .type = &crl_option_choice,
     .offset = offsetof(crl_settings_optimizer, validate),
     .choices = validations},
    {0}};

#define NUMERICS(type, field, name, value, low, high, help)                                        \
    ROW(type, crl_settings_numerics, field, name, value, low, high, help)
static const char *const precisions[] = {"f32", "bf16", "f16", NULL};
static const crl_option numerics_table[] = {
    NUMERICS(crl_option_int, lanes, "lanes", "0", 0, 1 << 20,
             "groups of micro-batches summed apart, a power of two: equal lanes give equal bits at "
             "any data-parallel width up to it; 0: the width"),
    {.name = "precision",
     .value = "f32",
     .help = "what layers compute in; weights, their gradients and the optimizer's state are f32 "
             "in any case",
     .type = &crl_option_choice,
     .offset = offsetof(crl_settings_numerics, precision),
     .choices = precisions},
    NUMERICS(crl_option_list, f32, "f32", "", 0, 0,
             "layers that compute in f32 whatever the precision: names or types, with * and ?, "
             "e.g. [lnf, h0.*, layernorm]"),
    NUMERICS(crl_option_double, loss_scale, "loss_scale", "0", 0, 1e30,
             "precision f16: factor of the loss, a power of two; 0: chosen while training"),
    NUMERICS(crl_option_double, loss_scale_initial, "loss_scale_initial", "1024", 1, 1e30,
             "the chosen factor to begin with, a power of two; gradients are sums over a step, not "
             "means"),
    NUMERICS(crl_option_int, loss_scale_window, "loss_scale_window", "2000", 1, 4e9,
             "steps without an overflow after which the chosen factor doubles"),
    NUMERICS(crl_option_bool, tf32, "tf32", "false", 0, 0,
             "device cuda, precision f32: products may round their inputs to 10 bits (TF32)"),
    {0}};

#define COMM(type, field, name, value, low, high, help)                                            \
    ROW(type, crl_settings_comm, field, name, value, low, high, help)
static const crl_option comm_table[] = {
    COMM(crl_option_text, transport, "transport", "local", 0, 0,
         "local: ranks are threads; mpi: processes"),
    COMM(crl_option_text, allreduce, "allreduce", "tree", 0, 0,
         "tree: the same bits at any width; ring, halving: may differ between widths"),
    COMM(crl_option_text, wire, "wire", "auto", 0, 0,
         "how tensors travel between GPUs: nccl, shared (ranks of one process), staged (through "
         "the host), or auto"),
    COMM(crl_option_bytes, bucket_bytes, "bucket", "4MiB", 64, 1e12, "gradients reduced together"),
    COMM(crl_option_bytes, segment_bytes, "segment", "0", 0, 1e12,
         "size of a ring message; 0: chosen"),
    COMM(crl_option_double, deadline_s, "deadline", "300", 0.001, 1e6, "seconds any wait may take"),
    {0}};

#define RUN(type, field, name, value, low, high, help)                                             \
    ROW(type, crl_settings_run, field, name, value, low, high, help)
static const crl_option run_table[] = {
    RUN(crl_option_text, device, "device", "cpu", 0, 0,
        "what ranks compute on (carole info lists them)"),
    RUN(crl_option_text, directory, "directory", "runs/carole", 0, 0,
        "log, checkpoints; a run that does not resume replaces an earlier one's"),
    RUN(crl_option_text, resume, "resume", "none", 0, 0,
        "none, auto (newest of the directory), or a checkpoint"),
    RUN(crl_option_text, initialize, "initialize", "", 0, 0,
        "a checkpoint to take the weights from, at step 0; empty: random"),
    RUN(crl_option_int, log_every, "log_every", "1", 1, 4e9,
        "steps between lines of the console; the log file has all"),
    RUN(crl_option_int, threads, "threads", "0", 0, 4096,
        "per rank; 0: cores / ranks of this machine"),
    {0}};

static crl_status select_model(void *context, const char *value, crl_arena *arena,
                               const crl_option **out_table, void **out_options) {
    crl_settings_selection *s = context;
    const void *found = NULL;
    if (s->own_model && strcmp(value, s->own_model->name) == 0) {
        found = s->own_model;
    } else {
        CRL_TRY(crl_registry_find(&found, s->registries->models, "model", value));
    }
    s->settings->model = found;
    s->settings->model_options = NULL;
    *out_table = s->settings->model->options;
    if (*out_table) {
        CRL_TRY(crl_arena_alloc(arena, &s->settings->model_options, 1,
                                s->settings->model->options_bytes));
    }
    *out_options = s->settings->model_options;
    return CRL_STATUS_OK;
}

static crl_status select_optimizer(void *context, const char *value, crl_arena *arena,
                                   const crl_option **out_table, void **out_options) {
    crl_settings_selection *s = context;
    const void *found = NULL;
    CRL_TRY(crl_registry_find(&found, s->registries->optimizers, "optimizer", value));
    s->settings->optimizer_kind = found;
    s->settings->optimizer_options = NULL;
    *out_table = s->settings->optimizer_kind->options;
    if (*out_table) {
        CRL_TRY(crl_arena_alloc(arena, &s->settings->optimizer_options, 1,
                                s->settings->optimizer_kind->options_bytes));
    }
    *out_options = s->settings->optimizer_options;
    return CRL_STATUS_OK;
}

/* The user's own model is the default for model.type: a copy of the row with that default. */
void crl_settings_sections(crl_config_section section[CRL_SETTINGS_SECTIONS + 1],
                           crl_option own_model_table[2], crl_settings_selection *select) {
    crl_settings *s = select->settings;
    memcpy(own_model_table, model_table, sizeof model_table);
    if (select->own_model) {
        own_model_table[0].value = select->own_model->name;
    }
    const crl_config_section all[CRL_SETTINGS_SECTIONS + 1] = {
        {"model", "what is trained", own_model_table, &s->model_type, "type", select_model, select,
         NULL},
        {"data", "what it is trained on", data_table, &s->data, NULL, NULL, NULL, NULL},
        {.name = "parallel",
         .help = "the layout; `parallel: auto` instead of the section leaves it to the planner",
         .table = parallel_table,
         .options = &s->parallel,
         .word = "layout"},
        {"train", "how long, how much at once", train_table, &s->train, NULL, NULL, NULL, NULL},
        {"optimizer", "the update", optimizer_table, &s->optimizer, "type", select_optimizer,
         select, NULL},
        {"numerics", "what decides the bits", numerics_table, &s->numerics, NULL, NULL, NULL, NULL},
        {"comm", "messages between ranks", comm_table, &s->comm, NULL, NULL, NULL, NULL},
        {"run", "where it runs and leaves its results", run_table, &s->run, NULL, NULL, NULL, NULL},
        {0}};
    memcpy(section, all, sizeof all);
}
