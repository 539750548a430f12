/* SPDX-License-Identifier: Apache-2.0 */
/* The option tables of all sections, and the checks that need more than one value. */
#include "engine/run/settings.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/registry.h"
#include "engine/comm/collective.h"
#include "engine/ir/partitioner.h"
#include "engine/run/layout.h"

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

typedef struct numerics_section {
    int64_t lanes;
} numerics_section;
static const crl_option numerics_table[] = {
    ROW(crl_option_int, numerics_section, lanes, "lanes", "0", 0, 1 << 20,
        "groups of micro-batches summed apart, a power of two: equal lanes give equal bits at any "
        "data-parallel width up to it; 0: the width"),
    {0}};

#define COMM(type, field, name, value, low, high, help)                                            \
    ROW(type, crl_settings_comm, field, name, value, low, high, help)
static const crl_option comm_table[] = {
    COMM(crl_option_text, transport, "transport", "local", 0, 0,
         "local: ranks are threads; mpi: processes"),
    COMM(crl_option_text, allreduce, "allreduce", "tree", 0, 0,
         "tree: the same bits at any width; ring, halving: may differ between widths"),
    COMM(crl_option_bytes, bucket_bytes, "bucket", "4MiB", 64, 1e12, "gradients reduced together"),
    COMM(crl_option_bytes, segment_bytes, "segment", "0", 0, 1e12,
         "size of a ring message; 0: chosen"),
    COMM(crl_option_double, deadline_s, "deadline", "300", 0.001, 1e6, "seconds any wait may take"),
    {0}};

#define RUN(type, field, name, value, low, high, help)                                             \
    ROW(type, crl_settings_run, field, name, value, low, high, help)
