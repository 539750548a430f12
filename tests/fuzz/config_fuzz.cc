// SPDX-License-Identifier: Apache-2.0
// The configuration reader on arbitrary bytes. What follows a byte 0x1E is an argument of --set,
// up to the next one. Checked besides crashes: every line of a refusal begins with its source,
// what was accepted can be shown and read back, and no memory is left.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "engine/base/alloc.h"
#include "engine/base/config.h"

namespace {

struct Options {
    int64_t count, bytes;
    double rate;
    bool flag;
    const char *text;
    int choice;
    crl_text_list list;
};

const char *const kChoices[] = {"gpipe", "1f1b", "interleaved", nullptr};

#define ROW(name, value, type, min, max, choices)                                                  \
    { #name, value, "help", &crl_option_##type, offsetof(Options, name), min, max, choices }
const crl_option kEnd = {nullptr, nullptr, nullptr, nullptr, 0, 0, 0, nullptr};
const crl_option kParallel[] = {
    ROW(count, "1", int, 1, 64, nullptr), ROW(choice, "1f1b", choice, 0, 0, kChoices),
    ROW(list, "", list, 0, 0, nullptr), ROW(bytes, "25MiB", bytes, 0, 0, nullptr), kEnd};
const crl_option kData[] = {ROW(text, nullptr, text, 0, 0, nullptr),
                            ROW(rate, "0.1", double, 0, 1, nullptr),
                            ROW(flag, "true", bool, 0, 0, nullptr), kEnd};
const crl_option kModel[] = {ROW(text, "mlp", text, 0, 0, nullptr), kEnd};
const crl_option kMlp[] = {ROW(count, "32", int, 1, 0, nullptr), kEnd};
const crl_option kGpt[] = {ROW(count, nullptr, int, 1, 0, nullptr),
                           ROW(list, "a", list, 0, 0, nullptr), kEnd};

crl_status Select(void *context, const char *value, crl_arena *, const crl_option **table,
                  void **options) {
    *options = context;
    if (std::strcmp(value, "mlp") == 0) {
        *table = kMlp;
        return CRL_STATUS_OK;
    }
    *table = kGpt;
    return std::strcmp(value, "gpt") == 0 ? CRL_STATUS_OK
                                          : CRL_FAIL(NOT_FOUND, "unknown model '%.40s'", value);
}

void Require(bool condition) {
    if (!condition) {
        std::abort();
    }
}

void CheckRefusal(crl_status status) {
    Require(status == CRL_STATUS_INVALID);
    std::string message = std::string(crl_error_message()) + "\n";
    for (size_t begin = 0, end; (end = message.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
        const std::string line = message.substr(begin, end - begin);
        Require(line.rfind("fuzz:", 0) == 0 || line.rfind("--set:", 0) == 0 ||
                line.rfind("(and ", 0) == 0);
    }
}

void CheckRoundTrip(const crl_option *table, const Options &options, crl_arena *arena) {
    for (const crl_option *row = table; row->name; ++row) {
        const char *field = reinterpret_cast<const char *>(&options) + row->offset;
        std::vector<char> first(2 << 20), second(2 << 20);
        Options copy{};
        row->type->show(row, field, first.data(), first.size());
        Require(crl_option_set(table, row->name, first.data(), arena, &copy) == CRL_STATUS_OK);
        row->type->show(row, reinterpret_cast<char *>(&copy) + row->offset, second.data(),
                        second.size());
        Require(std::strcmp(first.data(), second.data()) == 0);
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    std::vector<std::string> parts(1);
    for (size_t i = 0; i < size; ++i) {
        if (data[i] == 0x1E && parts.size() < 16) {
            parts.emplace_back();
        } else {
            parts.back().push_back(char(data[i]));
        }
    }
    std::vector<const char *> sets;
    for (size_t i = 1; i < parts.size(); ++i) {
        sets.push_back(parts[i].c_str());
    }
    crl_alloc_watch watch{};
    crl_alloc_attach(&watch);
    Options parallel{}, input{}, model{}, selected{};
    const crl_config_section sections[] = {
        {"parallel", "", kParallel, &parallel, nullptr, nullptr, nullptr},
        {"data", "", kData, &input, nullptr, nullptr, nullptr},
        {"model", "", kModel, &model, "text", Select, &selected},
        {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr}};
    crl_config_source source{};
    const crl_status status = crl_config_parse(&source, sections, "fuzz", parts[0].data(),
                                               parts[0].size(), sets.data(), int(sets.size()));
    if (status != CRL_STATUS_OK) {
        CheckRefusal(status);
    } else {
        CheckRoundTrip(kParallel, parallel, &source.arena);
        CheckRoundTrip(kData, input, &source.arena);
    }
    crl_config_fini(&source);
    Require(watch.live_bytes == 0);
    crl_alloc_attach(nullptr);
    return 0;
}
