/* SPDX-License-Identifier: Apache-2.0 */
/* `carole info`: what was built in, what the machine has, what is missing and how to get it. */
#include "cli/cli_internal.h"

#include <string.h>
#include <unistd.h>

#include "engine/base/alloc.h"
#include "engine/base/registry.h"
#include "engine/base/thread.h"
#include "engine/device/device.h"
#include "engine/ir/layer.h"
#include "engine/kernels/kernels.h"
#include "engine/run/optimizer.h"

#ifdef __clang__
static const char compiler[] = __VERSION__;
#else
static const char compiler[] = "gcc " __VERSION__;
#endif

#define CRL_TEXT_OF(x) #x
#define CRL_TEXT(x)    CRL_TEXT_OF(x)

typedef struct info_options {
    const char *layer, *model, *optimizer;
} info_options;

static const crl_option options[] = {{"layer", "", "print the options of this layer type",
                                      &crl_option_text, offsetof(info_options, layer), 0, 0, NULL},
                                     {"model", "", "print the options of this model",
                                      &crl_option_text, offsetof(info_options, model), 0, 0, NULL},
                                     {"optimizer", "", "print the options of this optimizer",
                                      &crl_option_text, offsetof(info_options, optimizer), 0, 0,
                                      NULL},
                                     {0}};

static void print_list(const char *kind, const void *const *registry) {
    printf("\n%s\n", kind);
    for (int i = 0; registry[i]; i++) {
        const crl_plugin *plugin = registry[i];
        printf("  %-22s %s\n", plugin->name, plugin->help ? plugin->help : "");
    }
}

static bool has(const void *const *registry, const char *name) {
    for (int i = 0; registry[i]; i++)
        if (strcmp(((const crl_plugin *)registry[i])->name, name) == 0)
            return true;
    return false;
}

/* The value of the first "<key> : value" line of /proc/cpuinfo. */
static void cpu_name(char *text, size_t bytes) {
    snprintf(text, bytes, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[512];
    while (file && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (colon && strncmp(line, "model name", 10) == 0) {
            snprintf(text, bytes, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
            break;
        }
    }
    if (file)
        fclose(file);
}

static void print_build(const crl_registries *registries) {
    char kernels[128];
    crl_kernels_describe(kernels, sizeof kernels);
    printf("carole %s\n\nbuilt with\n", CRL_TEXT(CRL_VERSION));
    printf("  compiler               %s\n", compiler);
    printf("  kernels                %s\n", kernels);
    printf(
        "  MPI                    %s\n",
        has(registries->transports, "mpi")
            ? "yes"
            : "no: install libopenmpi-dev and openmpi-bin, then configure with -DCRL_WITH_MPI=ON");
    printf("  CUDA                   %s\n",
           has(registries->backends, "cuda")
               ? "yes"
               : "no: install the CUDA toolkit, then configure with -DCRL_WITH_CUDA=ON");
    printf("  Gloo                   no: not part of this version\n");
}

/* What devices of other kinds say of themselves: a device, or why there is none. */
static void print_devices(const void *const *backends) {
    for (int i = 0; backends[i]; i++) {
        const crl_backend *backend = backends[i];
        char text[1024];
        if (!backend->device->describe)
            continue;
        backend->device->describe(text, sizeof text);
        printf("  %-22s %s\n", backend->name, text);
    }
}

static void print_machine(const crl_registries *registries) {
    char cpu[256], offers[128], memory[32];
    cpu_name(cpu, sizeof cpu);
    crl_device_cpu_describe(offers, sizeof offers);
    const double bytes = (double)crl_memory_physical_bytes();
    printf("\nthis machine\n");
    printf("  processor              %s\n", cpu);
    printf("  vectors                %s\n", offers);
    printf("  cores                  %d\n", crl_cpu_count());
    printf("  memory                 %s\n", crl_units_bytes(memory, bytes));
    const char *const path[] = {"/usr/bin/mpirun", "/usr/local/bin/mpirun"};
    const bool mpirun = access(path[0], X_OK) == 0 || access(path[1], X_OK) == 0;
    printf("  mpirun                 %s\n", mpirun ? "yes"
                                                   : "not in /usr/bin or /usr/local/bin: "
                                                     "install openmpi-bin");
    print_devices(registries->backends);
}

static crl_status print_layer(const crl_registries *registries, const char *name) {
    const void *found = NULL;
    CRL_TRY(crl_registry_find(&found, registries->layers, "layer", name));
    const crl_layer *layer = found;
    printf("%s: %s\n", layer->name, layer->help ? layer->help : "");
    if (layer->options)
        crl_option_print(layer->options, "  ", stdout);
    return CRL_STATUS_OK;
}

static crl_status print_model(const crl_cli *cli, const char *name) {
    const void *found = cli->model;
    if (!cli->model || strcmp(cli->model->name, name) != 0)
        CRL_TRY(crl_registry_find(&found, cli->registries->models, "model", name));
    const crl_model_def *model = found;
    printf("%s: %s\n", model->name, model->help ? model->help : "");
    if (model->options)
        crl_option_print(model->options, "  ", stdout);
    return CRL_STATUS_OK;
}

static crl_status print_optimizer(const crl_registries *registries, const char *name) {
    const void *found = NULL;
    CRL_TRY(crl_registry_find(&found, registries->optimizers, "optimizer", name));
    const crl_optimizer *optimizer = found;
    printf("%s: %s\n", optimizer->name, optimizer->help ? optimizer->help : "");
    if (optimizer->options)
        crl_option_print(optimizer->options, "  ", stdout);
    return CRL_STATUS_OK;
}

static crl_status run(const crl_cli *cli, crl_cli_args *args) {
    const info_options *o = args->options;
    const crl_registries *r = cli->registries;
    args->exit_code = CRL_EXIT_USAGE;
    if (o->layer[0])
        CRL_TRY(print_layer(r, o->layer));
    if (o->model[0])
        CRL_TRY(print_model(cli, o->model));
    if (o->optimizer[0])
        CRL_TRY(print_optimizer(r, o->optimizer));
    if (o->layer[0] || o->model[0] || o->optimizer[0])
        return CRL_STATUS_OK;
    print_build(r);
    print_machine(r);
    print_list("models", r->models);
    print_list("layers", r->layers);
    print_list("schedules", r->schedules);
    print_list("partitioners", r->partitioners);
    print_list("optimizers", r->optimizers);
    print_list("data formats", r->datasets);
    print_list("tokenizers", r->tokenizers);
    print_list("transports", r->transports);
    print_list("devices", r->backends);
    return CRL_STATUS_OK;
}

const crl_command crl_command_info = {
    .name = "info",
    .help = "what is built in, what the machine has, what is missing",
    .options = options,
    .options_bytes = sizeof(info_options),
    .run = run,
};
