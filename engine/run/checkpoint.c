/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saving: rank 0 writes, the owners of tensors send it theirs in pieces of at most 4 MiB, in the
 * order of the content:
 *
 *      rank 0   begin   write own | recv, write ...   publish   retire   verdict ->
 *      others                       send ...                             -> verdict
 *
 * When rank 0 fails (a full disk), it still takes what is sent, without writing, and the verdict
 * tells every rank the same failure; the job itself can go on. Nothing of it is then left behind.
 */
#include "engine/run/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/run/checkpoint_internal.h"
#include "engine/run/safetensors.h"
#include "engine/base/alloc.h"
#include "engine/base/file.h"

enum {
    PIECE_BYTES = 4 << 20,
    TAG_PIECE = CRL_TAG_USER + 0x4b01,
    TAG_VERDICT = CRL_TAG_USER + 0x4b02
};

typedef struct verdict {
    crl_status status;
    char path[CRL_CHECKPOINT_PATH_BYTES];
    char message[CRL_ERROR_MESSAGE_BYTES];
} verdict;

/* Rank 0's side. */
typedef struct saver {
    crl_comm *comm;
    const crl_checkpoint_content *content;
    crl_checkpoint_place place;
    char *piece;
    crl_status status; /* the first failure of writing; the record is kept aside */
    crl_error error;
} saver;

static void keep_failure(saver *saver, crl_status status) {
    if (status != CRL_STATUS_OK && saver->status == CRL_STATUS_OK) {
        saver->status = status;
        saver->error = *crl_error_get();
    }
}

/* -- tensors ----------------------------------------------------------------------------------- */

static crl_status tensor_bytes(size_t *out, const crl_checkpoint_tensor *tensor) {
    const crl_tensor_spec spec = {.dtype = CRL_DTYPE_F32, .shape = tensor->shape};
    CRL_TRY(crl_tensor_bytes(out, &spec, tensor->name));
    return CRL_STATUS_OK;
}

static crl_status check_tensors(const crl_checkpoint_tensor *tensor, int count,
                                const crl_comm *comm) {
    for (int i = 0; i < count; ++i) {
        size_t bytes;
        if (tensor[i].owner < 0 || tensor[i].owner >= comm->ranks) {
            return CRL_FAIL(INVALID, "checkpoint tensor %s: owner is rank %d, expected 0 to %d",
                            tensor[i].name, tensor[i].owner, comm->ranks - 1);
        }
        if (tensor[i].owner == comm->rank && !tensor[i].data) {
            return CRL_FAIL(INVALID, "checkpoint tensor %s: its owner rank %d has no data",
                            tensor[i].name, comm->rank);
        }
        CRL_TRY(tensor_bytes(&bytes, &tensor[i]));
    }
    return CRL_STATUS_OK;
}

bool crl_checkpoint_on_host(const crl_checkpoint_content *content) {
    return !content->device || crl_device_is_host(content->device);
}

crl_status crl_checkpoint_fetch(const void **out, const crl_checkpoint_content *content,
                                const void *data, size_t bytes, void *piece) {
    *out = data;
    if (crl_checkpoint_on_host(content)) {
        return CRL_STATUS_OK;
    }
    *out = piece;
    return crl_device_copy_wait(content->device, content->stream, piece, data, bytes);
}

static crl_status send_tensors(crl_comm *comm, const crl_checkpoint_content *content,
                               const crl_checkpoint_tensor *tensor, int count, void *buffer) {
    for (int i = 0; i < count; ++i) {
        size_t bytes;
        char what[80];
        if (tensor[i].owner != comm->rank) {
            continue;
        }
        snprintf(what, sizeof what, "checkpoint tensor %s", tensor[i].name);
        CRL_TRY(tensor_bytes(&bytes, &tensor[i]));
        for (size_t done = 0; done < bytes; done += PIECE_BYTES) {
            const size_t piece = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;
            const void *data = NULL;
            CRL_TRY(crl_checkpoint_fetch(&data, content, (const char *)tensor[i].data + done, piece,
                                         buffer));
            CRL_TRY(crl_comm_send_wait(comm, 0, TAG_PIECE, data, piece, what));
        }
    }
    return CRL_STATUS_OK;
}

