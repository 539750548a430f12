/* SPDX-License-Identifier: Apache-2.0 */
/* Where the times of a layout's nodes come from: measured just now, a profile, or counted. */
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/run/counted.h"
#include "engine/run/layout_internal.h"
#include "engine/run/profile_file.h"

/* The profile of the settings' micro-batch size, of a file that has several. */
static crl_status find_size(const crl_profile **out, const crl_profile_list *list,
                            const crl_settings *settings) {
    for (int i = 0; i < list->count; i++) {
        if (list->item[i]->micro_batch == settings->train.micro_batch) {
            *out = list->item[i];
            return CRL_STATUS_OK;
        }
    }
    return CRL_FAIL(INVALID, "%s: has no micro-batches of %lld, train.micro_batch",
                    settings->parallel.profile, (long long)settings->train.micro_batch);
}

/* Unit u stands for node n. */
static crl_status take_unit(crl_layout *layout, const crl_profile *profile, int u, int n) {
    double *node_s = &layout->node_s[n * CRL_PHASES];
    const char *name = layout->graph->node[n].name;
    if (u >= profile->units || strcmp(profile->unit[u].name, name) != 0) {
        return CRL_FAIL(INVALID, "%s: unit %d is '%s', the model has '%s' there",
                        layout->settings->parallel.profile, u,
                        u < profile->units ? profile->unit[u].name : "", name);
    }
    node_s[CRL_PHASE_FORWARD] = profile->unit[u].forward_s;
    node_s[CRL_PHASE_INPUT] = profile->unit[u].input_s;
    node_s[CRL_PHASE_WEIGHT] = profile->unit[u].weight_s;
    return CRL_STATUS_OK;
}

static crl_status take_profile(crl_layout *layout) {
    crl_status status = CRL_STATUS_OK;
    crl_profile_list list = {0};
    const crl_profile *profile = NULL;
    CRL_TRY_OUT(crl_profile_file_read(&list, layout->settings->parallel.profile));
    CRL_TRY_OUT(find_size(&profile, &list, layout->settings));
    for (int n = 0, u = 0; n < layout->graph->nodes; n++) {
        if (!layout->graph->node[n].layer->is_input) {
            CRL_TRY_OUT(take_unit(layout, profile, u++, n));
        }
    }
out:
    crl_profile_list_fini(&list);
    return status;
}

crl_status crl_layout_times(crl_layout *layout, const double *measured_s) {
    const crl_settings_parallel *parallel = &layout->settings->parallel;
    const size_t times = (size_t)layout->graph->nodes * CRL_PHASES;
    CRL_TRY(crl_alloc(&layout->node_s, times, sizeof(double)));
    layout->machine.machine = *crl_counted_nominal();
    if (parallel->machine[0]) {
        CRL_TRY(crl_layout_placed(
            crl_machine_file_read(&layout->machine, parallel->machine, NULL, 0), layout->settings,
            "parallel.machine"));
    }
    if (measured_s) {
        memcpy(layout->node_s, measured_s, times * sizeof(double));
        return CRL_STATUS_OK;
    }
    if (parallel->profile[0]) {
        return crl_layout_placed(take_profile(layout), layout->settings, "parallel.profile");
    }
    crl_counted_times(layout->node_s, layout->graph, &layout->machine.machine);
    return CRL_STATUS_OK;
}