static const crl_option run_table[] = {
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

/* What the selecting sections need: registries in, chosen kinds out. */
typedef struct selection {
    const crl_registries *registries;
    const crl_model_def *own_model;
    crl_settings *settings;
} selection;

static crl_status select_model(void *context, const char *value, crl_arena *arena,
                               const crl_option **out_table, void **out_options) {
    selection *s = context;
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
    selection *s = context;
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

enum { SECTIONS = 8 };

/* The user's own model is the default for model.type: a copy of the row with that default. */
static void fill_sections(crl_config_section section[SECTIONS + 1], crl_option own_model_table[2],
                          selection *select) {
    crl_settings *s = select->settings;
    memcpy(own_model_table, model_table, sizeof model_table);
    if (select->own_model) {
        own_model_table[0].value = select->own_model->name;
    }
    const crl_config_section all[SECTIONS + 1] = {
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
        {"numerics", "what decides the bits", numerics_table, &s->lanes, NULL, NULL, NULL, NULL},
        {"comm", "messages between ranks", comm_table, &s->comm, NULL, NULL, NULL, NULL},
        {"run", "where it runs and leaves its results", run_table, &s->run, NULL, NULL, NULL, NULL},
        {0}};
    memcpy(section, all, sizeof all);
}

/* What is wrong between several values, a line each. */
typedef struct problems {
    const crl_config_source *source;
    size_t used;
    char text[CRL_ERROR_MESSAGE_BYTES];
} problems;

CRL_PRINTF(3, 4)
static void add_problem(problems *p, const char *key, const char *format, ...) {
    char at[512], what[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    if (p->used < sizeof p->text) {
        p->used += (size_t)snprintf(p->text + p->used, sizeof p->text - p->used, "%s%s: %s",
                                    p->used ? "\n" : "",
                                    crl_config_where(p->source, key, at, sizeof at), what);
    }
}

static void check_numbers(problems *p, const crl_settings *s) {
    const int64_t widest = crl_settings_widest(s);
    if (s->lanes != 0 && ((s->lanes & (s->lanes - 1)) != 0 || s->lanes < widest)) {
        add_problem(p, "numerics.lanes",
                    "lanes are %" PRId64 ", expected a power of two not below the data-parallel "
                    "width %" PRId64,
                    s->lanes, widest);
    }
    if (s->train.micro_batch > s->train.global_batch) {
        add_problem(p, "train.micro_batch",
                    "micro_batch is %" PRId64 ", expected at most global_batch %" PRId64,
                    s->train.micro_batch, s->train.global_batch);
    }
    if (s->optimizer.minimum_rate > s->optimizer.learning_rate) {
        add_problem(p, "optimizer.minimum_rate",
                    "minimum_rate is %g, expected at most learning_rate %g",
                    s->optimizer.minimum_rate, s->optimizer.learning_rate);
    }
    if (!s->run.directory[0]) { /* would be the root of the file system */
        add_problem(p, "run.directory", "directory is empty, expected a path");
    }
}

static void check_names(problems *p, const crl_settings *s, const crl_registries *registries) {
    const struct {
        const void *const *registry;
        const char *kind, *key, *name, *besides; /* a word that is no plug-in; may be NULL */
    } named[] = {
        {registries->schedules, "schedule", "parallel.schedule", s->parallel.schedule, NULL},
        {registries->partitioners, "partitioner", "parallel.partitioner", s->parallel.partitioner,
         NULL},
        {registries->transports, "transport", "comm.transport", s->comm.transport, NULL},
        {crl_allreduce_algorithms, "all-reduce", "comm.allreduce", s->comm.allreduce, NULL},
        {registries->datasets, "dataset format", "data.format", s->data.format, "auto"},
        {registries->tokenizers, "tokenizer", "data.tokenizer", s->data.tokenizer, "none"}};
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
        const void *found = NULL;
        if ((named[i].besides && strcmp(named[i].name, named[i].besides) == 0) ||
            (named[i].registry == registries->schedules && crl_layout_is_file(named[i].name))) {
            continue;
        }
        if (crl_registry_find(&found, named[i].registry, named[i].kind, named[i].name)) {
            add_problem(p, named[i].key, "%s", crl_error_message());
        }
    }
}

static void check_cuts(problems *p, const crl_settings *s, const crl_registries *registries) {
    const void *found = NULL;
    if (s->parallel.cuts.count > 0 &&
        crl_registry_find(&found, registries->partitioners, "partitioner",
                          s->parallel.partitioner) == CRL_STATUS_OK &&
        !((const crl_partitioner *)found)->uses_cuts) {
        add_problem(p, "parallel.cuts", "cuts are given, but partitioner %s chooses its own",
                    s->parallel.partitioner);
    }
}

static void check_optimizer(problems *p, const crl_settings *s) {
    const char *option = NULL;
    if (s->optimizer_kind->check && s->optimizer_kind->check(s->optimizer_options, &option)) {
        char key[128];
        snprintf(key, sizeof key, "optimizer.%s", option);
        add_problem(p, key, "%s", crl_error_message());
    }
}

/* One width of parallel.replicas, or 0 after having reported it. */
static int parse_width(problems *p, const char *text) {
    char *end = NULL;
    const long width = strtol(text, &end, 10);
    if (end == text || *end || width < 1 || width > 65535) {
        add_problem(p, "parallel.replicas", "replicas has '%s', expected numbers from 1 to 65535",
                    text);
        return 0;
    }
    return (int)width;
}

/* parallel.replicas as numbers. It may leave parallel.pipeline out, which it implies. */
static crl_status parse_replicas(problems *p, crl_settings *s) {
    crl_settings_parallel *parallel = &s->parallel;
    const int count = parallel->replicas.count;
    if (count == 0) {
        return CRL_STATUS_OK;
    }
    if (parallel->pipeline != 1 && parallel->pipeline != count) {
        add_problem(p, "parallel.replicas",
                    "replicas has %d numbers, expected one for each of the %" PRId64
                    " pipeline positions",
                    count, parallel->pipeline);
        return CRL_STATUS_OK;
    }
    if (parallel->data != 1) {
        add_problem(p, "parallel.replicas",
                    "replicas are given, and data is %" PRId64 ": expected one of them",
                    parallel->data);
    }
    parallel->pipeline = count;
    CRL_TRY(crl_alloc(&parallel->widths, (size_t)count, sizeof *parallel->widths));
    for (int i = 0; i < count; i++) {
        parallel->widths[i] = parse_width(p, parallel->replicas.item[i]);
    }
    return CRL_STATUS_OK;
}

int crl_settings_width(const crl_settings *s, int position) {
    return s->parallel.widths ? s->parallel.widths[position] : (int)s->parallel.data;
}

int64_t crl_settings_widest(const crl_settings *s) {
    int64_t widest = 0;
    for (int i = 0; i < (int)s->parallel.pipeline; i++) {
        const int width = crl_settings_width(s, i);
        widest = width > widest ? width : widest;
    }
    return widest;
}

int64_t crl_settings_ranks(const crl_settings *s) {
    int64_t ranks = 0;
    for (int i = 0; i < (int)s->parallel.pipeline; i++) {
        ranks += crl_settings_width(s, i);
    }
    return ranks;
}

crl_status crl_settings_count_ranks(int *out, const crl_settings *settings) {
    const int64_t ranks = crl_settings_ranks(settings);
    if (ranks > 65535) {
        return CRL_FAIL(INVALID, "layout: %lld ranks, expected at most 65535", (long long)ranks);
    }
    *out = (int)ranks;
    return CRL_STATUS_OK;
}

static crl_status check_together(crl_settings *s, const crl_registries *registries) {
    problems p = {.source = &s->source};
    CRL_TRY(parse_replicas(&p, s));
    check_numbers(&p, s);
    check_names(&p, s, registries);
    check_cuts(&p, s, registries);
    check_optimizer(&p, s);
    if (p.used > 0) {
        return CRL_FAIL(INVALID, "%s", p.text);
    }
    return CRL_STATUS_OK;
}

crl_status crl_settings_load(crl_settings **out, const crl_registries *registries,
                             const crl_model_def *model, const char *path, const char *const *sets,
                             int set_count) {
    crl_status status = CRL_STATUS_OK;
    crl_settings *settings = NULL;
    crl_config_section section[SECTIONS + 1];
    crl_option own_model_table[2];
    CRL_TRY_OUT(crl_alloc(&settings, 1, sizeof *settings));
    selection select = {registries, model, settings};
    fill_sections(section, own_model_table, &select);
    CRL_TRY_OUT(crl_config_load(&settings->source, section, path, sets, set_count));
    CRL_TRY_OUT(check_together(settings, registries));
    if (settings->train.evaluate_batch == 0) {
        settings->train.evaluate_batch = settings->train.micro_batch;
    }
    *out = settings;
    settings = NULL;
out:
    crl_settings_destroy(settings);
    return status;
}

void crl_settings_destroy(crl_settings *settings) {
    if (settings) {
        crl_free(settings->parallel.widths);
        crl_config_fini(&settings->source);
        crl_free(settings);
    }
}

/* One plug-in's own options, under their section. */
static void print_own(const char *section, const void *const *registry, bool models, FILE *out) {
    for (int i = 0; registry[i]; i++) {
        const crl_plugin *plugin = registry[i];
        const crl_option *table = models ? ((const crl_model_def *)registry[i])->options
                                         : ((const crl_optimizer *)registry[i])->options;
        const crl_config_section own[] = {
            {.name = plugin->name, .help = plugin->help, .table = table}, {0}};
        if (table) {
            fprintf(out, "\nWith `%s.type: %s`, `%s` also has:\n\n", section, plugin->name,
                    section);
            crl_config_reference(own, out);
        }
    }
}

crl_status crl_settings_reference(const crl_registries *registries, FILE *out) {
    crl_settings settings = {0};
    crl_config_section section[SECTIONS + 1];
    crl_option own_model_table[2];
    selection select = {registries, NULL, &settings};
    fill_sections(section, own_model_table, &select);
    crl_config_reference(section, out);
    print_own("model", registries->models, true, out);
    print_own("optimizer", registries->optimizers, false, out);
    return CRL_STATUS_OK;
}
