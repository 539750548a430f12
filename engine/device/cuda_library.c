/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries by name: where the system's loader finds them, else in the toolkit's folder that the
 * build knew (CRL_CUDA_LIBRARY_FOLDER). Refuses to look elsewhere. */
#include "engine/device/cuda_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

const crl_cuda_library crl_cuda_library_cublaslt = {"cuBLASLt",
                                                    {"libcublasLt.so.13", "libcublasLt.so.12"}};
const crl_cuda_library crl_cuda_library_cudnn = {"cuDNN", {"libcudnn.so.9"}};
const crl_cuda_library crl_cuda_library_nccl = {"NCCL", {"libnccl.so.2"}};

enum { MOST_FILES = sizeof((crl_cuda_library *)0)->files / sizeof(char *) };

#ifdef CRL_CUDA_LIBRARIES_SELF /* the emulation: the program itself has them */
static void *open_file(const char *file) {
    (void)file;
    return dlopen(NULL, RTLD_LAZY);
}
#else
static void *open_file(const char *file) {
    void *handle = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
    char path[1024];
    if (!handle &&
        snprintf(path, sizeof path, "%s/%s", CRL_CUDA_LIBRARY_FOLDER, file) < (int)sizeof path)
        handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    return handle;
}
#endif

/* NULL: there is none. */
static void *open_library(const crl_cuda_library *library) {
    void *handle = NULL;
    for (int i = 0; i < MOST_FILES && library->files[i] && !handle; i++)
        handle = open_file(library->files[i]);
    return handle;
}

crl_status crl_cuda_library_load(const crl_cuda_library *library, const crl_cuda_symbol *symbols,
                                 int count) {
    void *handle = open_library(library);
    if (!handle)
        return CRL_FAIL(UNSUPPORTED, "cuda: %s not found", library->files[0]);
    for (int i = 0; i < count; i++)
        if (!dlsym(handle, symbols[i].name))
            return CRL_FAIL(UNSUPPORTED, "cuda: %s has no %s", library->files[0], symbols[i].name);
    for (int i = 0; i < count; i++) {
        void *found = dlsym(handle, symbols[i].name);
        memcpy(symbols[i].function, &found, sizeof found);
    }
    return CRL_STATUS_OK;
}

/* major · 10000 + minor · 100 + patch, as all three count; 0: none. */
static size_t version_of(const crl_cuda_library *library, const char *symbol) {
    void *handle = open_library(library);
    void *found = handle ? dlsym(handle, symbol) : NULL;
    size_t (*get)(void) = NULL;
    int (*get_into)(int *) = NULL;
    int version = 0;
    if (!found)
        return 0;
    if (library == &crl_cuda_library_nccl) {
        memcpy(&get_into, &found, sizeof found);
        return get_into(&version) == 0 ? (size_t)version : 0;
    }
    memcpy(&get, &found, sizeof found);
    return get();
}

void crl_cuda_library_describe(char *text, size_t text_bytes) {
    const struct {
        const crl_cuda_library *library;
        const char *symbol;
    } all[] = {{&crl_cuda_library_cublaslt, "cublasLtGetVersion"},
               {&crl_cuda_library_cudnn, "cudnnGetVersion"},
               {&crl_cuda_library_nccl, "ncclGetVersion"}};
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof all / sizeof *all && used < text_bytes; i++) {
        const size_t v = version_of(all[i].library, all[i].symbol);
        const char *comma = i == 0 ? "" : ", ", *name = all[i].library->name;
        const int wrote =
            v == 0 ? snprintf(text + used, text_bytes - used, "%s%s missing", comma, name)
                   : snprintf(text + used, text_bytes - used, "%s%s %zu.%zu.%zu", comma, name,
                              v / 10000, v / 100 % 100, v % 100);
        used += (size_t)wrote;
    }
}
