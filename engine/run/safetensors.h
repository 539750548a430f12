/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The safetensors file format: u64 header size, JSON header, then the tensors' bytes without holes.
 * Reading trusts nothing: sizes, offsets, types, duplicates and holes are checked before a byte of
 * data is used.
 */
#pragma once

#include "engine/tensor/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_safetensors crl_safetensors; /* an open file */

typedef struct crl_safetensors_item {
    const char *name;
    crl_tensor_spec spec;
    int64_t offset_bytes; /* in the file */
    size_t bytes;
} crl_safetensors_item;

/* Opens and checks. INVALID "<path>: ...", NOT_FOUND, IO. */
CRL_NODISCARD crl_status crl_safetensors_open(crl_safetensors **out, const char *path);
/* NULL is fine. */
void crl_safetensors_close(crl_safetensors *file);
/* Number of tensors. */
int crl_safetensors_count(const crl_safetensors *file);
/* Tensor `index`, in the order of the data; lends. */
const crl_safetensors_item *crl_safetensors_item_at(const crl_safetensors *file, int index);
/* The tensor called `name`, or NULL; lends. */
const crl_safetensors_item *crl_safetensors_find(const crl_safetensors *file, const char *name);
/* NULL when there is no such metadata key. */
const char *crl_safetensors_metadata(const crl_safetensors *file, const char *key);
/* The whole tensor into `data` (item->bytes). */
CRL_NODISCARD crl_status crl_safetensors_read(const crl_safetensors *file,
                                              const crl_safetensors_item *item, void *data);
/* Checks the beginning of a file in memory: its first `header_bytes`, of which there should be 8 +
 * N (the open function's core; also the fuzz target). `name` begins messages. *out must be closed.
 */
CRL_NODISCARD crl_status crl_safetensors_parse(crl_safetensors **out, const char *name,
                                               const void *bytes, size_t header_bytes,
                                               int64_t file_bytes);

/* Writing: declare all tensors, then give their bytes in declared order, then finish. The file is
 * at `path` only after finish (temporary name, fsync, rename); destroy before that removes it. */
typedef struct crl_safetensors_writer crl_safetensors_writer;
/* Opens the temporary file and writes the header. INVALID, IO, NOMEM. */
CRL_NODISCARD crl_status crl_safetensors_writer_create(crl_safetensors_writer **out,
                                                       const char *path,
                                                       const crl_safetensors_item *item, int items,
                                                       const char *const *metadata /* key, value,
                                                       ..., NULL; or NULL */);
/* The next `bytes` of data, across tensors. INVALID: more than declared. IO. */
CRL_NODISCARD crl_status crl_safetensors_writer_append(crl_safetensors_writer *writer,
                                                       const void *data, size_t bytes);
/* Syncs and renames. INVALID: less than declared. IO. */
CRL_NODISCARD crl_status crl_safetensors_writer_finish(crl_safetensors_writer *writer);
/* Before finish: removes the temporary file. NULL is fine. */
void crl_safetensors_writer_destroy(crl_safetensors_writer *writer);

#ifdef __cplusplus
}
#endif
