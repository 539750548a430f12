/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `carole data tokenize | check | entropy`: text to token files, and what is in data files. Reads
 * through the dataset formats, so that what it accepts is what training accepts.
 */
#include "cli/cli_internal.h"

#include <inttypes.h>
#include <math.h>

#include "engine/base/alloc.h"
#include "engine/base/file.h"
#include "engine/base/registry.h"
#include "engine/run/dataset.h"
#include "engine/run/tokenizer.h"

static const size_t text_limit_bytes = (size_t)4 << 30;

typedef struct tokenize_options {
    const char *out, *validation, *tokenizer, *ranks;
    double fraction;
} tokenize_options;

static const crl_option tokenize_table[] = {
    {"out", NULL, "token file to write (llm.c format)", &crl_option_text,
     offsetof(tokenize_options, out), 0, 0, NULL},
    {"validation", "", "token file for the last part of the text", &crl_option_text,
     offsetof(tokenize_options, validation), 0, 0, NULL},
    {"fraction", "0.1", "size of that part", &crl_option_double,
     offsetof(tokenize_options, fraction), 0.000001, 0.999999, NULL},
    {"tokenizer", "bytes", "bytes or gpt2", &crl_option_text, offsetof(tokenize_options, tokenizer),
     0, 0, NULL},
    {"ranks", "", "vocabulary of gpt2: its byte-pair ranks, as a tiktoken file", &crl_option_text,
     offsetof(tokenize_options, ranks), 0, 0, NULL},
    {0}};

static crl_status write_tokens(const tokenize_options *o, const int32_t *tokens, size_t count) {
    const size_t validation = o->validation[0] ? (size_t)floor((double)count * o->fraction) : 0;
    if (o->validation[0] && (validation == 0 || validation == count))
        return CRL_FAIL(INVALID, "text has %zu tokens, too few for a validation part of %g", count,
                        o->fraction);
    CRL_TRY(crl_tokens_write(o->out, tokens, count - validation));
    printf("%s: %zu tokens\n", o->out, count - validation);
    if (validation > 0) {
        CRL_TRY(crl_tokens_write(o->validation, tokens + (count - validation), validation));
        printf("%s: %zu tokens\n", o->validation, validation);
    }
    return CRL_STATUS_OK;
}

static crl_status run_tokenize(const crl_cli *cli, crl_cli_args *args) {
    const tokenize_options *o = args->options;
    crl_status status = CRL_STATUS_OK;
    const void *found = NULL;
    args->exit_code = CRL_EXIT_USAGE;
    CRL_TRY(crl_registry_find(&found, cli->registries->tokenizers, "tokenizer", o->tokenizer));
    args->exit_code = CRL_EXIT_FAILURE;
    const crl_tokenizer_kind *kind = found;
    crl_tokenizer *tokenizer = NULL;
    char *text = NULL;
    int32_t *tokens = NULL;
    size_t bytes = 0, count = 0;
    CRL_TRY(kind->open(&tokenizer, o->ranks[0] ? o->ranks : NULL));
    CRL_TRY_OUT(crl_file_read(&text, &bytes, args->argument[0], text_limit_bytes));
    if (bytes == 0) {
        status = CRL_FAIL(INVALID, "%s: file is empty, expected text", args->argument[0]);
        goto out;
    }
    CRL_TRY_OUT(kind->encode(tokenizer, text, bytes, &tokens, &count));
    CRL_TRY_OUT(write_tokens(o, tokens, count));
out:
    crl_free(tokens);
    crl_free(text);
    kind->close(tokenizer);
    return status;
}

typedef struct check_options {
    const char *format;
    int64_t vocabulary, context;
} check_options;

static const crl_option check_table[] = {
    {"format", "auto", "auto, or a format that `carole info` lists", &crl_option_text,
     offsetof(check_options, format), 0, 0, NULL},
    {"vocabulary", "0", "tokens or labels have to be below it; 0: any", &crl_option_int,
     offsetof(check_options, vocabulary), 0, 2147483647, NULL},
    {"context", "1", "tokens of a sample", &crl_option_int, offsetof(check_options, context), 1,
     1 << 24, NULL},
    {0}};

typedef struct open_data {
    const crl_dataset_format *format;
    crl_dataset *dataset;
} open_data;

static crl_status open_files(open_data *out, const crl_cli *cli, const char *format,
                             const crl_dataset_config *config) {
    CRL_TRY(crl_dataset_format_find(&out->format, cli->registries->datasets, format, config));
    return out->format->open(&out->dataset, config);
}

