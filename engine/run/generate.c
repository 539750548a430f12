/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Continuing a prompt on one rank: the whole context is run again for every token (no cache of keys
 * and values), then one token is drawn. The draw is a function of the seed and the token's
 * position.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/registry.h"
#include "engine/base/rng.h"
#include "engine/run/run_internal.h"

typedef struct generator {
    crl_session session;
    const crl_generate_config *config;
    int logits, tokens; /* values */
    int64_t context, vocabulary;
    int32_t *window;  /* (T) what the model reads */
    int32_t *history; /* (prompt + count) */
    void *row;        /* (V) logits as the model made them */
    float *last;      /* (V) the same in f32 */
    float *sorted;    /* (V) for top_k */
    void *zeros;      /* of every other input */
    const void *field[CRL_EXECUTOR_MAX_FIELDS];
} generator;

/* The (B,T) tokens, the (B,T,V) logits. */
static crl_status find_values(generator *g) {
    const crl_graph *graph = g->session.layout->evaluate_graph;
    const crl_node *loss = &graph->node[graph->loss_node];
    const crl_shape *shape = &graph->value[loss->input[0]].spec.shape;
    g->logits = loss->input[0];
    g->tokens = -1;
    for (int v = 0; v < graph->values; v++) {
        const crl_value *value = &graph->value[v];
        const bool of_loss = value->consumers > 0 && value->consumer[0].node == graph->loss_node;
        if (value->from_input && !of_loss && value->spec.dtype == CRL_DTYPE_I32 &&
            value->spec.shape.dimensions == 2) {
            g->tokens = v;
        }
    }
    if (g->tokens < 0 || shape->dimensions != 3 || graph->value[g->logits].from_input ||
        shape->size[1] != graph->value[g->tokens].spec.shape.size[1]) {
        return CRL_FAIL(UNSUPPORTED,
                        "model %s is no language model: expected i32 (B,T) in, (B,T,V) at the loss",
                        g->session.settings->model->name);
    }
    g->context = shape->size[1];
    g->vocabulary = shape->size[2];
    return CRL_STATUS_OK;
}

static crl_status prepare(generator *g) {
    const crl_graph *graph = g->session.layout->evaluate_graph;
    const int *value = NULL;
    size_t largest = 0;
    CRL_TRY(find_values(g));
    const int fields = crl_executor_fields(g->session.rank->evaluate_executor, &value);
    for (int f = 0; f < fields; f++) {
        largest = graph->value[value[f]].bytes > largest ? graph->value[value[f]].bytes : largest;
    }
    const size_t history = (size_t)(g->config->prompt_count + g->config->count);
    CRL_TRY(crl_alloc(&g->window, (size_t)g->context, sizeof *g->window));
    CRL_TRY(crl_alloc(&g->history, history, sizeof *g->history));
    CRL_TRY(crl_alloc(&g->sorted, (size_t)g->vocabulary, sizeof *g->sorted));
    CRL_TRY(crl_alloc(&g->row, (size_t)g->vocabulary, sizeof *g->last));
    CRL_TRY(crl_alloc(&g->last, (size_t)g->vocabulary, sizeof *g->last));
    CRL_TRY(crl_alloc(&g->zeros, largest, 1));
    for (int f = 0; f < fields; f++) {
        g->field[f] = value[f] == g->tokens ? (const void *)g->window : g->zeros;
    }
    for (int64_t i = 0; i < g->config->prompt_count; i++) {
        const int32_t token = g->config->prompt[i];
        if (token < 0 || token >= g->vocabulary) {
            return CRL_FAIL(INVALID, "prompt: token %d is %d, expected 0 to %lld", (int)i, token,
                            (long long)g->vocabulary - 1);
        }
        g->history[i] = token;
    }
    return CRL_STATUS_OK;
}

static int descending(const void *left, const void *right) {
    const float a = *(const float *)left, b = *(const float *)right;
    return (a < b) - (a > b);
}

static int32_t likeliest(const float *logits, int64_t vocabulary) {
    int32_t best = 0;
    for (int64_t i = 1; i < vocabulary; i++) {
        best = logits[i] > logits[best] ? (int32_t)i : best;
    }
    return best;
}

