/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where checkpoints lie, which one is the newest complete one, and how one comes and goes. At every
 * instant a crash leaves every complete checkpoint complete: a new one appears by one rename, one
 * of the same step by one exchange. Refuses to touch names it did not make.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/run/checkpoint_internal.h"
#include "engine/run/safetensors.h"
#include "engine/base/alloc.h"
#include "engine/base/file.h"
#include "engine/base/json.h"

#define SET_ASIDE ".old-"
#define TEMPORARY ".tmp-"

crl_status crl_checkpoint_join(char *out, const char *a, const char *b) {
    const int length = snprintf(out, CRL_CHECKPOINT_PATH_BYTES, "%s/%s", a, b);
    if (length < 0 || length >= CRL_CHECKPOINT_PATH_BYTES) {
        return CRL_FAIL(INVALID, "path of a checkpoint is %d bytes long, expected at most %d",
                        length, CRL_CHECKPOINT_PATH_BYTES - 1);
    }
    return CRL_STATUS_OK;
}

crl_status crl_checkpoint_place_make(crl_checkpoint_place *out, const char *run, int64_t step) {
    char name[96];
    if (step < 0) {
        return CRL_FAIL(INVALID, "checkpoint: step is %" PRId64 ", expected 0 or more", step);
    }
    out->step = step;
    snprintf(out->name, sizeof out->name, "step-%08" PRId64, step);
    CRL_TRY(crl_checkpoint_join(out->folder, run, "checkpoints"));
    CRL_TRY(crl_checkpoint_join(out->path, out->folder, out->name));
    snprintf(name, sizeof name, TEMPORARY "%s", out->name);
    CRL_TRY(crl_checkpoint_join(out->temporary, out->folder, name));
    snprintf(name, sizeof name, SET_ASIDE "%s", out->name);
    CRL_TRY(crl_checkpoint_join(out->set_aside, out->folder, name));
    return CRL_STATUS_OK;
}

/* -- what lies in the folder ------------------------------------------------------------------- */

typedef struct entry {
    int64_t step;
    bool set_aside; /* by a replacement that did not end */
} entry;

typedef struct listing {
    entry *item; /* the highest step first; of the same step the one in place first */
    int items;
} listing;

static bool starts_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Only exactly the names crl_checkpoint_place_make gives. */
static bool parse_name(entry *out, const char *name) {
    char again[64];
    char *end;
    out->set_aside = starts_with(name, SET_ASIDE);
    name += out->set_aside ? strlen(SET_ASIDE) : 0;
    if (!starts_with(name, "step-")) {
        return false;
    }
    out->step = strtoll(name + strlen("step-"), &end, 10);
    snprintf(again, sizeof again, "step-%08" PRId64, out->step);
    return strcmp(again, name) == 0;
}

static int compare_entry(const void *left, const void *right) {
    const entry *a = left, *b = right;
    if (a->step != b->step) {
        return a->step > b->step ? -1 : 1;
    }
    return (int)a->set_aside - (int)b->set_aside;
}

static crl_status list(listing *out, const char *folder) {
    DIR *directory = opendir(folder);
    if (!directory) {
        return errno == ENOENT || errno == ENOTDIR
                   ? CRL_FAIL(NOT_FOUND, "%s: cannot be opened: %s", folder, strerror(errno))
                   : CRL_FAIL(IO, "%s: cannot be opened: %s", folder, strerror(errno));
    }
    crl_status status = CRL_STATUS_OK;
    listing found = {0};
    int room = 0;
    for (const struct dirent *next; (next = readdir(directory));) {
        entry parsed;
        if (!parse_name(&parsed, next->d_name)) {
            continue;
        }
        if (found.items == room) {
            const int more = room > 0 ? 2 * room : 16;
            CRL_TRY_OUT(crl_realloc(&found.item, (size_t)room, (size_t)more, sizeof *found.item));
            room = more;
        }
        found.item[found.items++] = parsed;
    }
    if (found.items > 0) {
        qsort(found.item, (size_t)found.items, sizeof *found.item, compare_entry);
    }
    *out = found;
    found.item = NULL;
out:
    crl_free(found.item);
    closedir(directory);
    return status;
}

static crl_status entry_path(char *out, const char *folder, const entry *item) {
    char name[96];
    snprintf(name, sizeof name, "%sstep-%08" PRId64, item->set_aside ? SET_ASIDE : "", item->step);
    return crl_checkpoint_join(out, folder, name);
}

static bool exists(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0;
}

/* -- the newest complete one ------------------------------------------------------------------- */

/* Sizes follow from the headers, so a cut file is seen without reading its data. */
static crl_status check_complete(const char *path) {
    static const char *const file[] = {"model.safetensors", "optimizer.safetensors"};
    char at[CRL_CHECKPOINT_PATH_BYTES];
    json_t *facts;
    for (size_t i = 0; i < sizeof file / sizeof file[0]; ++i) {
        crl_safetensors *opened;
        CRL_TRY(crl_checkpoint_join(at, path, file[i]));
        CRL_TRY(crl_safetensors_open(&opened, at));
        crl_safetensors_close(opened);
    }
    CRL_TRY(crl_checkpoint_facts(&facts, path));
    json_decref(facts);
    return CRL_STATUS_OK;
}

