/* SPDX-License-Identifier: Apache-2.0 */
/* The rules on the files of the repository. */
#include <gtest/gtest.h>

#include <set>

#include "tests/lint/rules.h"
#include "tests/lint/tree.h"

namespace lint {
namespace {

/* A breach that is meant: the file, the rule, and why. */
const std::set<std::string> may_print = {
    "engine/base/status.c", /* CRL_ASSERT reports our own bugs, and ends */
};

const std::vector<Source> &code() {
    static const std::vector<Source> files = read_tree({".c", ".h", ".cc", ".cu", ".def"});
    return files;
}

template <typename Rule> std::string check_all(const std::vector<Source> &files, Rule rule) {
    std::string problems;
    for (const Source &file : files) {
        problems += joined(rule(file));
    }
    return problems;
}

void expect_none(const std::string &problems) {
    EXPECT_TRUE(problems.empty()) << problems;
}

TEST(LintTree, IsFound) {
    std::set<std::string> folders;
    for (const Source &file : code()) {
        folders.insert(file.path.substr(0, file.path.find('/')));
    }
    for (const char *folder :
         {"engine", "layers", "partition", "schedules", "models", "cli", "tests"}) {
        EXPECT_EQ(folders.count(folder), 1u) << folder;
    }
}

TEST(LintTree, IncludesGoDownward) {
    expect_none(check_all(code(), check_includes));
}

TEST(LintTree, ForeignHeadersStayInTheirFiles) {
    expect_none(check_all(code(), check_foreign_headers));
}

TEST(LintTree, FeatureSwitchesStandInTables) {
    expect_none(check_all(code(), check_conditionals));
}

TEST(LintTree, FilesBeginWithTheLicense) {
    expect_none(check_all(code(), check_license_line));
    expect_none(
        check_all(read_tree({"CMakeLists.txt", ".cmake", ".sh", ".py"}), check_license_line));
}

TEST(LintTree, FilesStaySmall) {
    expect_none(check_all(code(), check_size));
}

TEST(LintTree, TheLibraryKeepsQuiet) {
    std::set<std::string> used;
    const auto rule = [&](const Source &file) {
        Problems problems = check_calls(file);
        if (!problems.empty() && may_print.count(file.path)) {
            used.insert(file.path);
            problems.clear();
        }
        return problems;
    };
    expect_none(check_all(code(), rule));
    EXPECT_EQ(used, may_print) << "an exception that is no longer needed";
}

TEST(LintTree, NoStrayWords) {
    expect_none(check_all(code(), check_words));
    expect_none(check_all(read_tree({"CMakeLists.txt", ".cmake", ".sh", ".py", ".md", ".yaml",
                                     ".json", "check", "quickstart"}),
                          check_words));
}

} // namespace
} // namespace lint