/* Draws from softmax(logits / temperature), of the top_k largest only. */
static int32_t draw(const generator *g, const float *logits, int64_t position) {
    const crl_generate_config *c = g->config;
    const crl_rng rng = {(uint64_t)c->seed, CRL_RNG_SAMPLE, 0, (uint32_t)position, 0};
    const int32_t best = likeliest(logits, g->vocabulary);
    double total = 0;
    float floor = -INFINITY;
    if (c->temperature <= 0) {
        return best;
    }
    if (c->top_k > 0 && c->top_k < g->vocabulary) {
        memcpy(g->sorted, logits, (size_t)g->vocabulary * sizeof *logits);
        qsort(g->sorted, (size_t)g->vocabulary, sizeof *g->sorted, descending);
        floor = g->sorted[c->top_k - 1];
    }
    for (int64_t i = 0; i < g->vocabulary; i++) {
        total += logits[i] >= floor ? exp((logits[i] - logits[best]) / c->temperature) : 0;
    }
    double left = crl_rng_uniform(&rng, 0) * total;
    for (int64_t i = 0; i < g->vocabulary; i++) {
        left -= logits[i] >= floor ? exp((logits[i] - logits[best]) / c->temperature) : 0;
        if (left < 0) {
            return (int32_t)i;
        }
    }
    return best;
}

/* Row `row` of the logits of the last run, as f32 of the host. */
static crl_status read_logits(generator *g, int64_t row) {
    const crl_rank *r = g->session.rank;
    const crl_dtype dtype = r->layout->evaluate_graph->value[g->logits].spec.dtype;
    const char *logits = crl_executor_value(r->evaluate_executor, g->logits);
    const size_t bytes = (size_t)g->vocabulary * crl_dtype_bytes(dtype);
    CRL_TRY(crl_device_copy_wait(r->backend->device, r->stream, g->row,
                                 logits + (size_t)row * bytes, bytes));
    return crl_backend_kernels(&crl_backend_cpu, dtype)
        ->eltwise->widen(NULL, g->row, g->last, g->vocabulary, false);
}

static crl_status make_tokens(generator *g) {
    int64_t known = g->config->prompt_count;
    for (int64_t i = 0; i < g->config->count; i++) {
        const int64_t used = known < g->context ? known : g->context;
        memset(g->window, 0, (size_t)g->context * sizeof *g->window);
        memcpy(g->window, g->history + known - used, (size_t)used * sizeof *g->window);
        crl_executor_step step = {.samples = 1, .field = g->field, .loss = g->session.rank->loss};
        CRL_TRY(crl_executor_run(g->session.rank->evaluate_executor, &step));
        CRL_TRY(read_logits(g, used > 0 ? used - 1 : 0));
        const int32_t token = draw(g, g->last, known);
        g->history[known++] = token;
        if (!g->config->token(g->config->context, token)) {
            break;
        }
    }
    return CRL_STATUS_OK;
}

typedef struct generate_job {
    const crl_settings *settings;
    const crl_registries *registries;
    const crl_generate_config *config;
} generate_job;

static crl_status generate_rank(void *argument, crl_comm *comm) {
    const generate_job *j = argument;
    crl_status status = CRL_STATUS_OK;
    generator *g = NULL;
    crl_resume_point from;
    CRL_TRY(crl_alloc(&g, 1, sizeof *g));
    g->config = j->config;
    CRL_TRY_OUT(crl_resume_find(&from, comm, j->config->checkpoint, false));
    CRL_TRY_OUT(crl_session_open(&g->session, j->settings, j->registries, comm, false));
    CRL_TRY_OUT(crl_session_load(&g->session, &from, false));
    CRL_TRY_OUT(prepare(g));
    CRL_TRY_OUT(make_tokens(g));
out:
    crl_session_close(&g->session, status != CRL_STATUS_OK);
    crl_free(g->window);
    crl_free(g->history);
    crl_free(g->row);
    crl_free(g->last);
    crl_free(g->sorted);
    crl_free(g->zeros);
    crl_free(g);
    return status;
}

crl_status crl_generate(const crl_settings *settings, const crl_registries *registries,
                        const crl_generate_config *config) {
    crl_settings alone;
    crl_settings_alone(&alone, settings, registries);
    alone.train.evaluate_batch = alone.train.micro_batch = alone.train.global_batch = 1;
    alone.train.profile = false;
    if (config->prompt_count < 1) {
        return CRL_FAIL(INVALID, "prompt is empty, expected at least one token");
    }
    if (config->count < 0 || config->count > (int64_t)1 << 32) {
        return CRL_FAIL(INVALID, "tokens to make are %lld, expected 0 to 2^32",
                        (long long)config->count);
    }
    generate_job j = {&alone, registries, config};
    return crl_session_launch(&alone, registries, 1, generate_rank, &j);
}
