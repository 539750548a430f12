// SPDX-License-Identifier: Apache-2.0
// The text form of programs on arbitrary bytes: parsed, checked, written back. Checked besides crashes:
// a refusal is one line that begins with the name; what is accepted reads back to the same text; the
// checker ends with a verdict; no memory is left.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "engine/base/alloc.h"
#include "engine/ir/program.h"

namespace {

void Require(bool condition) {
    if (!condition) {
        std::abort();
    }
}

std::string Write(const crl_program *program) {
    char *text = nullptr;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    crl_program_write(program, false, out);
    std::fclose(out);
    const std::string result(text, bytes);
    std::free(text);
    return result;
}

void CheckAccepted(const crl_program *program) {
    crl_check_report report{};
    crl_program_check(program, &report);
    Require(std::strchr(report.why, '\n') == nullptr);
    Require((report.verdict == CRL_VERDICT_VALID) == (report.why[0] == '\0'));
    const std::string text = Write(program);
    crl_program *again = nullptr;
    Require(crl_program_parse(&again, "fuzz", text.data(), text.size()) == CRL_STATUS_OK);
    Require(Write(again) == text);
    crl_program_destroy(again);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    crl_alloc_watch watch{};
    crl_alloc_attach(&watch);
    crl_program *program = nullptr;
    if (crl_program_parse(&program, "fuzz", reinterpret_cast<const char *>(data), size) ==
        CRL_STATUS_OK) {
        CheckAccepted(program);
        crl_program_destroy(program);
    } else {
        Require(std::strncmp(crl_error_message(), "fuzz", 4) == 0);
        Require(std::strchr(crl_error_message(), '\n') == nullptr);
    }
    Require(watch.live_bytes == 0);
    crl_alloc_attach(nullptr);
    return 0;
}
