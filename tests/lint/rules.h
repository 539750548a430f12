/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the house as functions on text: a path from the root and what stands in the file, or
 * what a tool printed. Each returns one line per breach, "path:line: ...". They read no files. */
#pragma once

#include <string>
#include <vector>

namespace lint {

struct Source {
    std::string path;
    std::string text;
};

using Problems = std::vector<std::string>;

/* Only downward, from the root of the repository; `x_internal.h` only within its module. */
Problems check_includes(const Source &file);
/* Headers of CUDA, MPI, NCCL, Gloo and oneDNN only in their own files. */
Problems check_foreign_headers(const Source &file);
/* `#if CRL_WITH_*` only in .def files and where the registries meet. */
Problems check_conditionals(const Source &file);
Problems check_license_line(const Source &file);
/* At most 500 lines; a header of the product at most 150. */
Problems check_size(const Source &file);
/* The library never prints, exits or reads the environment. */
Problems check_calls(const Source &file);
/* Unowned notes, paths of somebody's machine, traces of tools. */
Problems check_words(const Source &file);

/* `nm_text`: nm -f sysv. No symbol that can be written to, except one per thread. */
Problems check_mutable(const std::string &object, const std::string &nm_text);
/* `nm_text`: nm -g --defined-only -f posix. All names begin with crl_. */
Problems check_prefix(const std::string &object, const std::string &nm_text);
/* The same: exactly one symbol, crl_<kind>_<name>. */
Problems check_plugin(const std::string &object, const std::string &nm_text,
                      const std::string &kind, const std::string &name);
/* The names in the lines CRL_<KIND>(name) of a .def file. */
std::vector<std::string> names_of_def(const std::string &text);

/* `text` with comments and the insides of literals blanked, lines kept. */
std::string code_only(const std::string &text);

} // namespace lint
