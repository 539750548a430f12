// SPDX-License-Identifier: Apache-2.0
#include <jansson.h>

#include "tests/cli/command.h"

namespace {

using CliSchedule = cli::Command;

TEST_F(CliSchedule, CheckAgreesWithEveryVerdict) {
    const std::string cases = CRL_SOURCE_DIR "/../shared/cases/schedules/";
    if (!std::filesystem::exists(cases + "verdicts.json"))
        GTEST_SKIP() << "no " << cases;
    json_t *verdicts = json_load_file((cases + "verdicts.json").c_str(), 0, nullptr);
    ASSERT_NE(verdicts, nullptr);
    size_t i = 0;
    json_t *one = nullptr;
    json_array_foreach(verdicts, i, one) {
        const std::string file = cases + json_string_value(json_object_get(one, "file"));
        const std::string expected = json_string_value(json_object_get(one, "expect"));
        SCOPED_TRACE(file);
        const auto result = carole({"schedule", "check", file});
        if (expected == "valid") {
            EXPECT_EQ(result.code, 0) << result.err;
            EXPECT_NE(result.out.find("valid"), std::string::npos);
        } else {
            expect_failure(result, 1, ": " + expected + ": ");
        }
    }
    EXPECT_GE(i, 10u);
    json_decref(verdicts);
}

TEST_F(CliSchedule, ShowDrawsTheGrid) {
    const auto result =
        carole({"schedule", "show", "--schedule", "1f1b", "--stages", "4", "--micro-batches", "8"});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_GE(cli::lines(result.out).size(), 5u) << result.out;
    EXPECT_NE(result.out.find("bubble 27.3 %"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("4 3 2 1"), std::string::npos) << result.out;
}

TEST_F(CliSchedule, WhatShowWritesCheckAccepts) {
    for (const char *name : {"gpipe", "1f1b", "interleaved"}) {
        const auto shown = carole({"schedule", "show", "--schedule", name, "--stages", "4",
                                   "--micro-batches", "4", "--csv"});
        ASSERT_EQ(shown.code, 0) << shown.err;
        const auto file = folder / "shown.csv";
        cli::write_file(file, shown.out);
        EXPECT_EQ(carole({"schedule", "check", file.string(), "--grid"}).code, 0) << name;
    }
}

TEST_F(CliSchedule, RejectsWhatCannotBe) {
    expect_failure(
        carole({"schedule", "show", "--schedule", "1f1c", "--stages", "4", "--micro-batches", "8"}),
        2, "did you mean '1f1b'?");
    expect_failure(carole({"schedule", "show", "--stages", "5", "--micro-batches", "8",
                           "--schedule", "interleaved", "--virtual", "2"}),
                   2, "--stages is 5, expected a multiple of --virtual, 2");
    expect_failure(carole({"schedule", "check", (folder / "none.csv").string()}), 1, "none.csv");
    const auto file = folder / "odd.csv";
    cli::write_file(file, "0F0,0B0\n1F0,what\n");
    expect_failure(carole({"schedule", "check", file.string()}), 1, "odd.csv:2:2: ");
    cli::write_file(file, "");
    EXPECT_EQ(carole({"schedule", "check", file.string()}).code, 1);
}

} // namespace
