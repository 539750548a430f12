// SPDX-License-Identifier: Apache-2.0
// A user's own schedule, from a CSV file: trains with the bits of one rank, or is refused with its
// picture.
#include <gtest/gtest.h>

#include <random>
#include <sstream>

#include "engine/ir/schedule.h"
#include "tests/layouts/job.h"

namespace {

using job::Sets;

class OwnSchedule : public testing::Test {
  protected:
    Sets Layout(const std::string &csv, int pipeline, int data = 1) const {
        write_text(scratch_ / "own.csv", csv);
        return job::Width(pipeline, data) + Sets{{"parallel.schedule", scratch_ / "own.csv"}};
    }

    // 4 micro-batches: 8 samples of 2.
    Sets Base() const {
        return job::Gpt(scratch_) + Sets{{"train.global_batch", "8"}, {"train.steps", "4"}};
    }

    Scratch scratch_;
};

// A random valid program of P positions with a stage or several anywhere: repeatedly runs one of
// the actions whose inputs are there; W ascend by micro-batch.
std::string RandomSchedule(std::mt19937 &random, int positions, int stages, int micro_batches) {
    std::vector<int> home;
    for (int s = 0; s < stages; s++) {
        home.push_back(s < positions ? s : int(random() % unsigned(positions)));
    }
    std::shuffle(home.begin(), home.end(), random);
    std::vector<std::vector<bool>> f(stages, std::vector<bool>(micro_batches)), b = f;
    std::vector<int> w(stages, 0);
    std::vector<std::string> row(positions);
    auto add = [&](int s, const char *kind, int m) {
        std::string &text = row[home[s]];
        text += (text.empty() ? "" : ",") + std::to_string(s) + kind + std::to_string(m);
    };
    for (int left = stages * micro_batches * 3; left > 0;) {
        const int s = int(random() % unsigned(stages)), m = int(random() % unsigned(micro_batches));
        if (!f[s][m] && (s == 0 || f[s - 1][m])) {
            add(s, "F", m);
            f[s][m] = true;
            left--;
        } else if (f[s][m] && !b[s][m] && (s == stages - 1 || b[s + 1][m])) {
            add(s, "I", m);
            b[s][m] = true;
            left--;
        } else if (w[s] < micro_batches && b[s][w[s]]) {
            add(s, "W", w[s]++);
            left--;
        }
    }
    std::string csv;
    for (const std::string &text : row) {
        csv += text + "\n";
    }
    return csv;
}

TEST_F(OwnSchedule, RandomOnesGiveTheBitsOfOneRank) {
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const std::string one = job::Train(Base()).Bits();
    for (int i = 0; i < 12; i++) {
        const int positions = int(random() % 4 + 1), stages = positions + int(random() % 5);
        const std::string csv = RandomSchedule(random, positions, stages, 4);
        const job::Outcome outcome = job::Train(Base() + Layout(csv, positions));
        ASSERT_EQ(outcome.status, CRL_STATUS_OK) << outcome.message << "\n" << csv;
        EXPECT_EQ(outcome.Bits(), one) << csv;
        EXPECT_EQ(outcome.result.late_allocations, 0);
    }
}

TEST_F(OwnSchedule, EveryPipelineRunsIt) {
    const std::string csv = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
    const job::Outcome outcome = job::Train(Base() + Layout(csv, 2, 2));
    ASSERT_EQ(outcome.status, CRL_STATUS_OK) << outcome.message;
    EXPECT_EQ(outcome.Bits(), job::Train(Base()).Bits());
}

TEST_F(OwnSchedule, OneThatDoesNotFitIsRefused) {
    auto message = [&](const Sets &layout) {
        const job::Outcome outcome = job::Train(Base() + layout);
        EXPECT_EQ(outcome.status, CRL_STATUS_INVALID);
        return outcome.message;
    };
    const std::string two = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
    EXPECT_NE(message(Layout(two, 2)).find("own.csv: has 2 micro-batches, pipeline 0 of 1 has 4"),
              std::string::npos);
    EXPECT_NE(message(Layout(two, 3)).find("own.csv: has 2 positions, parallel.pipeline is 3"),
              std::string::npos);
    EXPECT_NE(message(Layout("0F0,0B1\n", 1)).find("own.csv: "), std::string::npos);
    EXPECT_NE(message(Layout("0F0,0F1,0F2,0F3\n1F0,1F1,1F2,1F3\n", 2))
                  .find("own.csv: has no backward, expected one of every forward"),
              std::string::npos);
    // Sums are taken in ascending order: another would give other bits.
    EXPECT_NE(message(Layout("0F0,0F1,0F2,0F3,0B1,0B0,0B2,0B3\n", 1) +
                      Sets{{"numerics.lanes", "1"}})
                  .find("weight gradient of micro-batch 1 comes before that of 0"),
              std::string::npos);
    EXPECT_NE(message(Sets{{"parallel.schedule", "missing.csv"}})
                  .find("missing.csv: no such file, expected a schedule"),
              std::string::npos);
}

TEST_F(OwnSchedule, AnOrderThatCannotBeSummedIsRefusedBeforeTheRun) {
    const Sets sets = Base() + Layout("0F0,0F1,0F2,0F3,0B1,0B0,0B2,0B3\n", 1) +
                      Sets{{"numerics.lanes", "1"}};
    job::Printed printed = job::Shell(job::Command(sets, scratch_ / "config.yaml"));
    EXPECT_EQ(printed.code, 2) << printed.text;
    EXPECT_EQ(printed.text.find("rank"), std::string::npos) << printed.text;
}

TEST_F(OwnSchedule, ABrokenOneIsShownWithTheActionMarked) {
    const Sets sets = Base() + Layout("0F0,0B0,0F1,0F2,0F3,0B1,0B2,0B3\n1B0,1F0,1F1,1B1,1F2,1B2,1F3,1B3\n", 2);
    const job::Printed printed = job::Shell(job::Command(sets, scratch_ / "config.yaml"));
    EXPECT_EQ(printed.code, 2) << printed.text;
    EXPECT_NE(printed.text.find("!B0"), std::string::npos) << printed.text;
    EXPECT_NE(printed.text.find("own.csv: deadlock: position 1 waits at 1B0 for 1F0"),
              std::string::npos)
        << printed.text;
}

} // namespace
