// SPDX-License-Identifier: Apache-2.0
// The cost model against published tables: every row within 10 %, by one machine description per
// table (docs/planner.md says what is fitted).
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "tests/cli/tables.h"

namespace {

/* The lines of a published table as columns, without comments and the heading. */
std::vector<std::vector<std::string>> read_csv(const std::string &name) {
    std::ifstream in(CRL_SOURCE_DIR "/../shared/figures/" + name);
    std::vector<std::vector<std::string>> lines;
    bool heading = true;
    for (std::string line; std::getline(in, line);) {
        if (line.empty() || line[0] == '#' || std::exchange(heading, false))
            continue;
        std::istringstream cells(line);
        lines.emplace_back();
        for (std::string cell; std::getline(cells, cell, ',');)
            lines.back().push_back(cell);
    }
    return lines;
}

/* Every line of the file is among the rows, with its number. */
void expect_published(const std::string &file, const std::vector<tables::Row> &rows,
                      std::string (*name)(const std::vector<std::string> &), size_t column) {
    const auto lines = read_csv(file);
    if (lines.empty())
        GTEST_SKIP() << "no ../shared/figures/" << file;
    for (const auto &cells : lines) {
        const auto row = std::find_if(rows.begin(), rows.end(), [&](const tables::Row &one) {
            return one.table + " " + one.name == name(cells);
        });
        ASSERT_NE(row, rows.end()) << name(cells);
        EXPECT_EQ(row->published, std::stod(cells.at(column))) << name(cells);
    }
}

void expect_within_a_tenth(const std::vector<tables::Row> &rows, size_t count) {
    EXPECT_EQ(rows.size(), count);
    for (const tables::Row &row : rows)
        EXPECT_LE(std::fabs(row.error()), 0.1) << row.name;
    if (testing::Test::HasFailure())
        tables::print(rows, stdout);
}

} // namespace

TEST(CliTables, Narayanan21) {
    expect_within_a_tenth(tables::sc21(), 10);
}

TEST(CliTables, Korthikanti22) {
    expect_within_a_tenth(tables::recompute(), 36);
}

TEST(CliTables, MegatronCoreOnH100) {
    expect_within_a_tenth(tables::h100(), 5);
}

TEST(CliTables, Huang19) {
    expect_within_a_tenth(tables::gpipe(), 24);
}

TEST(CliTables, PublishedAsInTheFileOfNarayanan21) {
    expect_published(
        "megatron_sc21_table1.csv", tables::sc21(),
        [](const std::vector<std::string> &cells) { return "SC21 table 1 " + cells[4] + "B"; }, 9);
}

TEST(CliTables, PublishedAsInTheFileOfMegatronCore) {
    expect_published(
        "megatron_core_h100.csv", tables::h100(),
        [](const std::vector<std::string> &cells) { return "H100 scaling " + cells[0] + "B"; }, 9);
}

TEST(CliTables, PublishedAsInTheFileOfHuang19) {
    expect_published(
        "gpipe.csv", tables::gpipe(),
        [](const std::vector<std::string> &cells) {
            return std::string("GPipe table ") + cells[0][1] + " " + cells[1] + " K=" + cells[2] +
                   " M=" + cells[3];
        },
        4);
}

/* The page computes a row by hand. */
TEST(CliTables, DocsExampleIsWhatTheModelSays) {
    std::ifstream in(CRL_SOURCE_DIR "/docs/planner.md");
    const std::string docs((std::istreambuf_iterator<char>(in)), {});
    const std::vector<tables::Row> rows = tables::sc21();
    ASSERT_EQ(rows[3].name, "18.4B");
    char text[32];
    snprintf(text, sizeof text, "Step %.2f s;", 9.3993 * rows[3].published / rows[3].predicted);
    EXPECT_NE(docs.find(text), std::string::npos) << text;
}
