/* SPDX-License-Identifier: Apache-2.0 */
/* Machine descriptions as files: YAML with the sections of docs/planner.md. */
#pragma once

#include "engine/base/config.h"
#include "engine/ir/machine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zero-initialise. `machine` is lent: its texts live as long as `source`. */
typedef struct crl_machine_file {
    crl_machine machine;
    crl_config_source source;
} crl_machine_file;

/* Reads a file, then "section.key=value" of `sets`. INVALID "file:line:col: ...", all problems a
 * line each; NOT_FOUND, IO, NOMEM. crl_machine_file_fini is due on success only. */
CRL_NODISCARD crl_status crl_machine_file_read(crl_machine_file *out, const char *path,
                                               const char *const *sets, int set_count);
/* The same of text; `name` stands for the file in messages. */
CRL_NODISCARD crl_status crl_machine_file_parse(crl_machine_file *out, const char *name,
                                                const char *text, size_t bytes);
/* Frees the texts; one that is all zero is fine. */
void crl_machine_file_fini(crl_machine_file *file);
/* Writes a machine so that it reads back to the same numbers. */
void crl_machine_file_write(const crl_machine *machine, FILE *out);
/* The sections and keys as Markdown, for docs/planner.md. */
void crl_machine_file_reference(FILE *out);

#ifdef __cplusplus
}
#endif
