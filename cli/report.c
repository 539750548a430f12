/* SPDX-License-Identifier: Apache-2.0 */
/* How the command speaks: error lines, and numbers with units. */
#include "cli/cli_internal.h"

#include <stdarg.h>
#include <string.h>

void crl_cli_error(const crl_cli *cli, const char *format, ...) {
    if (cli->rank > 0)
        return;
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: ", cli->program);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

void crl_cli_report_failure(const crl_cli *cli) {
    const crl_error *error = crl_error_get();
    /* With ranks as processes every one of them gets here with the same record. */
    const int speaker = error->rank >= 0 && error->rank < cli->ranks ? error->rank : 0;
    if (cli->rank != speaker)
        return;
    char prefix[64] = "";
    if (error->rank >= 0)
        snprintf(prefix, sizeof prefix, "rank %d: ", error->rank);
    for (const char *line = error->message; line;) {
        const char *end = strchrnul(line, '\n');
        if (end > line)
            fprintf(stderr, "%s: %s%.*s\n", cli->program, prefix, (int)(end - line), line);
        line = *end ? end + 1 : NULL;
    }
    if (error->message[0] == '\0')
        fprintf(stderr, "%s: %sfailed: %s\n", cli->program, prefix, crl_status_name(error->status));
}

const char *crl_cli_widths(char text[CRL_CLI_WIDTHS_BYTES], const crl_settings *settings) {
    size_t used = 0;
    if (!settings->parallel.widths) {
        snprintf(text, CRL_CLI_WIDTHS_BYTES, "%lld x %lld", (long long)settings->parallel.pipeline,
                 (long long)settings->parallel.data);
        return text;
    }
    for (int p = 0; p < (int)settings->parallel.pipeline && used < CRL_CLI_WIDTHS_BYTES; p++)
        used += (size_t)snprintf(text + used, CRL_CLI_WIDTHS_BYTES - used, "%s%d",
                                 p > 0 ? " + " : "", settings->parallel.widths[p]);
    return text;
}
