/* SPDX-License-Identifier: Apache-2.0 */
/* Making profiles, and refusing those no planner can reason with. Reads no files. */
#include "engine/ir/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"

#define SECONDS(name, field)                                                                       \
    { name, offsetof(crl_profile_unit, field), true }
#define BYTES(name, field)                                                                         \
    { name, offsetof(crl_profile_unit, field), false }

const crl_profile_number crl_profile_numbers[] = {
    SECONDS("forward", forward_s),
    SECONDS("input", input_s),
    SECONDS("weight", weight_s),
    SECONDS("split", split_s),
    SECONDS("recompute_selective", recompute_s[CRL_RECOMPUTE_SELECTIVE]),
    SECONDS("recompute_full", recompute_s[CRL_RECOMPUTE_FULL]),
    SECONDS("add", add_s),
    SECONDS("update", update_s),
    BYTES("kept", kept_bytes[CRL_RECOMPUTE_NONE]),
    BYTES("kept_selective", kept_bytes[CRL_RECOMPUTE_SELECTIVE]),
    BYTES("kept_full", kept_bytes[CRL_RECOMPUTE_FULL]),
    BYTES("held", held_bytes),
    BYTES("workspace", workspace_bytes),
    BYTES("parameters", parameter_bytes),
    BYTES("state", state_bytes),
    BYTES("output", output_bytes),
    {0}};

crl_status crl_profile_create(crl_profile **out, int units) {
    crl_status status = CRL_STATUS_OK;
    crl_profile *profile = NULL;
    if (units < 1) {
        return CRL_FAIL(INVALID, "profile: has %d units, expected at least 1", units);
    }
    CRL_TRY_OUT(crl_alloc(&profile, 1, sizeof *profile));
    *profile =
        (crl_profile){.source = "", .micro_batch = 1, .tokens_per_sample = 1, .units = units};
    CRL_TRY_OUT(
        crl_arena_alloc(&profile->arena, &profile->unit, (size_t)units, sizeof *profile->unit));
    *out = profile;
    profile = NULL;
out:
    crl_profile_destroy(profile);
    return status;
}

void crl_profile_destroy(crl_profile *profile) {
    if (profile) {
        crl_arena_fini(&profile->arena);
        crl_free(profile);
    }
}

crl_status crl_profile_name_unit(crl_profile *profile, int unit, const char *name, int inputs,
                                 const int *input) {
    if (unit < 0 || unit >= profile->units || inputs < 0) {
        return CRL_FAIL(INVALID, "profile: unit %d with %d inputs, it has %d units", unit, inputs,
                        profile->units);
    }
    crl_profile_unit *u = &profile->unit[unit];
    int *copy = NULL;
    CRL_TRY(crl_arena_text(&profile->arena, &u->name, name));
    CRL_TRY(crl_arena_alloc(&profile->arena, &copy, (size_t)inputs, sizeof *copy));
    if (inputs > 0) {
        memcpy(copy, input, (size_t)inputs * sizeof *copy);
    }
    u->input = copy;
    u->inputs = inputs;
    return CRL_STATUS_OK;
}

int crl_profile_find(const crl_profile *profile, const char *name) {
    for (int u = 0; u < profile->units; u++) {
        if (profile->unit[u].name && strcmp(profile->unit[u].name, name) == 0) {
            return u;
        }
    }
    return -1;
}

static crl_status check_unit(const crl_profile *profile, int index) {
    const crl_profile_unit *u = &profile->unit[index];
    if (!u->name || u->name[0] == '\0') {
        return CRL_FAIL(INVALID, "profile unit %d: has no name", index);
    }
    for (const crl_profile_number *n = crl_profile_numbers; n->name; n++) {
        const double value = *(const double *)(const void *)((const char *)u + n->offset);
        if (!isfinite(value) || value < 0) {
            return CRL_FAIL(INVALID, "profile unit %s: %s is %g %s, expected 0 or more", u->name,
                            n->name, value, n->seconds ? "s" : "bytes");
        }
    }
    if (u->recompute_s[CRL_RECOMPUTE_NONE] != 0) {
        return CRL_FAIL(INVALID, "profile unit %s: takes %g s to make nothing again, expected 0",
                        u->name, u->recompute_s[CRL_RECOMPUTE_NONE]);
    }
    for (int i = 0; i < u->inputs; i++) {
        if (u->input[i] < 0 || u->input[i] >= index) {
            return CRL_FAIL(INVALID, "profile unit %s: reads unit %d, expected one before %d",
                            u->name, u->input[i], index);
        }
        if (i > 0 && u->input[i] <= u->input[i - 1]) {
            return CRL_FAIL(INVALID, "profile unit %s: reads unit %d after %d, expected ascending",
                            u->name, u->input[i], u->input[i - 1]);
        }
    }
    return CRL_STATUS_OK;
}

static int by_name(const void *left, const void *right) {
    const char *const *a = left, *const *b = right;
    return strcmp(*a, *b);
}

static crl_status check_names(const crl_profile *profile) {
    crl_status status = CRL_STATUS_OK;
    const char **name = NULL;
    CRL_TRY(crl_alloc(&name, (size_t)profile->units, sizeof *name));
    for (int u = 0; u < profile->units; u++) {
        name[u] = profile->unit[u].name;
    }
    qsort(name, (size_t)profile->units, sizeof *name, by_name);
    for (int u = 1; u < profile->units && status == CRL_STATUS_OK; u++) {
        if (strcmp(name[u], name[u - 1]) == 0) {
            status = CRL_FAIL(INVALID, "profile unit %s: stands there twice", name[u]);
        }
    }
    crl_free(name);
    return status;
}

crl_status crl_profile_check(const crl_profile *profile) {
    if (profile->units < 1 || profile->micro_batch < 1) {
        return CRL_FAIL(INVALID,
                        "profile: %d units for micro-batches of %lld, expected 1 or more of both",
                        profile->units, (long long)profile->micro_batch);
    }
    if (!isfinite(profile->tokens_per_sample) || profile->tokens_per_sample <= 0) {
        return CRL_FAIL(INVALID, "profile: %g tokens per sample, expected more than 0",
                        profile->tokens_per_sample);
    }
    for (int u = 0; u < profile->units; u++) {
        CRL_TRY(check_unit(profile, u));
    }
    return check_names(profile);
}
