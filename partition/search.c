/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search: candidates in the order of their estimates, each cut evenly and predicted action by
 * action, unless its bound says that it cannot come among the best. What does not fit is tried
 * again with more recomputation where memory is over, then with cuts that weigh memory. In the end
 * the cuts of the first few are moved by single units as long as that helps. Refuses to weigh
 * anything but time: what is kept is what is fastest within the limit.
 *
 * Exact over its candidates as long as `most_actions` is not used up; then what is left out has the
 * longest estimates.
 */
#include "partition/search.h"

#include <math.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/units.h"
#include "partition/request_internal.h"
#include "partition/search_internal.h"
#include "partition/search_trial_internal.h"

enum { POLISHED = 10 };

static const int64_t usual_actions = 6000000; /* of up to 64 devices; of more, up to fourfold */

static crl_status check(const crl_search_request *r) {
    if (r->profiles < 1 || !r->predict || !r->machine || !r->schedules || r->global_batch < 1) {
        return CRL_FAIL(INVALID,
                        "plan: %d profiles, global batch %lld, expected 1 or more, with a machine, "
                        "schedules and a cost model",
                        r->profiles, (long long)r->global_batch);
    }
    if (r->devices < 1 || r->devices > 65535 || r->devices % r->tensor != 0) {
        return CRL_FAIL(INVALID, "plan: %d devices in groups of %d, expected 1 to 65535 of them",
                        r->devices, r->tensor);
    }
    const int64_t there = (int64_t)r->machine->nodes * r->machine->devices_per_node;
    if (r->devices > there) {
        return CRL_FAIL(INVALID, "plan: %d devices, machine %s has %d x %d", r->devices,
                        r->machine->name, r->machine->nodes, r->machine->devices_per_node);
    }
    if (r->lanes < 0 || (r->lanes & (r->lanes - 1)) != 0) {
        return CRL_FAIL(INVALID, "plan: %d lanes, expected a power of two", r->lanes);
    }
    return CRL_STATUS_OK;
}

/* Tries candidates in turn; `any`: the first that fits is enough. */
static crl_status try_all(search_trial *trial, const search_list *list, bool any) {
    const crl_search *search = trial->search;
    const int64_t reserve = trial->actions / 5; /* for moving cuts */
    trial->effort = trial->actions / 6;
    for (int i = 0; i < list->count && trial->actions > reserve; i++) {
        const bool full = search->count == CRL_SEARCH_KEEPS;
        if (full && list->item[i].bound_s >= search->found[search->count - 1].prediction.step_s) {
            continue;
        }
        if (list->item[i].layout.schedule->effort > 0 &&
            crl_search_actions(&list->item[i].layout) > trial->effort) {
            continue;
        }
        if (any && search->count > 0) {
            break;
        }
        CRL_TRY(crl_search_try(trial, &list->item[i]));
    }
    return CRL_STATUS_OK;
}

/* What is slower than the best and does not fit is of no interest. */
static void drop_slow_refused(crl_search *search) {
    int kept = search->count;
    for (int i = 0; i < search->refused; i++) {
        const crl_found *refused = &search->found[CRL_SEARCH_KEEPS + i];
        if (search->count == 0 || refused->prediction.step_s < search->found[0].prediction.step_s) {
            search->found[kept++] = *refused;
        }
    }
    search->refused = kept - search->count;
}

static crl_status search_once(crl_search *search, search_trial *trial, bool any) {
    crl_status status = CRL_STATUS_OK;
    search_list list = {0};
    CRL_TRY_OUT(crl_search_enumerate(&list, &search->arena, trial->request));
    search->candidates = list.count;
    CRL_TRY_OUT(try_all(trial, &list, any));
    for (int i = 0; i < POLISHED && i < search->count && !any; i++) {
        CRL_TRY_OUT(crl_search_polish(trial, i));
    }
    crl_search_sort(search);
out:
    crl_free(list.item);
    crl_search_trial_fini(trial);
    return status;
}

