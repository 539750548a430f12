/* SPDX-License-Identifier: Apache-2.0 */
/* The repository as a list of sources, and what a command prints. */
#pragma once

#include <string>
#include <vector>

#include "tests/lint/rules.h"

namespace lint {

/* All files of the tree with one of these endings, without build folders, run folders and inputs of
 * fuzz tests; sorted. */
std::vector<Source> read_tree(const std::vector<std::string> &endings);

/* stdout and stderr of a shell command and its exit code. */
struct Output {
    int code;
    std::string text;
};
Output run_command(const std::string &command);

/* One object file of the build and the source it was made from ("layers/linear.c"). */
struct Object {
    std::string source;
    std::string path;
};
std::vector<Object> product_objects();

/* For EXPECT_EQ: problems as one text. */
std::string joined(const Problems &problems);

} // namespace lint
