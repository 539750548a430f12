// SPDX-License-Identifier: Apache-2.0
// Profile files of arbitrary bytes. Checked besides crashes: a refusal is one line that begins with
// the name; what is accepted passes the check and reads back from what is written, to the same
// text; no memory is left.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "engine/base/alloc.h"
#include "engine/run/profile_file.h"

namespace {

void Require(bool condition) {
    if (!condition) {
        std::abort();
    }
}

std::string Write(const crl_profile_list &list) {
    char *text = nullptr;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    Require(crl_profile_file_write(list.item, list.count, out) == CRL_STATUS_OK);
    std::fclose(out);
    const std::string result(text, bytes);
    std::free(text);
    return result;
}

void CheckAccepted(const crl_profile_list &list) {
    for (int i = 0; i < list.count; i++) {
        Require(crl_profile_check(list.item[i]) == CRL_STATUS_OK);
    }
    const std::string text = Write(list);
    crl_profile_list again = {};
    Require(crl_profile_file_parse(&again, "fuzz", text.data(), text.size()) == CRL_STATUS_OK);
    Require(Write(again) == text);
    crl_profile_list_fini(&again);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    crl_alloc_watch watch{};
    crl_alloc_attach(&watch);
    crl_profile_list list = {};
    if (crl_profile_file_parse(&list, "fuzz", reinterpret_cast<const char *>(data), size) ==
        CRL_STATUS_OK) {
        CheckAccepted(list);
        crl_profile_list_fini(&list);
    } else {
        Require(std::strncmp(crl_error_message(), "fuzz", 4) == 0);
        Require(std::strchr(crl_error_message(), '\n') == nullptr);
    }
    Require(watch.live_bytes == 0);
    crl_alloc_attach(nullptr);
    return 0;
}
