/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `carole plan`: what a config would do, without doing it: stages, memory, bubble, ranks, and the
 * picture of one replica's pipeline. Asked for a machine or a number of devices it searches for the
 * layout instead.
 */
#include "cli/layout_search_internal.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "engine/base/alloc.h"

typedef struct plan_options {
    crl_text_list sets, micro_batches;
    const char *machine, *profile, *write, *schedule;
    int64_t devices, pipeline;
    bool measure, nodes, search;
} plan_options;

#define OPTION(name, value, help, type, field, min, max)                                           \
    { name, value, help, &type, offsetof(plan_options, field), min, max, NULL }

static const crl_option options[] = {
    CRL_CLI_SET_ROW(plan_options, sets),
    OPTION("search", "false", "look for the fastest layout of as many devices as the config has",
           crl_option_bool, search, 0, 0),
    OPTION("devices", "0", "look for the fastest layout of so many devices", crl_option_int,
           devices, 0, 65535),
    OPTION("machine", "", "look for the fastest layout on this machine (a file, docs/machines.md)",
           crl_option_text, machine, 0, 0),
    OPTION("profile", "", "with the costs of this file, as `carole profile --out` writes it",
           crl_option_text, profile, 0, 0),
    OPTION("micro-batches", "", "look among these micro-batch sizes, e.g. 1,2,4", crl_option_list,
           micro_batches, 0, 0),
    OPTION("schedule", "", "look only among layouts of this schedule", crl_option_text, schedule, 0,
           0),
    OPTION("pipeline", "0", "look only among pipelines of so many positions", crl_option_int,
           pipeline, 0, 65535),
    OPTION("write", "", "write the config with the best layout found to this file", crl_option_text,
           write, 0, 0),
    OPTION("measure", "false", "cut by times measured on this machine instead of counted costs",
           crl_option_bool, measure, 0, 0),
    OPTION("nodes", "false", "print every node of the model too", crl_option_bool, nodes, 0, 0),
    {0}};

static int64_t stage_parameters(const crl_layout *layout, const crl_stage *stage) {
    int64_t elements = 0;
    for (int p = 0; p < layout->graph->params; p++) {
        const crl_param *param = &layout->graph->param[p];
        for (int u = 0; u < param->uses; u++) {
            if (param->use[u].node >= stage->first && param->use[u].node < stage->last) {
                elements += param->elements; /* a tied one counts on every stage that holds it */
                break;
            }
        }
    }
    return elements;
}

static size_t bytes_into(const crl_plan *plan, int stage) {
    size_t bytes = 0;
    for (int e = 0; e < plan->edges; e++)
        if (plan->edge[e].to == stage)
            bytes += plan->edge[e].bytes;
    return bytes;
}

static void print_stages(const crl_layout *layout) {
    const crl_plan *plan = layout->plan;
    double total = 0;
    for (int s = 0; s < plan->stages; s++)
        total += layout->stage[s].forward_s + layout->stage[s].input_s + layout->stage[s].weight_s;
    printf(
        "stage  position  nodes  parameters   forward   backward   share    arrives  from .. to\n");
    for (int s = 0; s < plan->stages; s++) {
        const crl_stage *stage = &plan->stage[s];
        const crl_stage_cost *time = &layout->stage[s];
        const double backward_s = time->input_s + time->weight_s;
        char parameters[32], forward[32], backward[32], arrives[32];
        printf("%5d  %8d  %5d  %10s  %8s  %9s  %4.1f %%  %9s  %s .. %s\n", s, stage->position,
               stage->last - stage->first,
               crl_units_count(parameters, (double)stage_parameters(layout, stage)),
               crl_units_seconds(forward, time->forward_s), crl_units_seconds(backward, backward_s),
               total > 0 ? 100 * (time->forward_s + backward_s) / total : 0,
               crl_units_bytes(arrives, (double)bytes_into(plan, s)),
               layout->graph->node[stage->first].name, layout->graph->node[stage->last - 1].name);
    }
}

