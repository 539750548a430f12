/* SPDX-License-Identifier: Apache-2.0 */
/* Loading the settings, and the checks that need more than one value. */
#include "engine/run/settings.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/registry.h"
#include "engine/comm/collective.h"
#include "engine/comm/wire.h"
#include "engine/ir/partitioner.h"
#include "engine/run/layout.h"
#include "engine/run/settings_internal.h"

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

static void check_power(problems *p, const char *key, double value) {
    int exponent;
    if (value > 0 && frexp(value, &exponent) != 0.5) {
        add_problem(p, key, "%s is %g, expected a power of two", strchr(key, '.') + 1, value);
    }
}

static void check_loss_scale(problems *p, const crl_settings *s) {
    check_power(p, "numerics.loss_scale", s->numerics.loss_scale);
    check_power(p, "numerics.loss_scale_initial", s->numerics.loss_scale_initial);
    if (s->numerics.loss_scale > 0 && s->numerics.precision != CRL_PRECISION_F16) {
        add_problem(p, "numerics.loss_scale", "loss_scale is %g, expected it with precision f16",
                    s->numerics.loss_scale);
    }
}

static void check_numbers(problems *p, const crl_settings *s) {
    const int64_t widest = crl_settings_widest(s);
    if (s->numerics.lanes != 0 &&
        ((s->numerics.lanes & (s->numerics.lanes - 1)) != 0 || s->numerics.lanes < widest)) {
        add_problem(p, "numerics.lanes",
                    "lanes are %" PRId64 ", expected a power of two not below the data-parallel "
                    "width %" PRId64,
                    s->numerics.lanes, widest);
    }
    check_loss_scale(p, s);
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
        {crl_wires, "wire", "comm.wire", s->comm.wire, "auto"},
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

/* Without a registry of devices there is the CPU. */
static void find_backend(problems *p, crl_settings *s, const crl_registries *registries) {
    static const void *const host[] = {&crl_backend_cpu, NULL};
    const void *found = &crl_backend_cpu;
    if (crl_registry_find(&found, registries->backends ? registries->backends : host, "device",
                          s->run.device)) {
        add_problem(p, "run.device", "%s", crl_error_message());
        return;
    }
    s->backend = found;
    if (!crl_backend_kernels(s->backend, crl_settings_compute(s))) {
        add_problem(p, "numerics.precision", "device %s computes in f32 only", s->run.device);
    }
}

crl_dtype crl_settings_compute(const crl_settings *settings) {
    static const crl_dtype dtypes[] = {[CRL_PRECISION_F32] = CRL_DTYPE_F32,
                                       [CRL_PRECISION_BF16] = CRL_DTYPE_BF16,
                                       [CRL_PRECISION_F16] = CRL_DTYPE_F16};
    return dtypes[settings->numerics.precision];
}

static crl_status check_together(crl_settings *s, const crl_registries *registries) {
    problems p = {.source = &s->source};
    CRL_TRY(parse_replicas(&p, s));
    check_numbers(&p, s);
    check_names(&p, s, registries);
    check_cuts(&p, s, registries);
    check_optimizer(&p, s);
    find_backend(&p, s, registries);
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
    crl_config_section section[CRL_SETTINGS_SECTIONS + 1];
    crl_option own_model_table[2];
    CRL_TRY_OUT(crl_alloc(&settings, 1, sizeof *settings));
    crl_settings_selection select = {registries, model, settings};
    crl_settings_sections(section, own_model_table, &select);
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
    crl_config_section section[CRL_SETTINGS_SECTIONS + 1];
    crl_option own_model_table[2];
    crl_settings_selection select = {registries, NULL, &settings};
    crl_settings_sections(section, own_model_table, &select);
    crl_config_reference(section, out);
    print_own("model", registries->models, true, out);
    print_own("optimizer", registries->optimizers, false, out);
    return CRL_STATUS_OK;
}