static bool modified(struct timespec *out, const char *path) {
    struct stat info;
    if (stat(path, &info) != 0) {
        return false;
    }
    *out = info.st_mtim;
    return true;
}

/* Was this one published after `latest` was written, by a save that ended in between? A higher step
 * alone does not tell: a run resumed from an early checkpoint leaves the later ones of its first
 * life behind. */
static bool newer_than_latest(const char *path, const char *latest) {
    struct timespec mine, last;
    char at[CRL_CHECKPOINT_PATH_BYTES];
    if (crl_checkpoint_join(at, path, "state.json") != CRL_STATUS_OK || !modified(&mine, at) ||
        !modified(&last, latest)) {
        return true;
    }
    return mine.tv_sec != last.tv_sec ? mine.tv_sec > last.tv_sec : mine.tv_nsec > last.tv_nsec;
}

/* The step `latest` names when that one is in the list; -1. Running out of memory must not look
 * like a missing `latest`: this rank would then resume from another checkpoint than its peers. */
static crl_status latest_step(int64_t *out, const char *latest, const listing *found) {
    char *text;
    size_t bytes;
    entry named;
    int64_t step = -1;
    const crl_status status = crl_file_read(&text, &bytes, latest, 64);
    if (status != CRL_STATUS_OK) {
        *out = -1;
        return status == CRL_STATUS_NOMEM ? status : CRL_STATUS_OK;
    }
    text[strcspn(text, "\n")] = '\0';
    if (parse_name(&named, text)) {
        for (int i = 0; i < found->items; ++i) {
            step = found->item[i].step == named.step ? named.step : step;
        }
    }
    crl_free(text);
    *out = step;
    return CRL_STATUS_OK;
}

/* One pass over the candidates: all, or without those that `latest` shows to be left over. */
static crl_status choose(char *out, const char *folder, const listing *found, int64_t last,
                         int *broken, char *reason, size_t reason_bytes) {
    char latest[CRL_CHECKPOINT_PATH_BYTES];
    CRL_TRY(crl_checkpoint_join(latest, folder, "latest"));
    *broken = 0;
    for (int i = 0; i < found->items; ++i) {
        CRL_TRY(entry_path(out, folder, &found->item[i]));
        if (last >= 0 && found->item[i].step > last && !newer_than_latest(out, latest)) {
            continue;
        }
        const crl_status status = check_complete(out);
        if (status == CRL_STATUS_OK || status == CRL_STATUS_NOMEM) {
            return status;
        }
        if ((*broken)++ == 0) {
            snprintf(reason, reason_bytes, "%s", crl_error_message());
        }
    }
    out[0] = '\0';
    return CRL_STATUS_OK;
}

static crl_status find_newest(char *out, const char *run) {
    char folder[CRL_CHECKPOINT_PATH_BYTES], latest[CRL_CHECKPOINT_PATH_BYTES], reason[1024];
    crl_status status = CRL_STATUS_OK;
    listing found = {0};
    int broken = 0;
    int64_t last = -1;
    CRL_TRY(crl_checkpoint_join(folder, run, "checkpoints"));
    CRL_TRY(crl_checkpoint_join(latest, folder, "latest"));
    CRL_TRY_OUT(list(&found, folder));
    CRL_TRY_OUT(latest_step(&last, latest, &found));
    CRL_TRY_OUT(choose(out, folder, &found, last, &broken, reason, sizeof reason));
    if (!out[0] && last >= 0) { /* none up to the last one: any complete one is better than none */
        CRL_TRY_OUT(choose(out, folder, &found, -1, &broken, reason, sizeof reason));
    }
    if (!out[0]) {
        status = broken > 0 ? CRL_FAIL(INVALID, "%s: no complete checkpoint, %d broken: %s", folder,
                                       broken, reason)
                            : CRL_FAIL(NOT_FOUND, "%s: no checkpoint", folder);
    }
out:
    crl_free(found.item);
    return status;
}

crl_status crl_checkpoint_find(char *out, size_t out_bytes, const char *path) {
    char found[CRL_CHECKPOINT_PATH_BYTES];
    CRL_TRY(crl_checkpoint_join(found, path, "state.json"));
    if (exists(found)) {
        const size_t length = strlen(path);
        memcpy(found, path, length + 1);
    } else {
        CRL_TRY(crl_checkpoint_join(found, path, "checkpoints"));
        if (!exists(found)) {
            return CRL_FAIL(NOT_FOUND,
                            "%s: has neither state.json, as a checkpoint, nor "
                            "checkpoints, as a run folder",
                            path);
        }
        CRL_TRY(find_newest(found, path));
    }
    if (snprintf(out, out_bytes, "%s", found) >= (int)out_bytes) {
        return CRL_FAIL(INVALID, "%s: path is %zu bytes long, expected at most %zu", found,
                        strlen(found), out_bytes - 1);
    }
    crl_error_clear(); /* of the broken ones passed over */
    return CRL_STATUS_OK;
}