static void print_rank_memory(int rank, int position, const crl_memory_report *report) {
    char text[7][32];
    printf("%4d  %8d  %10s  %10s  %10s  %11s  %10s  %10s  %10s\n", rank, position,
           crl_units_bytes(text[0], (double)report->weights_bytes),
           crl_units_bytes(text[1], (double)report->gradients_bytes),
           crl_units_bytes(text[2], (double)report->optimizer_bytes),
           crl_units_bytes(text[3], (double)report->activations_bytes),
           crl_units_bytes(text[4], (double)report->workspace_bytes),
           crl_units_bytes(text[5], (double)report->comm_bytes),
           crl_units_bytes(text[6], (double)report->total_bytes));
}

/* Replica 0, and of the others those that need other memory: they may hold more lanes. Keeps in
 * `most` the report of the rank that needs the most. */
static crl_status print_memory(const crl_layout *layout, crl_memory_report *most) {
    printf("\nrank  position     weights   gradients   optimizer  activations   workspace        "
           "comm  "
           "     total\n");
    for (int position = 0; position < layout->mesh.pipeline; position++) {
        crl_memory_report before = {0};
        for (int replica = 0; replica < layout->widths[position]; replica++) {
            const int rank = crl_mesh_rank(
                &layout->mesh, (crl_coordinates){.position = position, .replica = replica});
            crl_memory_report report = {0};
            CRL_TRY(crl_layout_memory(&report, layout, rank));
            if (replica == 0 || memcmp(&report, &before, sizeof report) != 0)
                print_rank_memory(rank, position, &report);
            if (report.total_bytes > most->total_bytes)
                *most = report;
            before = report;
        }
    }
    return CRL_STATUS_OK;
}

static void print_ranks(const crl_mesh *mesh) {
    printf("\nranks by pipeline (down) and position (across)\n");
    for (int pipeline = 0; pipeline < mesh->data; pipeline++) {
        for (int position = 0; position < mesh->pipeline; position++) {
            for (int row = mesh->first_row[position]; row < mesh->first_row[position + 1]; row++)
                printf("%s%4d", row > mesh->first_row[position] ? "," : " ",
                       crl_mesh_rank_of_row(mesh, pipeline, row));
        }
        printf("\n");
    }
}

static int grid_columns(void) {
    struct winsize size = {0};
    return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 40
               ? size.ws_col
               : 120;
}

static crl_status print_pipeline(const crl_layout *layout) {
    const int pipeline = crl_layout_busy_pipeline(layout);
    const crl_range range = crl_layout_pipeline(layout, pipeline);
    const int micro_batches = range.last - range.first;
    crl_program *program = NULL;
    crl_simulation *simulation = NULL;
    crl_status status = CRL_STATUS_OK;
    CRL_TRY(crl_layout_program(&program, layout, layout->plan, pipeline, false));
    const crl_simulation_config config = {.stage = layout->stage};
    CRL_TRY_OUT(crl_simulate(&simulation, program, &config));
    char time[32];
    printf("\npipeline %d: schedule %s, %d micro-batches, %s of computing, predicted "
           "bubble %.1f %%\n",
           pipeline, layout->settings->parallel.schedule, micro_batches,
           crl_units_seconds(time, simulation->makespan_s), 100 * simulation->bubble);
    CRL_TRY_OUT(crl_program_print_grid(program, &config, NULL, grid_columns(), stdout));
out:
    crl_simulation_destroy(simulation);
    crl_program_destroy(program);
    return status;
}

static void print_head(const crl_layout *layout) {
    const crl_settings *settings = layout->settings;
    char parameters[32], widths[CRL_CLI_WIDTHS_BYTES];
    printf("model %s: %d nodes, %s parameters; %s = %lld ranks\n", settings->model_type,
           layout->graph->nodes,
           crl_units_count(parameters, (double)crl_graph_param_elements(layout->graph)),
           crl_cli_widths(widths, settings), (long long)crl_settings_ranks(settings));
    printf("global batch %lld in %d micro-batches of %lld, %d lanes; partitioner %s\n\n",
           (long long)settings->train.global_batch, layout->micro_batches,
           (long long)settings->train.micro_batch, layout->lanes, settings->parallel.partitioner);
}

