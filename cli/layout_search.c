/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a config to a search: its machine (a file, or the nominal one), the costs of its layers
 * (a file, or counted) for several micro-batch sizes, and what is free to choose. Chooses nothing
 * itself: partition/search.c does.
 */
#include "cli/layout_search_internal.h"
#include "cli/sizes_internal.h"

#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/registry.h"
#include "engine/run/counted.h"
#include "engine/run/layout.h"

enum { SIZES_AROUND = 2 };

static bool given(const char *text) {
    return text && *text;
}

static bool is_given(const crl_settings *settings, const char *key) {
    for (int i = 0; i < settings->source.origins; i++)
        if (strcmp(settings->source.origin[i].key, key) == 0)
            return true;
    return false;
}

static crl_status take_machine(crl_cli_search *s, const crl_cli_search_config *config) {
    if (given(config->machine)) {
        CRL_TRY(crl_machine_file_read(&s->machine_file, config->machine, NULL, 0));
        s->machine = s->machine_file.machine;
        const int64_t all = (int64_t)s->machine.nodes * s->machine.devices_per_node;
        if (config->devices > all)
            return CRL_FAIL(INVALID, "--devices is %d, machine %s has %d x %d", config->devices,
                            s->machine.name, s->machine.nodes, s->machine.devices_per_node);
        s->devices = config->devices > 0 ? config->devices : (int)all;
        return CRL_STATUS_OK;
    }
    s->devices = config->devices > 0 ? config->devices : (int)crl_settings_ranks(s->settings);
    s->machine = *crl_counted_nominal();
    s->machine.nodes = 1;
    s->machine.devices_per_node = s->devices;
    s->machine.memory_bytes = 0; /* of hosts that differ all ranks would have to know */
    return CRL_STATUS_OK;
}

/* Sizes of micro-batches to look at: those asked for, else the config's and some around it. */
static crl_status take_sizes(crl_cli_sizes *out, const crl_settings *settings,
                             const crl_cli_search_config *config) {
    const int64_t own = settings->train.micro_batch, most = settings->train.global_batch;
    CRL_TRY(crl_cli_sizes_take(out, &config->micro_batches));
    if (out->count > 0)
        return CRL_STATUS_OK;
    out->item[out->count++] = own;
    for (int i = 1; i <= SIZES_AROUND && !config->pinned; i++) {
        if (own >> i > 0 && own % ((int64_t)1 << i) == 0)
            out->item[out->count++] = own >> i;
        if (own << i <= most)
            out->item[out->count++] = own << i;
    }
    crl_cli_sizes_sort(out);
    return CRL_STATUS_OK;
}

/* Cuts go by the names of layers: a file has to be of this model. */
static crl_status check_names(const crl_cli_search *s, const crl_cli *cli, const char *path) {
    crl_profile *own = NULL;
    const crl_profile *theirs = s->profiles.item[0];
    CRL_TRY(
        crl_cli_count_profile(&own, cli, s->settings, &s->machine, s->settings->train.micro_batch));
    crl_status status = CRL_STATUS_OK;
    if (theirs->units != own->units)
        status = CRL_FAIL(INVALID, "%s: has %d units, model %s has %d", path, theirs->units,
                          s->settings->model_type, own->units);
    for (int u = 0; u < own->units && status == CRL_STATUS_OK; u++)
        if (strcmp(theirs->unit[u].name, own->unit[u].name) != 0)
            status = CRL_FAIL(INVALID, "%s: unit %d is '%s', model %s has '%s' there", path, u,
                              theirs->unit[u].name, s->settings->model_type, own->unit[u].name);
    crl_profile_destroy(own);
    return status;
}

/* Of a file's profiles those of `sizes`; both ascend. */
static crl_status keep_sizes(crl_profile_list *list, const crl_cli_sizes *sizes, const char *path) {
    for (int i = 0; i < sizes->count; i++) {
        int at = i;
        while (at < list->count && list->item[at]->micro_batch != sizes->item[i])
            at++;
        if (at == list->count)
            return CRL_FAIL(INVALID, "%s: has no micro-batches of %lld", path,
                            (long long)sizes->item[i]);
        crl_profile *other = list->item[i];
        list->item[i] = list->item[at];
        list->item[at] = other;
    }
    while (list->count > sizes->count)
        crl_profile_destroy(list->item[--list->count]);
    return CRL_STATUS_OK;
}

