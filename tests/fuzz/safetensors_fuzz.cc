// SPDX-License-Identifier: Apache-2.0
// The safetensors reader on arbitrary files. Checked besides crashes: a refusal is one line that
// begins with the file's name; accepted tensors cover the data exactly once, in order, and are
// found by their names; no memory is left.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "engine/base/alloc.h"
#include "engine/run/safetensors.h"

namespace {

void Require(bool condition) {
    if (!condition) {
        std::abort();
    }
}

void CheckRefusal(crl_status status) {
    Require(status == CRL_STATUS_INVALID);
    Require(std::strncmp(crl_error_message(), "fuzz: ", 6) == 0);
    Require(std::strchr(crl_error_message(), '\n') == nullptr);
}

void CheckTensors(const crl_safetensors *file, int64_t file_bytes) {
    const int count = crl_safetensors_count(file);
    int64_t end = -1;
    for (int i = 0; i < count; ++i) {
        const crl_safetensors_item *item = crl_safetensors_item_at(file, i);
        Require(item->offset_bytes >= 10 && item->offset_bytes <= file_bytes);
        Require(end < 0 || item->offset_bytes == end);
        end = item->offset_bytes + (int64_t)item->bytes;
        Require(crl_safetensors_find(file, item->name) == item);
        size_t bytes = 0;
        Require(crl_tensor_bytes(&bytes, &item->spec, "fuzz") == CRL_STATUS_OK);
        Require(bytes == item->bytes);
    }
    Require(end < 0 || end == file_bytes);
    Require(crl_safetensors_find(file, "__metadata__") == nullptr);
    (void)crl_safetensors_metadata(file, "format");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    crl_alloc_watch watch{};
    crl_alloc_watch *before = crl_alloc_attach(&watch);
    crl_safetensors *file = nullptr;
    const crl_status status = crl_safetensors_parse(&file, "fuzz", data, size, (int64_t)size);
    if (status == CRL_STATUS_OK) {
        CheckTensors(file, (int64_t)size);
    } else {
        Require(file == nullptr);
        CheckRefusal(status);
    }
    crl_safetensors_close(file);
    Require(watch.live_bytes == 0);
    crl_alloc_attach(before);
    return 0;
}