static bool asks_for_search(const plan_options *o) {
    return o->search || o->devices > 0 || o->machine[0] || o->profile[0] || o->write[0] ||
           o->micro_batches.count > 0 || o->schedule[0] || o->pipeline > 0;
}

static crl_status search(const crl_cli *cli, crl_cli_args *args, const crl_settings *settings) {
    const plan_options *o = args->options;
    crl_status status = CRL_STATUS_OK;
    crl_cli_search search = {0};
    crl_settings *taken = NULL;
    int index = 0;
    const crl_settings_parallel *own = &settings->parallel;
    const crl_cli_search_config config = {.machine = o->machine[0] ? o->machine : own->machine,
                                          .profile = o->profile[0] ? o->profile : own->profile,
                                          .devices = (int)o->devices,
                                          .pinned = own->layout == CRL_LAYOUT_AUTO,
                                          .micro_batches = o->micro_batches,
                                          .schedule = o->schedule,
                                          .positions = o->pipeline};
    CRL_TRY_OUT(crl_cli_search_init(&search, cli, args, settings, &config));
    if (o->write[0]) {
        CRL_TRY_OUT(crl_cli_search_settle(&search, &taken, &index, cli, args, &o->sets));
        CRL_TRY_OUT(crl_cli_write_config(taken, o->write));
    } else {
        CRL_TRY_OUT(crl_cli_search_run(&search, 1));
    }
    crl_cli_search_print(&search);
    if (taken)
        printf("\nlayout %d is written to %s%s\n", index + 1, o->write,
               index > 0 ? ": the first that fits when its reservation is counted to the byte"
                         : "");
out:
    crl_settings_destroy(taken);
    crl_cli_search_fini(&search);
    return status;
}

static crl_status run(const crl_cli *cli, crl_cli_args *args) {
    const plan_options *o = args->options;
    crl_status status = CRL_STATUS_OK;
    crl_settings *settings = NULL;
    crl_layout *layout = NULL;
    double *node_s = NULL;
    crl_memory_report most = {0};
    CRL_TRY_OUT(crl_cli_settings(&settings, cli, args, &o->sets));
    if (asks_for_search(o)) {
        CRL_TRY_OUT(search(cli, args, settings));
        goto out;
    }
    char said[CRL_CLI_CHOICE_BYTES];
    CRL_TRY_OUT(crl_cli_choose_layout(&settings, said, cli, args, &o->sets, 0));
    if (said[0])
        printf("%s\n", said);
    if (o->measure || settings->train.profile)
        CRL_TRY_OUT(crl_layout_profile(&node_s, settings, cli->registries));
    CRL_TRY_OUT(crl_cli_layout(&layout, cli, args, settings, node_s));
    print_head(layout);
    if (o->nodes) {
        crl_graph_print(layout->graph, stdout);
        printf("\n");
    }
    print_stages(layout);
    CRL_TRY_OUT(print_memory(layout, &most));
    print_ranks(&layout->mesh);
    CRL_TRY_OUT(print_pipeline(layout));
    CRL_TRY_OUT(crl_cli_print_prediction(layout, node_s));
    CRL_TRY_OUT(crl_layout_memory_fits(layout, &most));
out:
    crl_layout_destroy(layout);
    crl_free(node_s);
    crl_settings_destroy(settings);
    return status;
}

const crl_command crl_command_plan = {
    .name = "plan",
    .help = "show stages, memory, bubble and ranks of a config, or find the fastest layout",
    .arguments = "CONFIG",
    .min_arguments = 1,
    .max_arguments = 1,
    .more = "With --search, --devices, --machine, --profile, --micro-batches, --schedule, "
            "--pipeline or --write the layout is looked for: the ten best with why they lose, and "
            "with --write a config that `train` takes. Without them the config's own is shown.",
    .options = options,
    .options_bytes = sizeof(plan_options),
    .run = run,
};