static crl_status take_profiles(crl_cli_search *s, const crl_cli *cli,
                                const crl_cli_search_config *config) {
    crl_cli_sizes sizes;
    CRL_TRY(take_sizes(&sizes, s->settings, config));
    if (given(config->profile)) {
        CRL_TRY(crl_profile_file_read(&s->profiles, config->profile));
        if (config->micro_batches.count > 0 || config->pinned)
            CRL_TRY(keep_sizes(&s->profiles, &sizes, config->profile));
        return check_names(s, cli, config->profile);
    }
    CRL_TRY(crl_alloc(&s->profiles.item, (size_t)sizes.count, sizeof(crl_profile *)));
    for (int i = 0; i < sizes.count; i++) {
        CRL_TRY(crl_cli_count_profile(&s->profiles.item[i], cli, s->settings, &s->machine,
                                      sizes.item[i]));
        s->profiles.count++;
    }
    return CRL_STATUS_OK;
}

static crl_status pin_recompute(crl_search_request *r, const crl_settings *settings) {
    const crl_text_list *modes = &settings->parallel.recompute;
    char at[512];
    for (int mode = 0; modes->count == 1 && mode < CRL_RECOMPUTES; mode++) {
        if (strcmp(modes->item[0], crl_recompute_name(mode)) == 0) {
            r->recompute = 1 + mode;
            return CRL_STATUS_OK;
        }
    }
    return CRL_FAIL(INVALID, "%s: goes by stages or layers, parallel.layout auto keeps one mode",
                    crl_config_where(&settings->source, "parallel.recompute", at, sizeof at));
}

/* What the config says stays as it says. */
static crl_status pin(crl_search_request *r, const crl_settings *settings) {
    const crl_settings_parallel *parallel = &settings->parallel;
    static const char *const lists[] = {"parallel.cuts", "parallel.replicas", "parallel.data",
                                        "parallel.partitioner", "parallel.group"};
    char at[512];
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        if (is_given(settings, lists[i]))
            return CRL_FAIL(INVALID, "%s: is given, but parallel.layout auto chooses it",
                            crl_config_where(&settings->source, lists[i], at, sizeof at));
    if (crl_layout_is_file(parallel->schedule))
        return CRL_FAIL(
            INVALID, "%s: is a file for one layout, parallel.layout auto takes schedules by name",
            crl_config_where(&settings->source, "parallel.schedule", at, sizeof at));
    if (is_given(settings, "parallel.pipeline"))
        r->positions = (int)parallel->pipeline;
    if (is_given(settings, "parallel.schedule"))
        r->schedule = parallel->schedule;
    if (is_given(settings, "parallel.virtual_stages"))
        r->virtual_stages = (int)parallel->virtual_stages;
    return is_given(settings, "parallel.recompute") ? pin_recompute(r, settings) : CRL_STATUS_OK;
}

double crl_cli_search_limit(const crl_cli_search *search) {
    const double own = (double)search->settings->parallel.memory_limit_bytes;
    return own > 0 ? own : search->machine.memory_bytes;
}

static crl_status fill_request(crl_cli_search *s, const crl_cli *cli,
                               const crl_cli_search_config *config) {
    const void *found = NULL;
    if (given(config->schedule))
        CRL_TRY(
            crl_registry_find(&found, cli->registries->schedules, "schedule", config->schedule));
    s->request = (crl_search_request){.profile = (const crl_profile *const *)s->profiles.item,
                                      .profiles = s->profiles.count,
                                      .machine = &s->machine,
                                      .predict = crl_predict,
                                      .schedules = cli->registries->schedules,
                                      .devices = s->devices,
                                      .global_batch = s->settings->train.global_batch,
                                      .schedule = found ? config->schedule : NULL,
                                      .positions = (int)config->positions,
                                      .lanes = (int)s->settings->numerics.lanes};
    return config->pinned ? pin(&s->request, s->settings) : CRL_STATUS_OK;
}

crl_status crl_cli_search_init(crl_cli_search *out, const crl_cli *cli, crl_cli_args *args,
                               const crl_settings *settings, const crl_cli_search_config *config) {
    const int otherwise = args->exit_code;
    out->settings = settings;
    out->machine_path = config->machine;
    out->profile_path = config->profile;
    args->exit_code = CRL_EXIT_USAGE;
    CRL_TRY(take_machine(out, config));
    CRL_TRY(take_profiles(out, cli, config));
    CRL_TRY(fill_request(out, cli, config));
    args->exit_code = otherwise;
    return CRL_STATUS_OK;
}

crl_status crl_cli_search_run(crl_cli_search *search, double share) {
    crl_search_destroy(search->search);
    search->search = NULL;
    search->request.memory_limit_bytes = share * crl_cli_search_limit(search);
    return crl_search_layouts(&search->search, &search->request);
}

void crl_cli_search_fini(crl_cli_search *search) {
    crl_search_destroy(search->search);
    crl_profile_list_fini(&search->profiles);
    if (search->machine_file.machine.name)
        crl_machine_file_fini(&search->machine_file);
}
