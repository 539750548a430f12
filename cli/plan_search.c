/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of a search: the ten best layouts, why all but one lose, and the stages of the best.
 */
#include "cli/layout_search_internal.h"

#include <string.h>

#include "engine/base/alloc.h"
#include "engine/run/counted.h"
#include "engine/run/layout.h"

/* "8x2", "[3,1]" */
static void widths_text(char text[32], const crl_hybrid *layout) {
    int used = snprintf(text, 32, "%s", layout->widths ? "[" : "");
    if (!layout->widths) {
        snprintf(text, 32, "%d x %d", layout->positions, layout->pipelines);
        return;
    }
    for (int p = 0; p < layout->positions && used < 24; p++)
        used += snprintf(text + used, (size_t)(32 - used), "%s%d", p > 0 ? "," : "",
                         layout->pipelines * layout->widths[p]);
    snprintf(text + used, (size_t)(32 - used), "]");
}

/* "none", "full", or the lightest and the heaviest of the stages: "none-full". */
static void modes_text(char text[32], const crl_hybrid *layout) {
    int least = CRL_RECOMPUTES - 1, most = 0;
    for (int s = 0; s < layout->stages; s++) {
        least = layout->recompute[s] < least ? layout->recompute[s] : least;
        most = layout->recompute[s] > most ? layout->recompute[s] : most;
    }
    if (least == most)
        snprintf(text, 32, "%s", crl_recompute_name(most));
    else
        snprintf(text, 32, "%s-%s", crl_recompute_name(least), crl_recompute_name(most));
}

static void print_row(const char *number, const crl_found *found, bool price) {
    char widths[32], modes[32], text[4][32];
    const crl_hybrid *layout = &found->layout;
    const crl_prediction *p = &found->prediction;
    widths_text(widths, layout);
    modes_text(modes, layout);
    printf("%3s  %-10s  %-11s  %7d  %-14s  %5lld  %5d  %9s  %9s  %5.1f %%  %9s  %10s", number,
           widths, layout->schedule->name, layout->stages / layout->positions, modes,
           (long long)found->profile->micro_batch, layout->lanes,
           crl_units_seconds(text[0], p->step_s), crl_units_count(text[1], p->tokens_per_s),
           100 * p->bubble, crl_units_seconds(text[2], p->exposed_s),
           crl_units_bytes(text[3], p->peak_bytes));
    if (price)
        printf("  %9.2f", p->price_per_billion_tokens);
    printf("  %s\n", found->why);
}

static void print_best(const crl_found *best) {
    const crl_hybrid *layout = &best->layout;
    const crl_schedule_request asked = {.positions = layout->positions,
                                        .stages = layout->stages,
                                        .micro_batches = layout->micro_batches,
                                        .widths = layout->widths,
                                        .group = layout->group};
    printf("\nstages of the best\nstage  position  replicas  layers  recompute       memory  "
           "from .. to\n");
    for (int s = 0; s < layout->stages; s++) {
        const int position = crl_schedule_position(layout->schedule, &asked, s);
        const int last = s + 1 < layout->stages ? layout->first[s + 1] : best->profile->units;
        char bytes[32];
        printf("%5d  %8d  %8d  %6d  %-9s  %11s  %s .. %s\n", s, position,
               layout->pipelines * (layout->widths ? layout->widths[position] : 1),
               last - layout->first[s], crl_recompute_name(layout->recompute[s]),
               crl_units_bytes(bytes, best->position_bytes[position]),
               best->profile->unit[layout->first[s]].name, best->profile->unit[last - 1].name);
    }
}

