/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which checkpoint a job goes on from. Rank 0 looks and tells the others: ranks that looked for
 * themselves could see different files (hosts without a common file system) and go on from
 * different steps. Refuses checkpoints of another format.
 */
#include <stdio.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/run/checkpoint.h"
#include "engine/run/run_internal.h"

/* Those of a checkpoint before there were precisions are f32's. */
static crl_status read_precision(crl_resume_point *out, const json_t *facts) {
    const char *precision = "f32";
    if (json_object_get(facts, "precision")) {
        CRL_TRY(crl_json_get_text(&precision, facts, "precision", out->path));
    }
    snprintf(out->precision, sizeof out->precision, "%s", precision);
    const json_t *scale = json_object_get(facts, "loss_scale");
    if (!scale) {
        return CRL_STATUS_OK;
    }
    if (!(json_number_value(scale) >= 1)) {
        return CRL_FAIL(INVALID, "%s: loss_scale is %g, expected 1 or more", out->path,
                        json_number_value(scale));
    }
    out->loss_scale = json_number_value(scale);
    CRL_TRY(crl_json_get_int(&out->loss_scale_good, facts, "loss_scale_good", out->path));
    CRL_TRY(crl_json_get_int(&out->skipped, facts, "skipped", out->path));
    if (out->skipped < 0 || out->skipped > out->step) { /* the optimizer counts the others */
        return CRL_FAIL(INVALID, "%s: skipped is %lld, expected 0 to %lld steps", out->path,
                        (long long)out->skipped, (long long)out->step);
    }
    return CRL_STATUS_OK;
}

static crl_status read_facts(crl_resume_point *out, const json_t *facts) {
    const char *optimizer = NULL, *path = out->path;
    int64_t format = 0;
    CRL_TRY(crl_json_get_int(&format, facts, "format", path));
    if (format != CRL_CHECKPOINT_FORMAT) {
        return CRL_FAIL(UNSUPPORTED, "%s: checkpoint has format %lld, expected %d", path,
                        (long long)format, (int)CRL_CHECKPOINT_FORMAT);
    }
    CRL_TRY(crl_json_get_int(&out->step, facts, "step", path));
    CRL_TRY(crl_json_get_int(&out->seed, facts, "seed", path));
    CRL_TRY(crl_json_get_int(&out->global_batch, facts, "global_batch", path));
    CRL_TRY(crl_json_get_int(&out->micro_batch, facts, "micro_batch", path));
    CRL_TRY(crl_json_get_int(&out->lanes, facts, "lanes", path));
    CRL_TRY(crl_json_get_text(&optimizer, facts, "optimizer", path));
    snprintf(out->optimizer, sizeof out->optimizer, "%s", optimizer);
    CRL_TRY(read_precision(out, facts));
    if (out->step < 0) {
        return CRL_FAIL(INVALID, "%s: step is %lld, expected 0 or more", path,
                        (long long)out->step);
    }
    return CRL_STATUS_OK;
}

static crl_status look(crl_resume_point *out, const char *where, bool optional) {
    json_t *facts = NULL;
    crl_status status = crl_checkpoint_find(out->path, sizeof out->path, where);
    if (status == CRL_STATUS_NOT_FOUND && optional) {
        out->path[0] = '\0';
        crl_error_clear();
        return CRL_STATUS_OK;
    }
    CRL_TRY(status);
    CRL_TRY(crl_checkpoint_facts(&facts, out->path));
    status = read_facts(out, facts);
    json_decref(facts);
    return status;
}

crl_status crl_resume_find(crl_resume_point *out, crl_comm *comm, const char *where,
                           bool optional) {
    const crl_group world = {comm, NULL, comm->ranks, comm->rank, CRL_SESSION_CHANNEL};
    memset(out, 0, sizeof *out); /* padding too: it is sent as it lies */
    if (comm->rank == 0) {
        CRL_TRY(look(out, where, optional));
    }
    return crl_broadcast(&world, 0, out, sizeof *out);
}

static crl_status require_fact(const crl_resume_point *point, const char *key, int64_t trained,
                               int64_t given) {
    if (trained != given) {
        return CRL_FAIL(INVALID,
                        "%s: trained with train.%s %lld, config has %lld (to use only its weights: "
                        "run.initialize)",
                        point->path, key, (long long)trained, (long long)given);
    }
    return CRL_STATUS_OK;
}

crl_status crl_resume_check(const crl_resume_point *point, const crl_settings *settings) {
    const crl_settings_train *train = &settings->train;
    CRL_TRY(require_fact(point, "seed", point->seed, train->seed));
    CRL_TRY(require_fact(point, "global_batch", point->global_batch, train->global_batch));
    CRL_TRY(require_fact(point, "micro_batch", point->micro_batch, train->micro_batch));
    if (strcmp(point->optimizer, settings->optimizer_kind->name) != 0) {
        return CRL_FAIL(INVALID,
                        "%s: trained with optimizer.type %s, config has %s (to use only its "
                        "weights: run.initialize)",
                        point->path, point->optimizer, settings->optimizer_kind->name);
    }
    const char *precision = crl_dtype_name(crl_settings_compute(settings));
    if (strcmp(point->precision, precision) != 0) {
        return CRL_FAIL(INVALID,
                        "%s: trained with numerics.precision %s, config has %s (to use only its "
                        "weights: run.initialize)",
                        point->path, point->precision, precision);
    }
    return CRL_STATUS_OK;
}