static void append(saver *saver, crl_safetensors_writer *writer, const void *data, size_t bytes) {
    if (saver->status == CRL_STATUS_OK) {
        keep_failure(saver, crl_safetensors_writer_append(writer, data, bytes));
    }
}

/* Fails only when communication does. */
static crl_status collect(saver *saver, crl_safetensors_writer *writer,
                          const crl_checkpoint_tensor *tensor) {
    size_t bytes;
    char what[80];
    CRL_TRY(tensor_bytes(&bytes, tensor));
    if (tensor->owner == 0 && crl_checkpoint_on_host(saver->content)) {
        append(saver, writer, tensor->data, bytes);
        return CRL_STATUS_OK;
    }
    snprintf(what, sizeof what, "checkpoint tensor %s", tensor->name);
    for (size_t done = 0; done < bytes; done += PIECE_BYTES) {
        const size_t piece = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;
        const void *data = saver->piece;
        if (tensor->owner == 0) {
            CRL_TRY(crl_checkpoint_fetch(&data, saver->content, (const char *)tensor->data + done,
                                         piece, saver->piece));
        } else {
            CRL_TRY(crl_comm_recv_wait(saver->comm, tensor->owner, TAG_PIECE, saver->piece, piece,
                                       what));
        }
        append(saver, writer, data, piece);
    }
    return CRL_STATUS_OK;
}

static crl_status open_writer(crl_safetensors_writer **out, const saver *saver, const char *name,
                              const crl_checkpoint_tensor *tensor, int count) {
    static const char *const metadata[] = {"format", "pt", NULL}; /* what other readers look for */
    crl_status status = CRL_STATUS_OK;
    crl_safetensors_item *item = NULL;
    char path[CRL_CHECKPOINT_PATH_BYTES];
    CRL_TRY_OUT(crl_checkpoint_join(path, saver->place.temporary, name));
    CRL_TRY_OUT(crl_alloc(&item, (size_t)count, sizeof *item));
    for (int i = 0; i < count; ++i) {
        item[i].name = tensor[i].name;
        item[i].spec = (crl_tensor_spec){.dtype = CRL_DTYPE_F32, .shape = tensor[i].shape};
    }
    CRL_TRY_OUT(crl_safetensors_writer_create(out, path, item, count, metadata));
out:
    crl_free(item);
    return status;
}

static crl_status write_file(saver *saver, const char *name, const crl_checkpoint_tensor *tensor,
                             int count) {
    crl_status status = CRL_STATUS_OK;
    crl_safetensors_writer *writer = NULL;
    if (saver->status == CRL_STATUS_OK) {
        keep_failure(saver, open_writer(&writer, saver, name, tensor, count));
    }
    for (int i = 0; i < count; ++i) {
        CRL_TRY_OUT(collect(saver, writer, &tensor[i]));
    }
    if (saver->status == CRL_STATUS_OK) {
        keep_failure(saver, crl_safetensors_writer_finish(writer));
    }
out:
    crl_safetensors_writer_destroy(writer);
    return status;
}

static crl_status write_facts(const saver *saver, const json_t *facts) {
    char path[CRL_CHECKPOINT_PATH_BYTES];
    CRL_TRY(crl_checkpoint_join(path, saver->place.temporary, "state.json"));
    char *text = facts ? json_dumps(facts, JSON_INDENT(2)) : strdup("{}");
    if (!text) {
        return CRL_FAIL(NOMEM, "%s: no memory for its text", path);
    }
    const crl_status status = crl_file_write_atomic(path, text, strlen(text));
    free(text);
    CRL_TRY(status);
    return CRL_STATUS_OK;
}

/* -- the two sides ----------------------------------------------------------------------------- */

static void publish(saver *saver, const crl_checkpoint_content *content, int keep) {
    if (saver->status == CRL_STATUS_OK) {
        keep_failure(saver, write_facts(saver, content->facts));
    }
    if (saver->status == CRL_STATUS_OK) {
        keep_failure(saver, crl_checkpoint_publish(&saver->place));
    }
    if (saver->status == CRL_STATUS_OK) {
        keep_failure(saver, crl_checkpoint_retire(&saver->place, keep));
    }
}