void crl_cli_search_print(const crl_cli_search *s) {
    const crl_search *search = s->search;
    const bool price = s->machine.price_per_hour > 0;
    char number[16];
    printf("model %s on %d devices of machine %s, global batch %lld: %lld layouts, %lld "
           "simulations\n",
           s->settings->model_type, s->devices, s->machine.name,
           (long long)s->settings->train.global_batch, (long long)search->candidates,
           (long long)search->predicted);
    printf("costs: %s\n\n", s->profiles.item[0]->source);
    printf("%3s  %-10s  %-11s  %7s  %-14s  %5s  %5s  %9s  %9s  %7s  %9s  %10s%s  %s\n", "",
           "positions", "schedule", "virtual", "recompute", "batch", "lanes", "step", "tokens/s",
           "bubble", "exposed", "memory", price ? "  per 1e9 t" : "", "loses by");
    for (int i = 0; i < search->count; i++) {
        snprintf(number, sizeof number, "%d", i + 1);
        print_row(number, &search->found[i], price);
    }
    for (int i = 0; i < search->refused; i++)
        print_row("-", &search->found[search->count + i], price);
    print_best(&search->found[0]);
}

/* A configured layout as the cost model takes it; arrays are the caller's. */
typedef struct configured {
    crl_hybrid hybrid;
    int *widths;              /* (P) */
    unsigned char *recompute; /* (S) */
} configured;

static void configured_fini(configured *self) {
    crl_free(self->widths);
    crl_free(self->recompute);
}

static crl_status configured_init(configured *self, const crl_layout *layout) {
    const crl_plan *plan = layout->plan;
    CRL_TRY(crl_alloc(&self->widths, (size_t)layout->mesh.pipeline, sizeof *self->widths));
    CRL_TRY(crl_alloc(&self->recompute, (size_t)layout->stages, 1));
    bool wide = false;
    for (int p = 0; p < layout->mesh.pipeline; p++) {
        self->widths[p] = layout->first_row[p + 1] - layout->first_row[p];
        wide = wide || self->widths[p] > 1;
    }
    for (int s = 0; s < layout->stages; s++)
        for (int n = plan->stage[s].first; plan->recompute && n < plan->stage[s].last; n++)
            if (plan->recompute[n] > self->recompute[s])
                self->recompute[s] = plan->recompute[n];
    self->hybrid = (crl_hybrid){.tensor = 1,
                                .pipelines = layout->mesh.data,
                                .positions = layout->mesh.pipeline,
                                .stages = layout->stages,
                                .widths = wide ? self->widths : NULL,
                                .first = layout->partition.first,
                                .recompute = self->recompute,
                                .schedule = layout->schedule,
                                .group = (int)layout->settings->parallel.group,
                                .micro_batches = layout->micro_batches,
                                .lanes = layout->lanes};
    return CRL_STATUS_OK;
}

static void print_prediction(const crl_prediction *p, const char *source) {
    char step[32], rate[32], exposed[32];
    printf("\npredicted step: %s, %s tokens/s, %s of communication exposed (%s)\n",
           crl_units_seconds(step, p->step_s), crl_units_count(rate, p->tokens_per_s),
           crl_units_seconds(exposed, p->exposed_s), source);
}

crl_status crl_cli_print_prediction(const crl_layout *layout, const double *node_s) {
    crl_status status = CRL_STATUS_OK;
    crl_machine machine = layout->machine.machine;
    crl_profile *profile = NULL;
    crl_prediction prediction;
    configured c = {0};
    const bool measured = node_s || layout->settings->parallel.profile[0];
    if (!layout->schedule) /* a file's: it knows its order, and the cost model asks schedules */
        return CRL_STATUS_OK;
    if (!layout->settings->parallel.machine[0]) {
        machine.nodes = 1;
        machine.devices_per_node = (int)crl_settings_ranks(layout->settings);
    }
    CRL_TRY_OUT(configured_init(&c, layout));
    CRL_TRY_OUT(crl_profile_counted(&profile, layout->graph, &machine,
                                    measured ? layout->node_s : NULL, layout->states));
    if (crl_predict(&prediction, NULL, &c.hybrid, profile, &machine) == CRL_STATUS_OK)
        print_prediction(&prediction, profile->source);
    else
        crl_error_clear(); /* what the cost model does not take can still be trained */
out:
    crl_profile_destroy(profile);
    configured_fini(&c);
    return status;
}
