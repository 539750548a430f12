/* SPDX-License-Identifier: Apache-2.0 */
/* Programs as lists of actions. Refuses to know what order they should have. */
#include "engine/ir/program.h"
#include "engine/ir/program_internal.h"

#include "engine/base/alloc.h"

enum { FIRST_CAPACITY = 16 };

static crl_status check_size(const char *what, int size) {
    if (size < 1 || size > PROGRAM_MAX_SIZE) {
        return CRL_FAIL(INVALID, "program: %d %s, expected 1 to %d", size, what, PROGRAM_MAX_SIZE);
    }
    return CRL_STATUS_OK;
}

crl_status crl_program_create(crl_program **out, int positions, int stages, int micro_batches) {
    crl_status status = CRL_STATUS_OK;
    crl_program *program = NULL;
    CRL_TRY(check_size("positions", positions));
    CRL_TRY(check_size("stages", stages));
    CRL_TRY(check_size("micro-batches", micro_batches));
    if ((int64_t)stages * micro_batches > PROGRAM_MAX_CELLS) {
        return CRL_FAIL(INVALID, "program: %d stages x %d micro-batches, expected at most %d",
                        stages, micro_batches, PROGRAM_MAX_CELLS);
    }
    CRL_TRY(crl_alloc(&program, 1, sizeof *program));
    program->positions = positions;
    program->stages = stages;
    program->micro_batches = micro_batches;
    CRL_TRY_OUT(crl_alloc(&program->position, (size_t)positions, sizeof *program->position));
    *out = program;
    return CRL_STATUS_OK;
out:
    crl_program_destroy(program);
    return status;
}

void crl_program_destroy(crl_program *program) {
    if (!program) {
        return;
    }
    for (int p = 0; program->position && p < program->positions; p++) {
        crl_free(program->position[p].action);
    }
    crl_free(program->position);
    crl_free(program->message);
    crl_free(program);
}

crl_status crl_action_list_append(crl_action_list *list, const crl_action *action) {
    if (list->count == list->capacity) {
        if (list->count >= PROGRAM_MAX_ACTIONS / 2) {
            return CRL_FAIL(INVALID, "program: more than %d actions on one position", list->count);
        }
        const int capacity = list->capacity ? 2 * list->capacity : FIRST_CAPACITY;
        CRL_TRY(crl_realloc(&list->action, (size_t)list->count, (size_t)capacity,
                            sizeof *list->action));
        list->capacity = capacity;
    }
    list->action[list->count++] = *action;
    return CRL_STATUS_OK;
}

crl_status crl_program_append(crl_program *program, int position, crl_action_kind kind, int stage,
                              int micro_batch) {
    if (position < 0 || position >= program->positions) {
        return CRL_FAIL(INVALID, "program: position %d, expected less than %d", position,
                        program->positions);
    }
    if (!is_compute(kind)) {
        return CRL_FAIL(INVALID, "program: action kind %d, expected F, B, I or W", (int)kind);
    }
    if (stage < 0 || stage >= program->stages || micro_batch < 0 ||
        micro_batch >= program->micro_batches) {
        return CRL_FAIL(INVALID, "program: stage %d micro-batch %d, expected less than %d and %d",
                        stage, micro_batch, program->stages, program->micro_batches);
    }
    const crl_action action = {
        .kind = kind, .stage = stage, .micro_batch = micro_batch, .message = -1};
    return crl_action_list_append(&program->position[position], &action);
}

crl_status crl_program_copy(crl_program **out, const crl_program *program, bool forward_only) {
    crl_status status = CRL_STATUS_OK;
    crl_program *copy = NULL;
    CRL_TRY_OUT(
        crl_program_create(&copy, program->positions, program->stages, program->micro_batches));
    copy->dealt = program->dealt;
    for (int p = 0; p < program->positions; p++) {
        for (int i = 0; i < program->position[p].count; i++) {
            const crl_action *action = &program->position[p].action[i];
            if (action->kind == CRL_ACTION_FORWARD || (is_compute(action->kind) && !forward_only)) {
                CRL_TRY_OUT(crl_action_list_append(&copy->position[p], action));
            }
        }
    }
    *out = copy;
    copy = NULL;
out:
    crl_program_destroy(copy);
    return status;
}

int crl_program_peak_activations(const crl_program *program, int stage, bool input) {
    const crl_action_kind last_part = input ? CRL_ACTION_INPUT : CRL_ACTION_WEIGHT;
    int peak = 0;
    for (int p = 0; p < program->positions; p++) {
        const crl_action_list *list = &program->position[p];
        int held = 0;
        for (int i = 0; i < list->count; i++) {
            const crl_action *action = &list->action[i];
            if (action->stage != stage) {
                continue;
            }
            if (action->kind == CRL_ACTION_FORWARD) {
                held++;
            } else if (action->kind == CRL_ACTION_BACKWARD || action->kind == last_part) {
                held--;
            }
            peak = held > peak ? held : peak;
        }
    }
    return peak;
}