static crl_status run_check(const crl_cli *cli, crl_cli_args *args) {
    const check_options *o = args->options;
    const crl_dataset_config config = {.path = {args->arguments, args->argument},
                                       .context = o->context};
    open_data data = {0};
    CRL_TRY(open_files(&data, cli, o->format, &config));
    char report[1024] = "";
    const crl_status status =
        data.format->check(data.dataset, o->vocabulary, report, sizeof report);
    if (status == CRL_STATUS_OK)
        printf("%s: valid %s: %s\n", args->argument[0], data.format->name, report);
    data.format->close(data.dataset);
    return status;
}

enum { ENTROPY_CONTEXT = 64, ENTROPY_SAMPLES = 1024, ENTROPY_TOKENS = 1 << 21 };

/* Counts every token but those after the last whole sample, at most 64 per file. */
static crl_status count_tokens(const open_data *data, int64_t *histogram, int64_t *out_total) {
    const int64_t samples = data->format->count(data->dataset);
    crl_status status = CRL_STATUS_OK;
    int32_t *tokens = NULL;
    int64_t *ids = NULL;
    int64_t total = 0;
    CRL_TRY_OUT(crl_alloc(&tokens, (size_t)ENTROPY_SAMPLES * ENTROPY_CONTEXT, sizeof *tokens));
    CRL_TRY_OUT(crl_alloc(&ids, ENTROPY_SAMPLES, sizeof *ids));
    for (int64_t first = 0; first < samples; first += ENTROPY_SAMPLES) {
        const int64_t n = samples - first < ENTROPY_SAMPLES ? samples - first : ENTROPY_SAMPLES;
        for (int64_t i = 0; i < n; i++)
            ids[i] = first + i;
        CRL_TRY_OUT(data->format->read(data->dataset, 0, ids, n, tokens));
        for (int64_t i = 0; i < n * ENTROPY_CONTEXT; i++) {
            if (tokens[i] < 0 || tokens[i] >= ENTROPY_TOKENS) {
                status = CRL_FAIL(INVALID, "token is %" PRId32 ", expected 0..%d", tokens[i],
                                  ENTROPY_TOKENS - 1);
                goto out;
            }
            histogram[tokens[i]]++;
        }
        total += n * ENTROPY_CONTEXT;
    }
    *out_total = total;
out:
    crl_free(tokens);
    crl_free(ids);
    return status;
}

static crl_status run_entropy(const crl_cli *cli, crl_cli_args *args) {
    const crl_dataset_config config = {.path = {args->arguments, args->argument},
                                       .context = ENTROPY_CONTEXT};
    open_data data = {0};
    crl_status status = CRL_STATUS_OK;
    int64_t *histogram = NULL, total = 0;
    CRL_TRY(open_files(&data, cli, "auto", &config));
    const crl_field *field = NULL;
    if (data.format->fields(data.dataset, &field) < 1 || field[0].spec.shape.dimensions != 1) {
        status = CRL_FAIL(INVALID, "%s: samples are not tokens, entropy is of tokens",
                          args->argument[0]);
        goto out;
    }
    CRL_TRY_OUT(crl_alloc(&histogram, ENTROPY_TOKENS, sizeof *histogram));
    CRL_TRY_OUT(count_tokens(&data, histogram, &total));
    double entropy = 0;
    int different = 0;
    for (int t = 0; t < ENTROPY_TOKENS; t++) {
        if (histogram[t] == 0)
            continue;
        const double p = (double)histogram[t] / (double)total;
        entropy -= p * log(p);
        different++;
    }
    printf("%.4f nats per token: unigram entropy of %" PRId64 " tokens, %d different ones\n",
           entropy, total, different);
out:
    crl_free(histogram);
    data.format->close(data.dataset);
    return status;
}

const crl_command crl_command_data_tokenize = {
    .name = "data tokenize",
    .help = "turn a text file into token files",
    .arguments = "TEXT",
    .min_arguments = 1,
    .max_arguments = 1,
    .options = tokenize_table,
    .options_bytes = sizeof(tokenize_options),
    .run = run_tokenize,
};

const crl_command crl_command_data_check = {
    .name = "data check",
    .help = "read data files whole and check them",
    .arguments = "FILE...",
    .min_arguments = 1,
    .max_arguments = 100000,
    .options = check_table,
    .options_bytes = sizeof(check_options),
    .run = run_check,
};

const crl_command crl_command_data_entropy = {
    .name = "data entropy",
    .help = "unigram entropy of token files: what a model that only counts would reach",
    .more = "Tokens are counted in blocks of 64; what is left at the end of a file is not.",
    .arguments = "FILE...",
    .min_arguments = 1,
    .max_arguments = 100000,
    .run = run_entropy,
};
