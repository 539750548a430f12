// SPDX-License-Identifier: Apache-2.0
// The IDX reader on arbitrary bytes, unpacked first when they begin like gzip. Checked besides
// crashes: a refusal is one line that begins with the name, what is accepted lies inside the bytes
// and fills them, and no memory is left.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "engine/base/alloc.h"
#include "engine/run/data/gzip.h"
#include "engine/run/data/idx.h"

namespace {

void Require(bool condition) {
    if (!condition) {
        std::abort();
    }
}

void CheckRefusal(crl_status status) {
    Require(status == CRL_STATUS_INVALID || status == CRL_STATUS_NOMEM);
    Require(std::strncmp(crl_error_message(), "fuzz: ", 6) == 0);
    Require(std::strchr(crl_error_message(), '\n') == nullptr);
}

void Parse(const uint8_t *content, size_t bytes) {
    crl_idx idx{};
    const crl_status status = crl_idx_parse(&idx, "fuzz", content, bytes);
    if (status != CRL_STATUS_OK) {
        CheckRefusal(status);
        return;
    }
    Require(idx.shape.dimensions >= 1 && idx.shape.dimensions <= CRL_MAX_DIMENSIONS);
    const int64_t elements = crl_shape_elements(&idx.shape);
    Require(elements >= 1 && idx.data > content);
    Require(idx.data + elements == content + bytes);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    crl_alloc_watch watch{};
    crl_alloc_attach(&watch);
    unsigned char *unpacked = nullptr;
    size_t bytes = 0;
    if (!crl_gzip_recognise(data, size)) {
        Parse(data, size);
    } else {
        const crl_status status = crl_gzip_expand(&unpacked, &bytes, "fuzz", data, size);
        if (status == CRL_STATUS_OK) {
            Parse(unpacked, bytes);
        } else {
            CheckRefusal(status);
        }
    }
    crl_free(unpacked);
    Require(watch.live_bytes == 0);
    crl_alloc_attach(nullptr);
    return 0;
}
