/* SPDX-License-Identifier: Apache-2.0 */
/* `carole generate`: continues a text with a checkpoint, printing every token as it is made. */
#include "cli/cli_internal.h"

#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/registry.h"
#include "engine/run/tokenizer.h"

typedef struct generate_options {
    crl_text_list sets;
    const char *prompt, *checkpoint;
    int64_t tokens, top_k, seed;
    double temperature;
} generate_options;

static const crl_option options[] = {
    CRL_CLI_SET_ROW(generate_options, sets),
    {"prompt", "", "text to continue; without: a new line", &crl_option_text,
     offsetof(generate_options, prompt), 0, 0, NULL},
    {"tokens", "200", "how many tokens to make", &crl_option_int,
     offsetof(generate_options, tokens), 1, 1e9, NULL},
    {"temperature", "0.8", "0: always the likeliest token", &crl_option_double,
     offsetof(generate_options, temperature), 0, 100, NULL},
    {"top-k", "0", "choose among the k likeliest tokens; 0: all", &crl_option_int,
     offsetof(generate_options, top_k), 0, 1e9, NULL},
    {"seed", "1", "of the random draws", &crl_option_int, offsetof(generate_options, seed), 0, 0,
     NULL},
    {"checkpoint", "", "a checkpoint or a run folder; without: the config's run folder",
     &crl_option_text, offsetof(generate_options, checkpoint), 0, 0, NULL},
    {0}};

typedef struct writer {
    const char *prompt; /* printed with the first token, when nothing can fail to begin any more */
    const crl_tokenizer_kind *kind;
    const crl_tokenizer *tokenizer;
    bool unknown; /* a token the tokenizer does not have: the model's vocabulary is larger */
} writer;

static bool print_token(void *context, int32_t token) {
    writer *w = context;
    const char *text = NULL;
    size_t bytes = 0;
    if (w->kind->decode(w->tokenizer, token, &text, &bytes) != CRL_STATUS_OK) {
        w->unknown = true;
        return false;
    }
    if (w->prompt)
        fputs(w->prompt, stdout);
    w->prompt = NULL;
    return fwrite(text, 1, bytes, stdout) == bytes && fflush(stdout) == 0;
}

static crl_status open_tokenizer(writer *out, crl_tokenizer **tokenizer,
                                 const crl_settings *settings, const crl_registries *registries) {
    if (strcmp(settings->data.tokenizer, "none") == 0)
        return CRL_FAIL(INVALID, "data.tokenizer is 'none', generate needs one to read the prompt");
    const void *kind = NULL;
    CRL_TRY(
        crl_registry_find(&kind, registries->tokenizers, "tokenizer", settings->data.tokenizer));
    out->kind = kind;
    const char *path = settings->data.tokenizer_path;
    CRL_TRY(out->kind->open(tokenizer, path && path[0] ? path : NULL));
    out->tokenizer = *tokenizer;
    return CRL_STATUS_OK;
}

static crl_status run(const crl_cli *cli, crl_cli_args *args) {
    const generate_options *o = args->options;
    crl_status status = CRL_STATUS_OK;
    crl_settings *settings = NULL;
    crl_tokenizer *tokenizer = NULL;
    int32_t *prompt = NULL;
    size_t prompt_count = 0;
    writer w = {0};
    CRL_TRY_OUT(crl_cli_settings(&settings, cli, args, &o->sets));
    CRL_TRY_OUT(open_tokenizer(&w, &tokenizer, settings, cli->registries));
    const char *text = o->prompt[0] ? o->prompt : "\n"; /* a model continues, it cannot begin */
    w.prompt = text;
    CRL_TRY_OUT(w.kind->encode(tokenizer, text, strlen(text), &prompt, &prompt_count));
    const crl_generate_config config = {.checkpoint = o->checkpoint[0] ? o->checkpoint
                                                                       : settings->run.directory,
                                        .prompt = prompt,
                                        .prompt_count = (int64_t)prompt_count,
                                        .count = o->tokens,
                                        .temperature = o->temperature,
                                        .top_k = o->top_k,
                                        .seed = o->seed,
                                        .context = &w,
                                        .token = print_token};
    CRL_TRY_OUT(crl_generate(settings, cli->registries, &config));
    fputc('\n', stdout);
    if (w.unknown)
        status = CRL_FAIL(INVALID, "tokenizer '%s' has fewer tokens than the model's vocabulary",
                          w.kind->name);
out:
    crl_free(prompt);
    if (w.kind)
        w.kind->close(tokenizer);
    crl_settings_destroy(settings);
    return status;
}

const crl_command crl_command_generate = {
    .name = "generate",
    .help = "continue a text with a trained language model",
    .arguments = "CONFIG",
    .min_arguments = 1,
    .max_arguments = 1,
    .options = options,
    .options_bytes = sizeof(generate_options),
    .run = run,
};
