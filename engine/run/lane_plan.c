/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers of lanes by playing the order through once; see lane_plan.h. */
#include "engine/run/lane_plan.h"

#include "engine/base/alloc.h"

/* A complete part of the tree. */
typedef struct part {
    int first, count, buffer;
} part;

typedef struct player {
    const crl_lane_plan_config *config;
    crl_lane_plan *plan;
    int first_lane, last_lane;
    int *lane_buffer; /* (own lanes) -1: not begun */
    int *lane_left;   /* (own lanes) micro-batches still to come */
    bool *taken;      /* (own lanes) buffers in use: never more than lanes */
    part *part;       /* (own lanes) complete ones, ascending */
    int parts, merges;
} player;

int crl_lane_of(int micro_batch, int lanes, int micro_batches) {
    int low = 0, high = lanes - 1;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (micro_batch < crl_lane_micro_batches(middle, lanes, micro_batches).last) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static int take_buffer(player *self) {
    int buffer = self->lane_buffer[0] < 0 ? 1 : 0; /* number 0 waits for the first lane */
    while (self->taken[buffer]) {
        buffer++;
    }
    return buffer;
}

static void begin_lane(player *self, int lane) {
    const int own = lane - self->first_lane;
    const int buffer = own == 0 ? 0 : take_buffer(self);
    self->lane_buffer[own] = buffer;
    self->taken[buffer] = true;
    self->plan->buffers = buffer + 1 > self->plan->buffers ? buffer + 1 : self->plan->buffers;
}

static bool are_siblings(const part *left, const part *right) {
    return left->count == right->count && left->first % (2 * left->count) == 0 &&
           right->first == left->first + left->count;
}

/* Combines part i with its sibling beside it, while there is one. */
static void combine(player *self, int i) {
    for (;;) {
        part *p = self->part;
        if (i + 1 < self->parts && are_siblings(&p[i], &p[i + 1])) {
            /* i is the left one */
        } else if (i > 0 && are_siblings(&p[i - 1], &p[i])) {
            i--;
        } else {
            return;
        }
        self->plan->merge[self->merges++] = (crl_lane_merge){p[i].buffer, p[i + 1].buffer};
        self->taken[p[i + 1].buffer] = false;
        p[i].count *= 2;
        self->parts--;
        for (int k = i + 1; k < self->parts; k++) {
            p[k] = p[k + 1];
        }
    }
}

static void end_lane(player *self, int lane) {
    int i = self->parts++;
    for (; i > 0 && self->part[i - 1].first > lane; i--) {
        self->part[i] = self->part[i - 1];
    }
    self->part[i] = (part){lane, 1, self->lane_buffer[lane - self->first_lane]};
    combine(self, i);
}

static crl_status play_one(player *self, int m) {
    const crl_lane_plan_config *config = self->config;
    crl_lane_step *step = &self->plan->step[m - self->plan->own.first];
    const int lane = crl_lane_of(m, config->lanes, config->micro_batches);
    const crl_range range = crl_lane_micro_batches(lane, config->lanes, config->micro_batches);
    int *left = &self->lane_left[lane - self->first_lane];
    if (m != range.last - *left) {
        return CRL_FAIL(INVALID,
                        "weight gradient of micro-batch %d comes before that of %d of its lane, "
                        "expected ascending order",
                        m, range.last - *left);
    }
    step->begins = m == range.first;
    step->ends = --*left == 0;
    if (step->begins) {
        begin_lane(self, lane);
    }
    step->buffer = self->lane_buffer[lane - self->first_lane];
    step->merge = self->merges;
    if (step->ends) {
        end_lane(self, lane);
    }
    step->merges = self->merges - step->merge;
    return CRL_STATUS_OK;
}

static crl_status finish(player *self) {
    crl_lane_plan *plan = self->plan;
    if (self->parts > CRL_MAX_LANE_NODES) {
        return CRL_FAIL(INVALID, "lanes: %d partial sums are left, expected at most %d",
                        self->parts, CRL_MAX_LANE_NODES);
    }
    plan->nodes = self->parts;
    for (int i = 0; i < self->parts; i++) {
        plan->node[i].first = self->part[i].first;
        plan->node[i].count = self->part[i].count;
        plan->node[i].buffer = self->part[i].buffer;
    }
    return CRL_STATUS_OK;
}

static crl_status player_init(player *self) {
    crl_lane_plan *plan = self->plan;
    const size_t count = (size_t)(plan->own.last - plan->own.first);
    CRL_TRY(crl_alloc(&plan->step, count, sizeof *plan->step));
    if (count == 0) {
        return CRL_STATUS_OK;
    }
    const crl_lane_plan_config *config = self->config;
    self->first_lane = crl_lane_of(config->own.first, config->lanes, config->micro_batches);
    self->last_lane = crl_lane_of(config->own.last - 1, config->lanes, config->micro_batches) + 1;
    const size_t lanes = (size_t)(self->last_lane - self->first_lane);
    CRL_TRY(crl_alloc(&plan->merge, lanes, sizeof *plan->merge));
    CRL_TRY(crl_alloc(&self->lane_buffer, lanes, sizeof *self->lane_buffer));
    CRL_TRY(crl_alloc(&self->lane_left, lanes, sizeof *self->lane_left));
    CRL_TRY(crl_alloc(&self->taken, lanes + 1, sizeof *self->taken));
    CRL_TRY(crl_alloc(&self->part, lanes, sizeof *self->part));
    for (int l = self->first_lane; l < self->last_lane; l++) {
        const crl_range range = crl_lane_micro_batches(l, config->lanes, config->micro_batches);
        self->lane_buffer[l - self->first_lane] = -1;
        self->lane_left[l - self->first_lane] = range.last - range.first;
    }
    return CRL_STATUS_OK;
}

crl_status crl_lane_plan_create(crl_lane_plan **out, const crl_lane_plan_config *config) {
    crl_status status = CRL_STATUS_OK;
    player self = {.config = config};
    CRL_TRY_OUT(crl_alloc(&self.plan, 1, sizeof *self.plan));
    self.plan->own = config->own;
    self.plan->buffers = 1;
    CRL_TRY_OUT(player_init(&self));
    for (int i = 0; i < config->own.last - config->own.first; i++) {
        CRL_TRY_OUT(play_one(&self, config->order[i]));
    }
    CRL_TRY_OUT(finish(&self));
    *out = self.plan;
    self.plan = NULL;
out:
    crl_lane_plan_destroy(self.plan);
    crl_free(self.lane_buffer);
    crl_free(self.lane_left);
    crl_free(self.taken);
    crl_free(self.part);
    return status;
}

void crl_lane_plan_destroy(crl_lane_plan *plan) {
    if (plan) {
        crl_free(plan->step);
        crl_free(plan->merge);
        crl_free(plan);
    }
}