static crl_status write_all(saver *saver, const crl_checkpoint_content *content, int keep) {
    crl_status status = CRL_STATUS_OK;
    keep_failure(saver, crl_checkpoint_begin(&saver->place));
    CRL_TRY_OUT(write_file(saver, "model.safetensors", content->param, content->params));
    CRL_TRY_OUT(write_file(saver, "optimizer.safetensors", content->state, content->states));
    publish(saver, content, keep);
out:
    if (status != CRL_STATUS_OK || saver->status != CRL_STATUS_OK) {
        const crl_error first = *crl_error_get(); /* clean-up may fail too, but is not the news */
        if (crl_file_remove(saver->place.temporary) != CRL_STATUS_OK) {
            crl_error_set(&first);
        }
    }
    return status;
}

static crl_status answer(saver *saver) {
    crl_status status = CRL_STATUS_OK;
    verdict *said = NULL;
    CRL_TRY(crl_alloc(&said, 1, sizeof *said));
    said->status = saver->status;
    snprintf(said->path, sizeof said->path, "%s", saver->place.path);
    if (saver->status != CRL_STATUS_OK) {
        snprintf(said->message, sizeof said->message, "%s", saver->error.message);
    }
    for (int rank = 1; rank < saver->comm->ranks; ++rank) {
        CRL_TRY_OUT(crl_comm_send_wait(saver->comm, rank, TAG_VERDICT, said, sizeof *said,
                                       "checkpoint verdict"));
    }
out:
    crl_free(said);
    return status;
}

static crl_status save_first(crl_comm *comm, const char *run, int64_t step, int keep,
                             const crl_checkpoint_content *content, char *path, size_t path_bytes) {
    crl_status status = CRL_STATUS_OK;
    saver *saver = NULL;
    CRL_TRY_OUT(crl_alloc(&saver, 1, sizeof *saver));
    saver->comm = comm;
    saver->content = content;
    CRL_TRY_OUT(crl_alloc(&saver->piece, PIECE_BYTES, 1));
    CRL_TRY_OUT(crl_checkpoint_place_make(&saver->place, run, step));
    CRL_TRY_OUT(write_all(saver, content, keep));
    CRL_TRY_OUT(answer(saver));
    if (saver->status != CRL_STATUS_OK) {
        crl_error_set(&saver->error);
        status = saver->status;
        goto out;
    }
    snprintf(path, path_bytes, "%s", saver->place.path);
out:
    if (saver) {
        crl_free(saver->piece);
    }
    crl_free(saver);
    return status;
}

/* The failure of rank 0 becomes this rank's. */
static crl_status take_failure(const verdict *said) {
    crl_error error = {.status = said->status, .rank = 0};
    snprintf(error.message, sizeof error.message, "%s", said->message);
    crl_error_set(&error);
    crl_error_add_frame(__FILE__, __LINE__);
    return said->status;
}

static crl_status save_other(crl_comm *comm, const crl_checkpoint_content *content, char *path,
                             size_t path_bytes) {
    crl_status status = CRL_STATUS_OK;
    verdict *said = NULL;
    char *piece = NULL;
    CRL_TRY_OUT(crl_alloc(&said, 1, sizeof *said));
    CRL_TRY_OUT(crl_alloc(&piece, crl_checkpoint_on_host(content) ? 1 : PIECE_BYTES, 1));
    CRL_TRY_OUT(send_tensors(comm, content, content->param, content->params, piece));
    CRL_TRY_OUT(send_tensors(comm, content, content->state, content->states, piece));
    CRL_TRY_OUT(crl_comm_recv_wait(comm, 0, TAG_VERDICT, said, sizeof *said, "checkpoint verdict"));
    if (said->status != CRL_STATUS_OK) {
        status = take_failure(said);
        goto out;
    }
    snprintf(path, path_bytes, "%s", said->path);
out:
    crl_free(piece);
    crl_free(said);
    return status;
}

crl_status crl_checkpoint_save(crl_comm *comm, const char *run, int64_t step, int keep,
                               const crl_checkpoint_content *content, char *path,
                               size_t path_bytes) {
    CRL_TRY(check_tensors(content->param, content->params, comm));
    CRL_TRY(check_tensors(content->state, content->states, comm));
    CRL_TRY(comm->rank == 0 ? save_first(comm, run, step, keep, content, path, path_bytes)
                            : save_other(comm, content, path, path_bytes));
    return CRL_STATUS_OK;
}
