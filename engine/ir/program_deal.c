/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From one list per position to one per replica; see crl_program_deal.
 *
 *     widths 3-1, 6 micro-batches in 3 ranges    order 0 4 2 1 5 3
 *     position 0, replica 0: 0 1                  position 1: 0 4 2 1 5 3
 *                         1: 2 3
 *                         2: 4 5
 */
#include "engine/ir/program_internal.h"

#include "engine/base/alloc.h"

static int widest_position(int positions, const int *first_row) {
    int widest = 0;
    for (int p = 1; p < positions; p++) {
        if (first_row[p + 1] - first_row[p] > first_row[widest + 1] - first_row[widest]) {
            widest = p;
        }
    }
    return widest;
}

static int length_of(crl_range range) {
    return range.last - range.first;
}

/* Whether row a, having given `given[a]` of its micro-batches, is due before row b. */
static bool is_due_before(const crl_range *micro_batch, const int *given, int a, int b) {
    return (2 * (int64_t)given[a] + 1) * length_of(micro_batch[b]) <
           (2 * (int64_t)given[b] + 1) * length_of(micro_batch[a]);
}

/* The k-th of `count` rows to have its turn: 0 2 1 3, so that the halves, quarters ... of the rows,
 * which are the replicas of narrower positions, have turns evenly too. -1: none. */
static int row_of_turn(int k, int bits, int count) {
    int row = 0;
    for (int b = 0; b < bits; b++) {
        row |= (k >> b & 1) << (bits - 1 - b);
    }
    return row < count ? row : -1;
}

crl_status crl_program_deal_order(int *order, int positions, const int *first_row,
                                  const crl_range *micro_batch, int micro_batches) {
    const int widest = widest_position(positions, first_row);
    const int first = first_row[widest], count = first_row[widest + 1] - first;
    int *given = NULL, bits = 0;
    CRL_TRY(crl_alloc(&given, (size_t)(first + count), sizeof *given));
    while (1 << bits < count) {
        bits++;
    }
    for (int i = 0; i < micro_batches; i++) {
        int next = -1;
        for (int k = 0; k < 1 << bits; k++) {
            const int r = first + row_of_turn(k, bits, count);
            if (r >= first && given[r] < length_of(micro_batch[r]) &&
                (next < 0 || is_due_before(micro_batch, given, r, next))) {
                next = r;
            }
        }
        order[i] = micro_batch[next].first + given[next]++;
    }
    crl_free(given);
    return CRL_STATUS_OK;
}

static crl_status check_ranges(const crl_program *program, const int *first_row,
                               const crl_range *micro_batch) {
    for (int p = 0; p < program->positions; p++) {
        int covered = 0;
        for (int r = first_row[p]; r < first_row[p + 1]; r++) {
            if (micro_batch[r].first != covered || micro_batch[r].last < covered) {
                return CRL_FAIL(INVALID, "program: replica %d of position %d begins at %d, not %d",
                                r - first_row[p], p, micro_batch[r].first, covered);
            }
            covered = micro_batch[r].last;
        }
        if (covered != program->micro_batches) {
            return CRL_FAIL(INVALID, "program: replicas of position %d cover %d of %d micro-batches",
                            p, covered, program->micro_batches);
        }
    }
    return CRL_STATUS_OK;
}

static crl_status deal_position(crl_program *target, const crl_action_list *list, int first,
                                const crl_range *micro_batch, const int *order) {
    for (int i = 0; i < list->count; i++) {
        crl_action action = list->action[i];
        int row = first;
        action.micro_batch = order[action.micro_batch];
        while (action.micro_batch >= micro_batch[row].last) {
            row++;
        }
        CRL_TRY(crl_action_list_append(&target->position[row], &action));
    }
    return CRL_STATUS_OK;
}

crl_status crl_program_deal(crl_program *program, const int *first_row,
                            const crl_range *micro_batch) {
    crl_status status = CRL_STATUS_OK;
    const int rows = first_row[program->positions];
    crl_program *target = NULL;
    int *order = NULL;
    CRL_TRY(check_ranges(program, first_row, micro_batch));
    if (rows == program->positions) {
        return CRL_STATUS_OK;
    }
    CRL_TRY_OUT(
        crl_program_create(&target, rows, program->stages, program->micro_batches));
    CRL_TRY_OUT(crl_alloc(&order, (size_t)program->micro_batches, sizeof *order));
    CRL_TRY_OUT(crl_program_deal_order(order, program->positions, first_row, micro_batch,
                                       program->micro_batches));
    for (int p = 0; p < program->positions; p++) {
        CRL_TRY_OUT(deal_position(target, &program->position[p], first_row[p], micro_batch, order));
    }
    target->dealt = true;
    const crl_program old = *program;
    *program = *target;
    *target = old;
out:
    crl_program_destroy(target);
    crl_free(order);
    return status;
}
