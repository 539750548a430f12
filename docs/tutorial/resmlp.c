/* SPDX-License-Identifier: Apache-2.0 */
/* A residual MLP for 28 x 28 images: a model of one's own, with the whole `carole` command line. */
#include <carole/carole.h>

typedef struct resmlp_options {
    int64_t blocks;
    int64_t width;
} resmlp_options;

static const crl_option table[] = {
    {.name = "blocks", .value = "4", .help = "residual blocks", .type = &crl_option_int,
     .offset = offsetof(resmlp_options, blocks), .min = 1, .max = 1000},
    {.name = "width", .value = "64", .help = "channels", .type = &crl_option_int,
     .offset = offsetof(resmlp_options, width), .min = 1, .max = 65536},
    {0}};

/* from ---> ln -> fc1 -> gelu -> fc2 ---> + ---> "block<i>"
 *      \________________________________/                      */
static crl_status add_block(crl_model *m, int i, const char *from, int64_t width) {
    const char *sum = crl_model_text(m, "block%d", i), *fc2 = crl_model_text(m, "%s.fc2", sum);
    const crl_layer_option out = {.key = "out", .number = (double)width};
    const crl_layer_desc layer[] = {
        {.type = "layernorm", .name = crl_model_text(m, "%s.ln", sum), .input = {from}},
        {.type = "linear", .name = crl_model_text(m, "%s.fc1", sum), .options = {out}},
        {.type = "gelu", .name = crl_model_text(m, "%s.gelu", sum)},
        {.type = "linear", .name = fc2, .options = {out}},
        {.type = "add", .name = sum, .input = {from, fc2}}};
    for (size_t l = 0; l < sizeof layer / sizeof *layer; l++)
        CRL_TRY(crl_model_add(m, &layer[l]));
    return CRL_STATUS_OK;
}

static crl_status build(crl_model *m, const void *given) {
    const resmlp_options *o = given;
    const crl_layer_desc first[] = {
        {.type = "input", .name = "images", .options = {{"dims", 0, "28,28"}}},
        {.type = "flatten", .name = "pixels"},
        {.type = "linear", .name = "stem", .options = {{"out", o->width, 0}}}};
    const crl_layer_desc last[] = {
        {.type = "linear", .name = "head", .options = {{"out", 10, 0}}},
        {.type = "input", .name = "labels", .options = {{"dtype", 0, "i32"}}},
        {.type = "softmax_cross_entropy", .name = "loss", .input = {"head", "labels"}}};
    for (int l = 0; l < 3; l++)
        CRL_TRY(crl_model_add(m, &first[l]));
    for (int i = 0; i < (int)o->blocks; i++)
        CRL_TRY(add_block(m, i, i == 0 ? "stem" : crl_model_text(m, "block%d", i - 1), o->width));
    for (int l = 0; l < 3; l++)
        CRL_TRY(crl_model_add(m, &last[l]));
    return CRL_STATUS_OK;
}

int main(int argc, char **argv) {
    return crl_main(argc, argv, &(crl_model_def){.name = "resmlp", .help = "residual MLP",
                                                 .options = table, .build = build,
                                                 .options_bytes = sizeof(resmlp_options)});
}
