/* SPDX-License-Identifier: Apache-2.0 */
/* One candidate at a time: cut, predict, make it fit if it can be made to, keep it or not. */
#include "partition/search_trial_internal.h"

#include <math.h>
#include <string.h>

#include "engine/base/alloc.h"

enum { POLISH_ROUNDS = 16, POLISH_STAGES = 64 };

/* A layout that is being tried, with arrays that can be written. */
typedef struct attempt {
    crl_hybrid layout;
    const crl_profile *profile;
    int *first;               /* (S) */
    unsigned char *recompute; /* (S) */
    double *position_bytes;   /* (P) */
    crl_prediction prediction;
    bool predicted;
} attempt;

static void attempt_fini(attempt *self) {
    crl_free(self->first);
    crl_free(self->recompute);
    crl_free(self->position_bytes);
}

static crl_status attempt_init(attempt *self, const crl_hybrid *layout,
                               const crl_profile *profile) {
    const size_t stages = (size_t)layout->stages;
    *self = (attempt){.layout = *layout, .profile = profile};
    CRL_TRY(crl_alloc(&self->first, stages, sizeof *self->first));
    CRL_TRY(crl_alloc(&self->recompute, stages, 1));
    CRL_TRY(crl_alloc(&self->position_bytes, (size_t)layout->positions, sizeof(double)));
    self->layout.first = self->first;
    self->layout.recompute = self->recompute;
    return CRL_STATUS_OK;
}

static void describe(char text[96], const attempt *self) {
    int most = 0;
    for (int s = 0; s < self->layout.stages; s++) {
        most = self->recompute[s] > most ? self->recompute[s] : most;
    }
    snprintf(text, 96, "pipeline %d x data %d, %s, micro-batch %lld, recompute %s",
             self->layout.positions, self->layout.pipelines, self->layout.schedule->name,
             (long long)self->profile->micro_batch, crl_recompute_name(most));
}

int64_t crl_search_actions(const crl_hybrid *layout) {
    const int64_t share = (layout->micro_batches + layout->pipelines - 1) / layout->pipelines;
    return 3 * share * layout->stages * (1 + layout->schedule->effort);
}

/* Whether one more prediction is within what the search may take. */
static bool affordable(const search_trial *trial, const crl_hybrid *layout) {
    return trial->actions > 0 &&
           (layout->schedule->effort == 0 || crl_search_actions(layout) <= trial->effort);
}

/* Predicts; a layout that somebody refuses is no failure of the search. */
static crl_status predict(search_trial *trial, attempt *self) {
    const crl_hybrid *layout = &self->layout;
    const crl_error before = *crl_error_get();
    const crl_status status = trial->request->predict(
        &self->prediction, self->position_bytes, layout, self->profile, trial->request->machine);
    trial->actions -= crl_search_actions(layout);
    trial->effort -= layout->schedule->effort > 0 ? crl_search_actions(layout) : 0;
    trial->search->predicted++;
    self->predicted = status == CRL_STATUS_OK;
    if (status == CRL_STATUS_INVALID || status == CRL_STATUS_UNSUPPORTED) {
        crl_error_set(&before);
        return CRL_STATUS_OK;
    }
    CRL_TRY(status);
    if (self->prediction.peak_bytes > trial->limit_bytes &&
        self->prediction.peak_bytes < trial->least_bytes) {
        trial->least_bytes = self->prediction.peak_bytes;
        describe(trial->least_layout, self);
    }
    return CRL_STATUS_OK;
}

static bool fits(const search_trial *trial, const attempt *self) {
    return self->predicted && self->prediction.peak_bytes <= trial->limit_bytes;
}

/* One mode more for all stages on positions that need too much. */
static bool recompute_more(const search_trial *trial, attempt *self) {
    const crl_hybrid *layout = &self->layout;
    const crl_schedule_request asked = {.positions = layout->positions,
                                        .stages = layout->stages,
                                        .micro_batches = layout->micro_batches,
                                        .widths = layout->widths,
                                        .group = layout->group};
    bool any = false;
    for (int s = 0; s < layout->stages; s++) {
        const int position = crl_schedule_position(layout->schedule, &asked, s);
        if (self->position_bytes[position] > trial->limit_bytes &&
            self->recompute[s] < CRL_RECOMPUTE_FULL) {
            self->recompute[s]++;
            any = true;
        }
    }
    return any;
}

