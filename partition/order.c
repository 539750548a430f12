/* SPDX-License-Identifier: Apache-2.0 */
/*
 * List scheduling: whenever several units could come next, an order has a rule of its own. Refuses
 * to say which order is best: that takes the costs of the cuts (try all of them).
 *
 *       a -- b -- c -- f      given   a b c d e f   as the profile has them
 *        \            /       depth   a d e b c f   what became possible last
 *         d -- e ----        breadth  a b d c e f   what became possible first
 *                             narrow  the branch that keeps the least alive
 *
 * cost card: time O(units² + inputs)
 */
#include "partition/order.h"

#include "engine/base/alloc.h"

static bool given(const int since[2], const double grows_bytes[2], const int unit[2]) {
    (void)since, (void)grows_bytes;
    return unit[0] < unit[1];
}

static bool depth(const int since[2], const double grows_bytes[2], const int unit[2]) {
    (void)grows_bytes;
    return since[0] != since[1] ? since[0] > since[1] : unit[0] > unit[1];
}

static bool breadth(const int since[2], const double grows_bytes[2], const int unit[2]) {
    (void)grows_bytes;
    return since[0] != since[1] ? since[0] < since[1] : unit[0] < unit[1];
}

static bool narrow(const int since[2], const double grows_bytes[2], const int unit[2]) {
    return grows_bytes[0] != grows_bytes[1] ? grows_bytes[0] < grows_bytes[1]
                                            : depth(since, grows_bytes, unit);
}

const crl_order crl_orders[] = {{"given", "as the profile has them", given},
                                {"depth", "what became possible last", depth},
                                {"breadth", "what became possible first", breadth},
                                {"narrow", "what keeps the least alive", narrow},
                                {0}};

typedef struct scheduler {
    const crl_profile *profile;
    const crl_order *order; /* NULL: by the hash of shuffle and unit */
    unsigned shuffle;
    int *missing; /* (units) inputs that are not there yet; -1: the unit itself is placed */
    int *readers; /* (units) of its result that are not placed */
    int *since;   /* (units) when it became possible */
} scheduler;

/* Bytes that are alive after a unit beyond those before it. */
static double grows(const scheduler *self, int unit) {
    const crl_profile_unit *u = &self->profile->unit[unit];
    double bytes = self->readers[unit] > 0 ? u->output_bytes : 0;
    for (int i = 0; i < u->inputs; i++) {
        bytes -=
            self->readers[u->input[i]] == 1 ? self->profile->unit[u->input[i]].output_bytes : 0;
    }
    return bytes;
}

/* Any mixing function will do. */
static uint64_t hash(unsigned shuffle, int unit) {
    uint64_t x = ((uint64_t)shuffle << 32 | (uint32_t)unit) + 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static bool comes_before(const scheduler *self, const int unit[2], const double grows_bytes[2]) {
    const int since[] = {self->since[unit[0]], self->since[unit[1]]};
    return self->order ? self->order->before(since, grows_bytes, unit)
                       : hash(self->shuffle, unit[0]) < hash(self->shuffle, unit[1]);
}

static int choose(const scheduler *self) {
    int best = -1;
    double least = 0;
    for (int u = 0; u < self->profile->units; u++) {
        if (self->missing[u] != 0) {
            continue;
        }
        const double bytes = grows(self, u);
        if (best < 0 ||
            comes_before(self, (const int[]){u, best}, (const double[]){bytes, least})) {
            best = u;
            least = bytes;
        }
    }
    return best;
}

static void place(scheduler *self, int unit, int time) {
    const crl_profile_unit *u = &self->profile->unit[unit];
    self->missing[unit] = -1;
    for (int i = 0; i < u->inputs; i++) {
        self->readers[u->input[i]]--;
    }
    for (int v = unit + 1; v < self->profile->units; v++) {
        const crl_profile_unit *reader = &self->profile->unit[v];
        for (int i = 0; i < reader->inputs; i++) {
            if (reader->input[i] == unit && --self->missing[v] == 0) {
                self->since[v] = time;
            }
        }
    }
}

static crl_status scheduler_init(scheduler *self, const crl_profile *profile) {
    const size_t units = (size_t)profile->units;
    self->profile = profile;
    CRL_TRY(crl_alloc(&self->missing, units, sizeof *self->missing));
    CRL_TRY(crl_alloc(&self->readers, units, sizeof *self->readers));
    CRL_TRY(crl_alloc(&self->since, units, sizeof *self->since));
    for (int u = 0; u < profile->units; u++) {
        self->missing[u] = profile->unit[u].inputs;
        for (int i = 0; i < profile->unit[u].inputs; i++) {
            self->readers[profile->unit[u].input[i]]++;
        }
    }
    return CRL_STATUS_OK;
}

crl_status crl_order_make(int *out, const crl_profile *profile, const crl_order *order,
                          unsigned shuffle) {
    crl_status status = CRL_STATUS_OK;
    scheduler self = {.order = order, .shuffle = shuffle};
    CRL_TRY_OUT(scheduler_init(&self, profile));
    for (int time = 0; time < profile->units; time++) {
        out[time] = choose(&self);
        place(&self, out[time], time + 1);
    }
out:
    crl_free(self.missing);
    crl_free(self.readers);
    crl_free(self.since);
    return status;
}

crl_status crl_order_crossing(double *out, const crl_profile *profile, const int *order) {
    int *readers = NULL;
    double alive = 0;
    CRL_TRY(crl_alloc(&readers, (size_t)profile->units, sizeof *readers));
    for (int u = 0; u < profile->units; u++) {
        for (int i = 0; i < profile->unit[u].inputs; i++) {
            readers[profile->unit[u].input[i]]++;
        }
    }
    for (int j = 0; j < profile->units; j++) {
        const crl_profile_unit *u = &profile->unit[order[j]];
        alive += readers[order[j]] > 0 ? u->output_bytes : 0;
        for (int i = 0; i < u->inputs; i++) {
            alive -= --readers[u->input[i]] == 0 ? profile->unit[u->input[i]].output_bytes : 0;
        }
        out[j] = alive;
    }
    crl_free(readers);
    return CRL_STATUS_OK;
}
