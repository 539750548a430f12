/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts as the user gives them: the first unit of every stage but the first, by name or by index (a
 * name wins where a unit is called like a number). Without a number of stages the cuts decide it.
 * Refuses to correct anything.
 */
#include "engine/ir/partitioner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "partition/request_internal.h"

static int find_name(const crl_partition_request *request, const char *name) {
    for (int j = 0; request->unit_name && j < request->units; j++) {
        if (strcmp(request->unit_name[j], name) == 0) {
            return j;
        }
    }
    return -1;
}

static crl_status find_unit(int *out, const crl_partition_request *request, const char *text) {
    char *end;
    *out = find_name(request, text);
    if (*out >= 0) {
        return CRL_STATUS_OK;
    }
    errno = 0;
    const long index = strtol(text, &end, 10);
    if (end != text && *end == '\0') {
        if (errno != 0 || index < 0 || index >= request->units) {
            return CRL_FAIL(INVALID, "manual: cut '%s' is outside the layers 0 to %d", text,
                            request->units - 1);
        }
        *out = (int)index;
        return CRL_STATUS_OK;
    }
    const char *near = request->unit_name
                           ? crl_nearest_name(text, request->unit_name, (size_t)request->units,
                                              sizeof *request->unit_name)
                           : NULL;
    if (near) {
        return CRL_FAIL(INVALID, "manual: cut '%s' is no layer, did you mean '%s'?", text, near);
    }
    return CRL_FAIL(INVALID, "manual: cut '%s' is no layer", text);
}

static crl_status check_cut(const crl_partition_request *request, const char *text, int unit,
                            int before) {
    if (unit == 0) {
        return CRL_FAIL(INVALID, "manual: cut '%s' is the first layer, where stage 0 begins anyway",
                        text);
    }
    if (unit == before) {
        return CRL_FAIL(INVALID, "manual: cut '%s' is given twice", text);
    }
    if (unit < before) {
        return CRL_FAIL(INVALID, "manual: cut '%s' is layer %d, expected one after layer %d", text,
                        unit, before);
    }
    if (request->may_cut_before && !request->may_cut_before[unit]) {
        return CRL_FAIL(INVALID, "manual: no stage may begin at '%s'", text);
    }
    return CRL_STATUS_OK;
}

static crl_status check_count(const crl_partition_request *request) {
    const int given = request->cuts.count + 1;
    if (given > request->stages || (given < request->stages && !request->fewer_stages)) {
        return CRL_FAIL(INVALID, "manual: %d cuts make %d stages, expected %s%d",
                        request->cuts.count, given, request->fewer_stages ? "at most " : "",
                        request->stages);
    }
    return CRL_STATUS_OK;
}

static crl_status cut(crl_partition *out, const crl_partition_request *request) {
    crl_partition result = {.stages = request->cuts.count + 1};
    crl_partition_request own = *request;
    if (own.stages == 0) {
        own.stages = result.stages;
    }
    CRL_TRY(crl_partition_check_request("manual", &own));
    CRL_TRY(check_count(&own));
    for (int s = 1; s < result.stages; s++) {
        const char *text = own.cuts.item[s - 1];
        CRL_TRY(find_unit(&result.first[s], &own, text));
        CRL_TRY(check_cut(&own, text, result.first[s], result.first[s - 1]));
    }
    crl_partition_measure(&result, &own);
    CRL_TRY(crl_partition_require_fit("manual", &result, &own));
    *out = result;
    return CRL_STATUS_OK;
}

const crl_partitioner crl_partitioner_manual = {
    .name = "manual",
    .help = "cuts at the layers named in the config",
    .uses_cuts = true,
    .cut = cut,
};