/* The same devices and cuts, and no difference that anybody would see: what is recomputed where
 * nothing is lost, schedules that come to the same order. */
static bool same(const crl_found *found, const attempt *self) {
    const crl_hybrid *a = &found->layout, *b = &self->layout;
    return a->pipelines == b->pipelines && a->positions == b->positions && a->stages == b->stages &&
           a->widths == b->widths && found->profile == self->profile &&
           found->prediction.step_s == self->prediction.step_s &&
           found->prediction.peak_bytes == self->prediction.peak_bytes &&
           memcmp(a->first, b->first, (size_t)a->stages * sizeof *a->first) == 0;
}

/* Copies an attempt's arrays to where they stay. */
static crl_status keep_copy(crl_found *out, search_trial *trial, const attempt *self) {
    crl_arena *arena = &trial->search->arena;
    const size_t stages = (size_t)self->layout.stages, positions = (size_t)self->layout.positions;
    int *first = NULL;
    unsigned char *recompute = NULL;
    *out = (crl_found){.layout = self->layout,
                       .profile = self->profile,
                       .prediction = self->prediction,
                       .fits = fits(trial, self)};
    CRL_TRY(crl_arena_alloc(arena, &first, stages, sizeof *first));
    CRL_TRY(crl_arena_alloc(arena, &recompute, stages, 1));
    CRL_TRY(crl_arena_alloc(arena, &out->position_bytes, positions, sizeof(double)));
    memcpy(first, self->first, stages * sizeof *first);
    memcpy(recompute, self->recompute, stages);
    memcpy(out->position_bytes, self->position_bytes, positions * sizeof(double));
    out->layout.first = first;
    out->layout.recompute = recompute;
    return CRL_STATUS_OK;
}

/* Into a list of at most `most`, fastest first; of equal ones the earlier. */
static crl_status insert(crl_found *list, int *count, int most, search_trial *trial,
                         const attempt *self) {
    int at = *count;
    for (int i = 0; i < *count; i++) {
        if (same(&list[i], self)) {
            return CRL_STATUS_OK;
        }
    }
    while (at > 0 && self->prediction.step_s < list[at - 1].prediction.step_s) {
        at--;
    }
    if (at >= most) {
        return CRL_STATUS_OK;
    }
    crl_found found;
    CRL_TRY(keep_copy(&found, trial, self));
    *count += *count < most;
    for (int i = *count - 1; i > at; i--) {
        list[i] = list[i - 1];
    }
    list[at] = found;
    return CRL_STATUS_OK;
}

static crl_status keep(search_trial *trial, const attempt *self) {
    crl_search *search = trial->search;
    if (!self->predicted) {
        return CRL_STATUS_OK;
    }
    return fits(trial, self) ? insert(search->found, &search->count, CRL_SEARCH_KEEPS, trial, self)
                             : insert(search->found + CRL_SEARCH_KEEPS, &search->refused,
                                      CRL_SEARCH_REFUSED, trial, self);
}

static void set_plain(attempt *self, const int *first, int mode) {
    memcpy(self->first, first, (size_t)self->layout.stages * sizeof *first);
    memset(self->recompute, mode, (size_t)self->layout.stages);
}

