/* SPDX-License-Identifier: Apache-2.0 */
/* What `simulate` says in numbers: the whole, every position, the critical path. */
#include "cli/simulate_internal.h"

#include <stdio.h>

enum { MOST_LINES = 64 };

/* Positions to be listed of many: the first and the last. */
static bool is_listed(int position, int positions) {
    return positions <= MOST_LINES || position < MOST_LINES / 2 ||
           position >= positions - MOST_LINES / 2;
}

/* "1", or "1.0" of a position's replica 0. */
static const char *row_name(char text[32], const int *first_row, int row) {
    int position = 0;
    while (first_row && first_row[position + 1] <= row)
        position++;
    if (first_row)
        snprintf(text, 32, "%d.%d", position, row - first_row[position]);
    else
        snprintf(text, 32, "%d", row);
    return text;
}

static void print_positions(const crl_program *program, const crl_simulation *times,
                            const int *first_row) {
    printf("\nposition       busy          F          I          W   messages"
           "   waits: input    message       send      after   peak memory  micro-batches\n");
    for (int p = 0; p < program->positions; p++) {
        const crl_position_times *t = &times->position[p];
        if (!is_listed(p, program->positions)) {
            if (is_listed(p - 1, program->positions))
                printf("     ...\n");
            continue;
        }
        char name[32];
        printf("%8s %10.6g %10.6g %10.6g %10.6g %10.6g %14.6g %10.6g %10.6g %10.6g %13.6g %14d\n",
               row_name(name, first_row, p), times->busy_s[p], t->forward_s, t->input_s,
               t->weight_s, t->message_s, t->wait_input_s, t->wait_message_s, t->wait_send_s,
               t->after_s, t->peak_bytes, t->peak_activations);
    }
}

static const char kind_letter[] = {'F', 'B', 'I', 'W'};

static const crl_action *action_of(const crl_program *program, const crl_path_step *step) {
    return &program->position[step->position].action[step->index];
}

static void print_path_summary(const crl_program *program, const crl_simulation *times) {
    double spent_s[4] = {0}, computing_s = 0;
    for (int i = 0; i < times->path_steps; i++) {
        const crl_path_step *step = &times->path[i];
        spent_s[action_of(program, step)->kind] += step->end_s - step->start_s;
        computing_s += step->end_s - step->start_s;
    }
    printf("\ncritical path: %d actions,", times->path_steps);
    for (int kind = 0; kind < 4; kind++)
        if (spent_s[kind] > 0)
            printf(" %c %.6g,", kind_letter[kind], spent_s[kind]);
    printf(" messages %.6g\n", times->makespan_s - computing_s);
}

static void print_path(const crl_program *program, const crl_simulation *times,
                       const int *first_row) {
    printf("     start        end  position  action\n");
    for (int i = 0; i < times->path_steps; i++) {
        const crl_path_step *step = &times->path[i];
        const crl_action *action = action_of(program, step);
        char name[32];
        printf("%10.6g %10.6g %9s  %d%c%d\n", step->start_s, step->end_s,
               row_name(name, first_row, step->position), action->stage, kind_letter[action->kind],
               action->micro_batch);
    }
}

void crl_cli_print_simulation(const crl_timeline *line, const int *first_row, bool path) {
    const crl_program *program = line->program;
    const crl_simulation *times = line->times;
    printf("%s: %d %s, %d stages, %d micro-batches, %lld messages\n", line->title,
           program->positions, first_row ? "replicas" : "positions", program->stages,
           program->micro_batches, (long long)times->messages);
    printf("makespan %.10g, bubble %.1f %%, longest position %.10g\n", times->makespan_s,
           100 * times->bubble, times->span_s);
    print_positions(program, times, first_row);
    print_path_summary(program, times);
    if (path)
        print_path(program, times, first_row);
}
