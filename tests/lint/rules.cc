/* SPDX-License-Identifier: Apache-2.0 */
/* See rules.h. The tables below are architecture.md §3 as data. */
#include "tests/lint/rules.h"

#include <algorithm>
#include <map>
#include <regex>
#include <sstream>

namespace lint {

namespace {

/* Everything a module may include besides itself. */
struct Module {
    const char *folder;
    std::vector<std::string> uses;
    bool all = false;
};

const std::vector<Module> modules = {
    {"engine/base/", {}},
    {"engine/tensor/", {"engine/base/"}},
    {"engine/device/", {"engine/base/"}},
    {"engine/kernels/", {"engine/base/", "engine/device/", "engine/tensor/"}},
    {"engine/comm/", {"engine/base/", "engine/device/", "engine/kernels/"}},
    {"engine/ir/",
     {"engine/base/", "engine/tensor/", "engine/carole.h", "engine/kernels/kernels.h"}},
    {"engine/run/",
     {"engine/base/", "engine/tensor/", "engine/device/", "engine/kernels/", "engine/comm/",
      "engine/ir/", "engine/carole.h"}},
    {"engine/carole.h", {"engine/base/"}},
    {"layers/",
     {"engine/base/", "engine/tensor/", "engine/device/", "engine/kernels/", "engine/comm/",
      "engine/ir/"}},
    {"partition/", {"engine/base/", "engine/ir/"}},
    {"schedules/", {"engine/base/", "engine/ir/"}},
    {"models/", {"engine/carole.h"}},
    {"cli/", {"engine/", "layers/", "partition/", "schedules/", "models/"}},
    {"tests/", {}, true},
};

struct Foreign {
    const char *header; /* regular expressions */
    const char *files;
    const char *name;
};

const Foreign foreign[] = {
    {"(oneapi/dnnl/)?dnnl.*", "engine/kernels/cpu/.*", "oneDNN"},
    {"mpi\\.h", "engine/comm/mpi[a-z_]*\\.[ch]", "MPI"},
    {"nccl.*", "engine/comm/nccl.*", "NCCL"},
    {"gloo/.*", "engine/comm/gloo.*", "Gloo"},
    {"(cuda|cublas|cudnn|curand|nvml|nvrtc|cub/|thrust/).*",
     "engine/(kernels|device|comm)/(cuda|nccl).*", "CUDA"},
    {"yaml\\.h", "engine/base/(config[a-z_]*|yaml)\\.[ch]", "libyaml"},
};

bool begins(const std::string &text, const std::string &prefix) {
    return text.compare(0, prefix.size(), prefix) == 0;
}

bool ends(const std::string &text, const std::string &suffix) {
    return text.size() >= suffix.size() &&
           text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
}

const Module *module_of(const std::string &path) {
    for (const Module &module : modules) {
        if (begins(path, module.folder)) {
            return &module;
        }
    }
    return nullptr;
}

bool is_product(const std::string &path) {
    const Module *module = module_of(path);
    return module && !module->all;
}

std::vector<std::string> lines_of(const std::string &text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
        lines.push_back(line);
    }
    return lines;
}

std::string at(const Source &file, size_t line) {
    return file.path + ":" + std::to_string(line + 1) + ": ";
}

/* Calls visit(line, header, quoted) for every #include. */
template <typename Visit> void each_include(const Source &file, Visit visit) {
    static const std::regex include("^\\s*#\\s*include\\s*([<\"])([^>\"]+)[>\"]");
    const std::vector<std::string> lines = lines_of(file.text);
    for (size_t i = 0; i < lines.size(); ++i) {
        std::smatch match;
        if (std::regex_search(lines[i], match, include)) {
            visit(i, match[2].str(), match[1] == "\"");
        }
    }
}

/* One problem for every line of `text` that `pattern` is found in. */
Problems search_lines(const Source &file, const std::string &text, const std::regex &pattern,
                      const std::string &complaint) {
    Problems problems;
    const std::vector<std::string> lines = lines_of(text);
    for (size_t i = 0; i < lines.size(); ++i) {
        std::smatch match;
        if (std::regex_search(lines[i], match, pattern)) {
            problems.push_back(at(file, i) + complaint + " '" + match.str() + "'");
        }
    }
    return problems;
}

std::string trimmed(const std::string &text) {
    const size_t first = text.find_first_not_of(' ');
    return first == std::string::npos ? ""
                                      : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

std::vector<std::string> columns(const std::string &line, char separator) {
    std::vector<std::string> parts;
    std::istringstream in(line);
    for (std::string part; std::getline(in, part, separator);) {
        parts.push_back(trimmed(part));
    }
    return parts;
}

/* Names of nm -f posix: "name type value size". */
std::vector<std::string> global_names(const std::string &nm_text) {
    std::vector<std::string> names;
    for (const std::string &line : lines_of(nm_text)) {
        const std::vector<std::string> part = columns(line, ' ');
        if (part.size() >= 2 && part[1].size() == 1) {
            names.push_back(part[0]);
        }
    }
    return names;
}

} // namespace

Problems check_includes(const Source &file) {
    Problems problems;
    const Module *module = module_of(file.path);
    if (!module || module->all) {
        return problems;
    }
    each_include(file, [&](size_t line, const std::string &header, bool quoted) {
        if (!quoted) {
            return;
        }
        const Module *other = module_of(header);
        if (!other) {
            problems.push_back(at(file, line) + "'" + header + "' is no path from the root");
        } else if (other != module &&
                   std::none_of(module->uses.begin(), module->uses.end(),
                                [&](const std::string &use) { return begins(header, use); })) {
            problems.push_back(at(file, line) + module->folder + " includes '" + header + "'");
        } else if (other != module && ends(header, "_internal.h")) {
            problems.push_back(at(file, line) + "'" + header + "' is internal to another module");
        }
    });
    return problems;
}

Problems check_foreign_headers(const Source &file) {
    Problems problems;
    if (!is_product(file.path)) {
        return problems;
    }
    each_include(file, [&](size_t line, const std::string &header, bool) {
        for (const Foreign &one : foreign) {
            if (std::regex_match(header, std::regex(one.header)) &&
                !std::regex_match(file.path, std::regex(one.files))) {
                problems.push_back(at(file, line) + "<" + header + "> belongs to the files of " +
                                   one.name);
            }
        }
    });
    return problems;
}

Problems check_conditionals(const Source &file) {
    if (ends(file.path, ".def") || file.path == "cli/builtins.c" || !is_product(file.path)) {
        return {};
    }
    static const std::regex pattern("^\\s*#\\s*(if|ifdef|ifndef|elif)\\b.*\\bCRL_WITH_[A-Z_]+");
    return search_lines(file, code_only(file.text), pattern, "feature switch in logic:");
}

Problems check_license_line(const Source &file) {
    static const std::regex pattern(
        "^(#!.*\n)?(/\\*|//|#|<!--|--) SPDX-License-Identifier: Apache-2\\.0");
    if (std::regex_search(file.text, pattern, std::regex_constants::match_continuous)) {
        return {};
    }
    return {at(file, 0) + "does not begin with the license line"};
}

Problems check_size(const Source &file) {
    const size_t lines = lines_of(file.text).size();
    const size_t limit = ends(file.path, ".h") && is_product(file.path) ? 150 : 500;
    if (lines <= limit) {
        return {};
    }
    return {file.path + ": is " + std::to_string(lines) + " lines long, expected at most " +
            std::to_string(limit)};
}

Problems check_calls(const Source &file) {
    if (!is_product(file.path) || begins(file.path, "cli/") || ends(file.path, ".def")) {
        return {};
    }
    static const std::regex pattern(
        "(^|[^>.\\w])(printf|vprintf|puts|putchar|perror|exit|_exit|quick_exit|abort|system|"
        "getenv|secure_getenv|setenv)\\s*\\(|\\b(stderr|stdout)\\b"); /* not a->abort() */
    return search_lines(file, code_only(file.text), pattern, "the library does not call");
}

Problems check_words(const Source &file) {
    /* In pieces, so that this file is no breach itself. */
    static const std::regex pattern("\\b(TO"
                                    "DO|FIX"
                                    "ME|X"
                                    "XX|HA"
                                    "CK)\\b|(^|[\\s\"'(=])/(wo"
                                    "rk|ho"
                                    "me|ro"
                                    "ot)/|"
                                    "\\b([Aa]ssis"
                                    "tant|[Cc]o"
                                    "pilot|[Cc]hat"
                                    "bot|[Ss]ub-?ag"
                                    "ent|[Ll]LM-gen"
                                    "erated)s?\\b");
    return search_lines(file, file.text, pattern, "word that has no place here:");
}

Problems check_mutable(const std::string &object, const std::string &nm_text) {
    Problems problems;
    for (const std::string &line : lines_of(nm_text)) {
        /* name | value | class | type | size | line | section */
        const std::vector<std::string> part = columns(line, '|');
        if (part.size() < 7 || part[3] == "TLS" || part[3] == "SECTION") {
            continue;
        }
        const std::string &section = part[6];
        const bool data = begins(section, ".data") && !begins(section, ".data.rel.ro");
        if (data || begins(section, ".bss") || section == "*COM*") {
            problems.push_back(object + ": '" + part[0] + "' can be written to (" + section + ")");
        }
    }
    return problems;
}

Problems check_prefix(const std::string &object, const std::string &nm_text) {
    Problems problems;
    for (const std::string &name : global_names(nm_text)) {
        if (!begins(name, "crl_") && !begins(name, "_") && !begins(name, "DW.")) {
            problems.push_back(object + ": exports '" + name + "', expected crl_...");
        }
    }
    return problems;
}

Problems check_plugin(const std::string &object, const std::string &nm_text,
                      const std::string &kind, const std::string &name) {
    const std::string expected = "crl_" + kind + "_" + name;
    std::string actual;
    int count = 0;
    for (const std::string &symbol : global_names(nm_text)) {
        if (!begins(symbol, "_") && !begins(symbol, "DW.")) {
            actual += (count++ ? ", " : "") + symbol;
        }
    }
    if (actual == expected) {
        return {};
    }
    return {object + ": exports '" + actual + "', expected '" + expected + "' alone"};
}

std::vector<std::string> names_of_def(const std::string &text) {
    static const std::regex row("^CRL_[A-Z_]+\\(([a-z0-9_]+)\\)");
    std::vector<std::string> names;
    for (const std::string &line : lines_of(code_only(text))) {
        std::smatch match;
        if (std::regex_search(line, match, row)) {
            names.push_back(match[1]);
        }
    }
    return names;
}

std::string code_only(const std::string &text) {
    enum { kCode, kLine, kBlock, kText, kCharacter } in = kCode;
    std::string code = text;
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i], next = i + 1 < text.size() ? text[i + 1] : '\0';
        const bool literal = in == kText || in == kCharacter;
        if (in == kCode && c == '/' && (next == '/' || next == '*')) {
            in = next == '/' ? kLine : kBlock;
        } else if (in == kCode && (c == '"' || c == '\'')) {
            in = c == '"' ? kText : kCharacter;
            continue;
        } else if (in == kBlock && c == '*' && next == '/') {
            in = kCode;
            code[i++] = ' ';
            code[i] = ' ';
            continue;
        } else if ((in == kLine && c == '\n') || (in == kText && c == '"') ||
                   (in == kCharacter && c == '\'')) {
            in = kCode;
            continue;
        }
        if (in != kCode && c != '\n') {
            code[i] = ' ';
            if (literal && c == '\\' && next && next != '\n') {
                code[++i] = ' ';
            }
        }
    }
    return code;
}

} // namespace lint
