/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the state that list.c works on: made once for a problem, used for many policies. */
#include "schedules/list_machine_internal.h"

#include "engine/base/alloc.h"

static crl_status machine_init(list_machine *self, const list_problem *problem) {
    const size_t servers = (size_t)problem->servers, stages = (size_t)problem->stages;
    const size_t tasks = (size_t)problem->tasks;
    double **const of_server[] = {&self->free_s, &self->begin_s, &self->last_s, &self->left_s,
                                  &self->used};
    self->problem = problem;
    CRL_TRY(crl_alloc(&self->end_s, tasks, sizeof *self->end_s));
    for (size_t i = 0; i < sizeof of_server / sizeof *of_server; i++) {
        CRL_TRY(crl_alloc(of_server[i], servers, sizeof **of_server[i]));
    }
    CRL_TRY(crl_alloc(&self->asleep, servers, sizeof *self->asleep));
    CRL_TRY(crl_alloc(&self->position, servers, sizeof *self->position));
    CRL_TRY(crl_alloc(&self->inputs, servers, sizeof *self->inputs));
    CRL_TRY(crl_alloc(&self->last_kind, servers, sizeof *self->last_kind));
    CRL_TRY(crl_alloc(&self->slot, servers + 1, sizeof *self->slot));
    CRL_TRY(crl_alloc(&self->next, LIST_KINDS * stages, sizeof *self->next));
    for (int p = 0; p < problem->positions; p++) {
        const int each = problem->first_stage[p + 1] - problem->first_stage[p];
        for (int u = problem->first_server[p]; u < problem->first_server[p + 1]; u++) {
            self->position[u] = p;
            self->slot[u + 1] = self->slot[u] + each;
        }
    }
    const size_t slots = (size_t)self->slot[servers];
    CRL_TRY(crl_alloc(&self->in_flight, slots, sizeof *self->in_flight));
    return crl_alloc(&self->due, slots, sizeof *self->due);
}

crl_status crl_list_machine_create(list_machine **out, const list_problem *problem) {
    crl_status status = CRL_STATUS_OK;
    list_machine *self = NULL;
    CRL_TRY(crl_alloc(&self, 1, sizeof *self));
    CRL_TRY_OUT(machine_init(self, problem));
    *out = self;
    return CRL_STATUS_OK;
out:
    crl_list_machine_destroy(self);
    return status;
}

void crl_list_machine_destroy(list_machine *machine) {
    if (!machine) {
        return;
    }
    void *const owned[] = {
        machine->end_s, machine->free_s,    machine->begin_s,  machine->last_s,    machine->left_s,
        machine->used,  machine->asleep,    machine->position, machine->last_kind, machine->slot,
        machine->next,  machine->in_flight, machine->due,      machine->inputs};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) {
        crl_free(owned[i]);
    }
    crl_free(machine);
}
