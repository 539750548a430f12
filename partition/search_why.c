/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a layout loses to the best: the part of the step in which it loses the most, as numbers of
 * both. Says nothing that the predictions do not say.
 */
#include <math.h>
#include <stdio.h>

#include "engine/base/units.h"
#include "partition/request_internal.h"
#include "partition/search_internal.h"

/* A step in parts that add up to what it takes, but for rounding and overlap. */
typedef struct parts {
    double idle_s, computing_s, exposed_s, update_s;
} parts;

static parts parts_of(const crl_prediction *p) {
    const double idle_s = p->bubble * p->pipeline_s;
    return (parts){.idle_s = idle_s,
                   .computing_s = p->pipeline_s - idle_s,
                   .exposed_s = p->exposed_s,
                   .update_s = p->update_s};
}

static const char *mode_of(const crl_found *found) {
    static const char *const modes[] = {"", " (recomputes some)", " (recomputes)"};
    int most = 0;
    for (int s = 0; found->layout.recompute && s < found->layout.stages; s++) {
        most = found->layout.recompute[s] > most ? found->layout.recompute[s] : most;
    }
    return modes[most];
}

static void explain(crl_found *found, const crl_found *best) {
    const parts mine = parts_of(&found->prediction), its = parts_of(&best->prediction);
    const double idle_s = mine.idle_s - its.idle_s,
                 computing_s = mine.computing_s - its.computing_s,
                 exposed_s = mine.exposed_s - its.exposed_s,
                 update_s = mine.update_s - its.update_s;
    const double most = fmax(fmax(idle_s, computing_s), fmax(exposed_s, update_s));
    char text[CRL_UNITS_BYTES];
    if (found->prediction.step_s <= best->prediction.step_s || most <= 0) {
        snprintf(found->why, sizeof found->why, "as fast");
    } else if (most == idle_s) {
        const double its_bubble = best->prediction.bubble;
        const int digits = found->prediction.bubble - its_bubble > 0.002 ? 1 : 3;
        snprintf(found->why, sizeof found->why, "bubble %.*f %% against %.*f %%", digits,
                 100 * found->prediction.bubble, digits, 100 * its_bubble);
    } else if (most == exposed_s) {
        snprintf(found->why, sizeof found->why, "%s more exposed communication",
                 crl_units_seconds(text, exposed_s));
    } else if (most == computing_s) {
        snprintf(found->why, sizeof found->why, "%s more computing%s",
                 crl_units_seconds(text, computing_s), mode_of(found));
    } else {
        snprintf(found->why, sizeof found->why, "%s more optimizer time",
                 crl_units_seconds(text, update_s));
    }
}

void crl_search_explain(crl_search *search, double limit_bytes) {
    char text[CRL_UNITS_EXACT_BYTES];
    for (int i = 0; i < search->count + search->refused; i++) {
        crl_found *found = &search->found[i];
        if (!found->fits) {
            snprintf(found->why, sizeof found->why, "does not fit: memory over by %s",
                     crl_units_exact_bytes(text, found->prediction.peak_bytes - limit_bytes));
        } else if (i > 0) {
            explain(found, &search->found[0]);
        }
    }
}