/* Whether anything would fit, or be there at all, with another number of devices. */
static crl_status would_do(bool *out, const crl_search_request *request, int devices, bool fit) {
    crl_status status = CRL_STATUS_OK;
    crl_search_request other = *request;
    crl_machine machine = *request->machine; /* with as many nodes as that takes */
    crl_search *search = NULL;
    machine.nodes = (devices + machine.devices_per_node - 1) / machine.devices_per_node;
    other.machine = &machine;
    other.devices = devices;
    other.equal_widths = true;
    other.most_actions = usual_actions / 20;
    CRL_TRY_OUT(crl_alloc(&search, 1, sizeof *search));
    search_trial trial = {.request = &other, .search = search, .actions = other.most_actions};
    trial.limit_bytes = fit ? crl_search_limit(request) : INFINITY;
    CRL_TRY_OUT(search_once(search, &trial, true));
    *out = search->count > 0;
out:
    crl_search_destroy(search);
    return status;
}

static crl_status refuse_grid(const crl_search_request *r) {
    const crl_profile *smallest = r->profile[0];
    int other = r->devices;
    bool done = false;
    while (!done && (other -= r->tensor) > 0) {
        CRL_TRY(would_do(&done, r, other, false));
    }
    char advice[64] = "";
    if (done) {
        snprintf(advice, sizeof advice, "; %d devices can be used", other);
    }
    return CRL_FAIL(
        UNSUPPORTED,
        "plan: no layout uses %d devices: %d units and %lld micro-batches of %lld "
        "samples do not suit them with what is given%s",
        r->devices, smallest->units,
        (long long)((r->global_batch + smallest->micro_batch - 1) / smallest->micro_batch),
        (long long)smallest->micro_batch, advice);
}

static crl_status refuse_memory(const crl_search_request *r, const search_trial *trial) {
    char limit[CRL_UNITS_EXACT_BYTES], least[CRL_UNITS_EXACT_BYTES], advice[64] = "";
    bool done = false;
    int other = r->devices + r->tensor;
    for (int i = 0; i < 5 && !done; i++) {
        CRL_TRY(would_do(&done, r, other, true));
        other = done ? other : (r->devices << i) * 2;
    }
    if (done) {
        snprintf(advice, sizeof advice, "; so would %d devices", other);
    }
    return CRL_FAIL(UNSUPPORTED,
                    "plan: no layout of %d devices fits in %s each, the least that would do is %s "
                    "(%s)%s",
                    r->devices, crl_units_exact_bytes(limit, crl_search_limit(r)),
                    crl_units_exact_bytes(least, trial->least_bytes), trial->least_layout, advice);
}

crl_status crl_search_layouts(crl_search **out, const crl_search_request *request) {
    crl_status status = CRL_STATUS_OK;
    crl_search *search = NULL;
    crl_search_request r = *request;
    r.tensor = r.tensor > 0 ? r.tensor : 1;
    CRL_TRY(check(&r));
    CRL_TRY_OUT(crl_alloc(&search, 1, sizeof *search));
    search_trial trial = {.request = &r, .search = search};
    const int many = r.devices < 64 ? 1 : r.devices < 256 ? r.devices / 64 : 4;
    trial.actions = r.most_actions > 0 ? r.most_actions : many * usual_actions;
    trial.limit_bytes = crl_search_limit(&r);
    trial.least_bytes = INFINITY;
    CRL_TRY_OUT(search_once(search, &trial, false));
    if (search->count == 0) {
        CRL_TRY_OUT(isinf(trial.least_bytes) ? refuse_grid(&r) : refuse_memory(&r, &trial));
    }
    drop_slow_refused(search);
    crl_search_explain(search, trial.limit_bytes);
    *out = search;
    search = NULL;
out:
    crl_search_destroy(search);
    return status;
}

void crl_search_destroy(crl_search *search) {
    if (search) {
        crl_arena_fini(&search->arena);
        crl_free(search);
    }
}
