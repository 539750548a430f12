/* SPDX-License-Identifier: Apache-2.0 */
/* A transformer as units that the planner can cut: embedding, layers, head. */
#include "partition/transformer_internal.h"

#include <stdio.h>

/* Once a step: all that is held is read and written. */
static void set_parameters(crl_profile_unit *unit, const transformer_sizes *z,
                           const crl_machine *machine, double parameters) {
    const double own = parameters / z->tensor;
    /* Split states: gradients are summed to one owner each, weights come back. */
    unit->parameter_bytes =
        own * (z->shards > 1 ? (z->gradient_bytes + z->element_bytes) / 2 : z->gradient_bytes);
    unit->state_bytes = own * (z->element_bytes + z->gradient_bytes + z->state_bytes / z->shards);
    unit->update_s = crl_machine_traffic_s(
        machine, 2 * own * (z->element_bytes + z->gradient_bytes + z->state_bytes) / z->shards);
}

static void set_times(crl_profile_unit *unit, const crl_transformer_times *times) {
    unit->forward_s = times->forward_s;
    unit->input_s = times->input_s;
    unit->weight_s = times->weight_s;
    for (int mode = 0; mode < CRL_RECOMPUTES; mode++) {
        unit->recompute_s[mode] = times->recompute_s[mode];
    }
}

static void fill_embedding(crl_profile_unit *unit, const transformer_sizes *z,
                           const crl_machine *machine) {
    const double x = z->activity / z->norm;
    unit->forward_s = crl_machine_traffic_s(machine, z->activity * 3 * z->element_bytes) +
                      crl_machine_traffic_s(machine, x * (2 * z->element_bytes + 1));
    unit->weight_s = crl_machine_traffic_s(machine, z->activity * 3 * z->gradient_bytes);
    for (int mode = 0; mode < CRL_RECOMPUTES; mode++) {
        unit->kept_bytes[mode] = x * z->element_bytes / 2; /* the dropout's mask */
    }
    set_parameters(unit, z, machine, (z->vocabulary + z->sequence) * z->hidden);
}

static void fill_layer(crl_profile_unit *unit, const transformer_sizes *z,
                       const crl_transformer *model, const crl_machine *machine) {
    const crl_transformer_times times = crl_transformer_layer_times(model, machine);
    set_times(unit, &times);
    for (int mode = 0; mode < CRL_RECOMPUTES; mode++) {
        unit->kept_bytes[mode] = crl_transformer_layer_kept_bytes(model, mode);
    }
    unit->held_bytes = crl_transformer_layer_held_bytes(model);
    unit->workspace_bytes = crl_transformer_layer_kept_bytes(model, CRL_RECOMPUTE_NONE);
    set_parameters(unit, z, machine, crl_transformer_layer_parameters(model));
}

/* Norm 2 sbh, product 2 sbh, logits in float 4 sbV/t [korthikanti22] §4.3. */
static void fill_head(crl_profile_unit *unit, const transformer_sizes *z,
                      const crl_transformer *model, const crl_machine *machine) {
    const crl_transformer_times times = crl_transformer_head_times(model, machine);
    set_times(unit, &times);
    for (int mode = 0; mode < CRL_RECOMPUTES; mode++) {
        unit->kept_bytes[mode] =
            z->activity / z->norm * 2 * z->element_bytes + 4 * z->rows * z->vocabulary / z->tensor;
    }
    set_parameters(unit, z, machine, z->vocabulary * z->hidden + 2 * z->hidden);
}

static crl_status name_units(crl_profile *profile) {
    const int last = profile->units - 1;
    char name[32];
    for (int u = 0; u <= last; u++) {
        const int before = u - 1;
        snprintf(name, sizeof name, "h%d", u - 1);
        CRL_TRY(crl_profile_name_unit(profile, u,
                                      u == 0      ? "embedding"
                                      : u == last ? "head"
                                                  : name,
                                      u > 0 ? 1 : 0, &before));
    }
    return CRL_STATUS_OK;
}

static crl_status fill(crl_profile *profile, const crl_transformer *model,
                       const crl_machine *machine) {
    const transformer_sizes z = crl_transformer_sizes(model);
    const int last = profile->units - 1;
    CRL_TRY(crl_arena_format(&profile->arena, &profile->source, "counted: transformer %s on %s",
                             model->name ? model->name : "", machine->name ? machine->name : ""));
    profile->micro_batch = model->micro_batch;
    profile->tokens_per_sample = z.sequence;
    CRL_TRY(name_units(profile));
    fill_embedding(&profile->unit[0], &z, machine);
    for (int u = 1; u < last; u++) {
        fill_layer(&profile->unit[u], &z, model, machine);
    }
    fill_head(&profile->unit[last], &z, model, machine);
    for (int u = 0; u < last; u++) {
        profile->unit[u].output_bytes =
            z.activity * z.element_bytes / (model->gathered_messages ? z.tensor : z.norm);
    }
    return CRL_STATUS_OK;
}

crl_status crl_transformer_profile(crl_profile **out, const crl_transformer *model,
                                   const crl_machine *machine) {
    crl_status status = CRL_STATUS_OK;
    crl_profile *profile = NULL;
    CRL_TRY(crl_transformer_check(model));
    CRL_TRY(crl_machine_check(machine));
    if (model->layers > 1 << 20) {
        return CRL_FAIL(INVALID, "transformer: %lld layers, expected at most %d",
                        (long long)model->layers, 1 << 20);
    }
    CRL_TRY_OUT(crl_profile_create(&profile, (int)model->layers + 2));
    CRL_TRY_OUT(fill(profile, model, machine));
    CRL_TRY_OUT(crl_profile_check(profile));
    *out = profile;
    profile = NULL;
out:
    crl_profile_destroy(profile);
    return status;
}