/* Recomputes more where memory is over, then cuts by memory. */
static crl_status make_fit(search_trial *trial, attempt *self, const search_candidate *candidate) {
    for (int i = 1; i < CRL_RECOMPUTES && trial->request->recompute == 0; i++) {
        if (!affordable(trial, &self->layout) || !recompute_more(trial, self)) {
            break;
        }
        CRL_TRY(predict(trial, self));
        if (!self->predicted || fits(trial, self)) {
            return keep(trial, self);
        }
    }
    const int *first = NULL;
    if (!candidate->layout.widths && affordable(trial, &self->layout)) {
        CRL_TRY(crl_search_cut_within(&first, &trial->search->arena, trial->request, candidate,
                                      trial->limit_bytes));
    }
    if (!first) {
        return CRL_STATUS_OK;
    }
    set_plain(self, first, candidate->mode);
    CRL_TRY(predict(trial, self));
    return fits(trial, self) ? keep(trial, self) : CRL_STATUS_OK;
}

crl_status crl_search_try(search_trial *trial, const search_candidate *candidate) {
    crl_status status = CRL_STATUS_OK;
    crl_search *search = trial->search;
    const int *first = candidate->layout.first;
    attempt self = {0};
    trial->cuts.request = trial->request;
    if (!first) {
        CRL_TRY(crl_search_cut(&first, &trial->cuts, &search->arena, candidate->profile,
                               candidate->mode, candidate->layout.stages));
    }
    if (!first) {
        return CRL_STATUS_OK;
    }
    CRL_TRY_OUT(
        attempt_init(&self, &candidate->layout, trial->request->profile[candidate->profile]));
    set_plain(&self, first, candidate->mode);
    CRL_TRY_OUT(predict(trial, &self));
    CRL_TRY_OUT(keep(trial, &self));
    if (self.predicted && !fits(trial, &self)) {
        CRL_TRY_OUT(make_fit(trial, &self, candidate));
    }
out:
    attempt_fini(&self);
    return status;
}

/* Moves one cut by one unit if that is possible and better; else leaves it. */
static crl_status move_cut(bool *better, search_trial *trial, attempt *self, int stage, int by) {
    const crl_prediction before = self->prediction;
    const int last =
        stage + 1 < self->layout.stages ? self->first[stage + 1] : self->profile->units;
    const int to = self->first[stage] + by;
    if (to <= self->first[stage - 1] || to >= last || !affordable(trial, &self->layout)) {
        return CRL_STATUS_OK;
    }
    self->first[stage] = to;
    CRL_TRY(predict(trial, self));
    if (fits(trial, self) && self->prediction.step_s < before.step_s) {
        *better = true;
        return CRL_STATUS_OK;
    }
    self->first[stage] = to - by;
    self->prediction = before;
    self->predicted = true;
    return CRL_STATUS_OK;
}

crl_status crl_search_polish(search_trial *trial, int index) {
    crl_status status = CRL_STATUS_OK;
    crl_found *found = &trial->search->found[index];
    attempt self = {0};
    bool better = found->layout.stages <= POLISH_STAGES, any = false;
    CRL_TRY_OUT(attempt_init(&self, &found->layout, found->profile));
    memcpy(self.first, found->layout.first, (size_t)self.layout.stages * sizeof *self.first);
    memcpy(self.recompute, found->layout.recompute, (size_t)self.layout.stages);
    self.prediction = found->prediction;
    for (int round = 0; round < POLISH_ROUNDS && better; round++) {
        better = false;
        for (int s = 1; s < self.layout.stages; s++) {
            CRL_TRY_OUT(move_cut(&better, trial, &self, s, 1));
            CRL_TRY_OUT(move_cut(&better, trial, &self, s, -1));
        }
        any = any || better;
    }
    if (any) { /* once more, for its memory by position */
        CRL_TRY_OUT(predict(trial, &self));
        CRL_TRY_OUT(keep_copy(found, trial, &self));
    }
out:
    attempt_fini(&self);
    return status;
}

void crl_search_sort(crl_search *search) {
    for (int i = 1; i < search->count; i++) {
        const crl_found found = search->found[i];
        int at = i;
        for (; at > 0 && found.prediction.step_s < search->found[at - 1].prediction.step_s; at--) {
            search->found[at] = search->found[at - 1];
        }
        search->found[at] = found;
    }
}

void crl_search_trial_fini(search_trial *trial) {
    crl_search_cuts_fini(&trial->cuts);
}