crl_status crl_checkpoint_facts(json_t **out, const char *path) {
    char at[CRL_CHECKPOINT_PATH_BYTES];
    json_t *facts;
    CRL_TRY(crl_checkpoint_join(at, path, "state.json"));
    CRL_TRY(crl_json_load(&facts, at));
    if (!json_is_object(facts)) {
        json_decref(facts);
        return CRL_FAIL(INVALID, "%s: is no JSON object", at);
    }
    *out = facts;
    return CRL_STATUS_OK;
}

/* -- coming and going -------------------------------------------------------------------------- */

/* A replacement that was interrupted between its two renames is undone. */
static crl_status restore(const char *folder) {
    crl_status status = CRL_STATUS_OK;
    listing found;
    CRL_TRY(list(&found, folder));
    for (int i = 0; i < found.items; ++i) {
        entry *item = &found.item[i];
        char from[CRL_CHECKPOINT_PATH_BYTES], to[CRL_CHECKPOINT_PATH_BYTES];
        if (!item->set_aside) {
            continue;
        }
        CRL_TRY_OUT(entry_path(from, folder, item));
        item->set_aside = false;
        CRL_TRY_OUT(entry_path(to, folder, item));
        if (exists(to)) {
            CRL_TRY_OUT(crl_file_remove(from));
        } else {
            CRL_TRY_OUT(crl_file_rename(from, to));
        }
    }
out:
    crl_free(found.item);
    return status;
}

/* A directory of a save, or the file crl_file_write_atomic makes before it is `latest`. */
static bool is_temporary(const char *name) {
    const size_t length = strlen(name);
    return starts_with(name, TEMPORARY "step-") ||
           (starts_with(name, "latest.") && length > 4 && strcmp(name + length - 4, ".tmp") == 0);
}

static crl_status remove_temporaries(const char *folder) {
    DIR *directory = opendir(folder);
    if (!directory) {
        return CRL_FAIL(IO, "%s: cannot be opened: %s", folder, strerror(errno));
    }
    crl_status status = CRL_STATUS_OK;
    for (const struct dirent *next; (next = readdir(directory));) {
        char at[CRL_CHECKPOINT_PATH_BYTES];
        if (is_temporary(next->d_name)) {
            CRL_TRY_OUT(crl_checkpoint_join(at, folder, next->d_name));
            CRL_TRY_OUT(crl_file_remove(at));
        }
    }
out:
    closedir(directory);
    return status;
}

crl_status crl_checkpoint_begin(const crl_checkpoint_place *place) {
    CRL_TRY(crl_file_make_directory(place->folder));
    CRL_TRY(remove_temporaries(place->folder));
    CRL_TRY(restore(place->folder));
    CRL_TRY(crl_file_make_directory(place->temporary));
    return CRL_STATUS_OK;
}

crl_status crl_checkpoint_publish(const crl_checkpoint_place *place) {
    CRL_TRY(crl_file_sync(place->temporary));
    if (!exists(place->path)) {
        return crl_file_rename(place->temporary, place->path);
    }
    if (renameat2(AT_FDCWD, place->temporary, AT_FDCWD, place->path, RENAME_EXCHANGE) == 0) {
        CRL_TRY(crl_file_sync(place->folder));
        return crl_file_remove(place->temporary);
    }
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) {
        return CRL_FAIL(IO, "%s: cannot be replaced: %s", place->path, strerror(errno));
    }
    /* A file system that cannot exchange: the old one stays findable under its other name. */
    CRL_TRY(crl_file_rename(place->path, place->set_aside));
    CRL_TRY(crl_file_rename(place->temporary, place->path));
    return crl_file_remove(place->set_aside);
}

/* Steps above the new one are of an earlier life of the run: older, whatever their number. */
static crl_status prune(const crl_checkpoint_place *place, int keep) {
    crl_status status = CRL_STATUS_OK;
    listing found;
    int kept = 0;
    CRL_TRY(list(&found, place->folder));
    for (int i = 0; i < found.items; ++i) {
        char at[CRL_CHECKPOINT_PATH_BYTES];
        if (found.item[i].step <= place->step && kept < keep) {
            ++kept;
            continue;
        }
        CRL_TRY_OUT(entry_path(at, place->folder, &found.item[i]));
        /* First out of sight: half-removed it must not look like a checkpoint. */
        CRL_TRY_OUT(crl_file_rename(at, place->temporary));
        CRL_TRY_OUT(crl_file_remove(place->temporary));
    }
out:
    crl_free(found.item);
    return status;
}

crl_status crl_checkpoint_retire(const crl_checkpoint_place *place, int keep) {
    char latest[CRL_CHECKPOINT_PATH_BYTES], text[80];
    CRL_TRY(crl_checkpoint_join(latest, place->folder, "latest"));
    const int length = snprintf(text, sizeof text, "%s\n", place->name);
    CRL_TRY(crl_file_write_atomic(latest, text, (size_t)length));
    if (keep > 0) {
        CRL_TRY(prune(place, keep));
    }
    return CRL_STATUS_OK;
}
