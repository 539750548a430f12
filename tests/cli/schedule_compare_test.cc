// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "tests/cli/command.h"
#include "tests/ir/svg_check.h"

namespace {

class CliScheduleCompare : public cli::Command {
  protected:
    struct Row {
        double makespan = 0, bubble = 0;
        std::string line;
    };

    cli::Result compare(const std::vector<std::string> &more) {
        std::vector<std::string> words = {"schedule", "compare",         "--stages",
                                          "4",        "--micro-batches", "8"};
        words.insert(words.end(), more.begin(), more.end());
        return carole(words);
    }

    // By name; those that do not serve have no makespan. Checks that they are sorted.
    static std::map<std::string, Row> rows(const std::string &text) {
        std::map<std::string, Row> all;
        double before = 0;
        bool served = true;
        for (const std::string &line : cli::lines(text)) {
            std::stringstream in(line);
            std::string name, width;
            Row row;
            row.line = line;
            if (in >> name >> width >> row.makespan >> row.bubble) {
                EXPECT_GE(row.makespan, before) << line;
                EXPECT_TRUE(served) << line;
                before = row.makespan;
            } else if (line.find("does not serve") == std::string::npos) {
                continue;
            } else {
                served = false;
                row.makespan = 0;
            }
            all[name] = row;
        }
        return all;
    }

    // The schedules that `carole info` lists.
    std::vector<std::string> registered() {
        std::vector<std::string> names;
        bool in = false;
        for (const std::string &line : cli::lines(carole({"info"}).out)) {
            if (in && line.rfind("  ", 0) != 0)
                break;
            if (in)
                names.push_back(line.substr(2, line.find(' ', 2) - 2));
            in = in || line == "schedules";
        }
        EXPECT_GE(names.size(), 3u);
        return names;
    }
};

TEST_F(CliScheduleCompare, ShowsEverySchedule) {
    const auto result = compare({});
    ASSERT_EQ(result.code, 0) << result.err;
    auto found = rows(result.out);
    for (const std::string &name : registered()) {
        ASSERT_TRUE(found.count(name)) << name << "\n" << result.out;
        // No schedule does more than the work of a position in the time of all of them.
        EXPECT_NEAR(found[name].makespan * (1 - found[name].bubble / 100), 3 * 8, 0.05) << name;
    }
    EXPECT_EQ(found["1f1b"].makespan, 33);
    EXPECT_EQ(found["1f1b"].bubble, 27.3);
    EXPECT_NE(found["1f1b"].line.find(" 1..4 "), std::string::npos) << found["1f1b"].line;
    EXPECT_NE(found["gpipe"].line.find(" 8..8 "), std::string::npos) << found["gpipe"].line;
    EXPECT_NE(found["1f1b"].line.find(" 48"), std::string::npos) << found["1f1b"].line;
}

TEST_F(CliScheduleCompare, StagesOfAPositionShareItsCosts) {
    auto two = rows(compare({"--virtual", "2", "--costs", "4,4,4"}).out);
    auto four = rows(compare({"--virtual", "4", "--costs", "4,4,4"}).out);
    EXPECT_EQ(two["1f1b"].makespan, four["1f1b"].makespan);
    EXPECT_EQ(two["interleaved"].makespan, 4 * (24 + 3.0 * 3 / 2));
    EXPECT_EQ(four["interleaved"].makespan, 4 * (24 + 3.0 * 3 / 4));
}

TEST_F(CliScheduleCompare, TakesCostsOfEveryPosition) {
    cli::write_file(folder / "costs", "1,1,1\n4,4,4\n1,1,1\n1,1,1\n");
    const auto result = compare({"--costs", (folder / "costs").string()});
    ASSERT_EQ(result.code, 0) << result.err;
    for (const auto &[name, row] : rows(result.out))
        EXPECT_GE(row.makespan, 8 * 12) << name; // what the slow position works
}

TEST_F(CliScheduleCompare, SaysWhyAScheduleDoesNotServe) {
    auto found = rows(compare({"--memory-limit", "0.001"}).out);
    if (!found.count("auto"))
        GTEST_SKIP() << "no schedule that obeys a memory limit";
    EXPECT_EQ(found["auto"].makespan, 0);
    EXPECT_EQ(found["1f1b"].makespan, 33);
}

TEST_F(CliScheduleCompare, DrawsBubbleOverMemory) {
    const auto file = folder / "curve.svg";
    const auto result = compare({"--sweep", "1f1b", "--svg", file.string()});
    ASSERT_EQ(result.code, 0) << result.err;
    const std::string picture = cli::read_file(file);
    EXPECT_EQ(svg::problem(picture), "");
    for (const std::string &name : registered())
        EXPECT_EQ(svg::count(picture, ">" + name + "</text>"), 1u) << name;
    EXPECT_GT(svg::count(picture, "class=\"d0\""), 1u);
    EXPECT_EQ(compare({"--svg", (folder / "none" / "curve.svg").string()}).code, 1);
}

TEST_F(CliScheduleCompare, RejectsWhatCannotBe) {
    expect_failure(carole({"schedule", "compare", "--stages", "4"}), 2,
                   "--micro-batches is missing");
    expect_failure(compare({"--costs", "1,2"}), 2, "--costs: 2 numbers, expected 3");
    expect_failure(compare({"--costs", "file.csv"}), 2, "file.csv: no such file");
}

} // namespace
