/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/ir/toy_model.h"

#include <random>

namespace {

/* The ranges of `width` replicas over `micro_batches`, one after the other. */
void add_rows(std::vector<int> &first_row, std::vector<crl_range> &ranges, int width,
              int micro_batches) {
    for (int k = 0; k < width; k++) {
        ranges.push_back({k * micro_batches / width, (k + 1) * micro_batches / width});
    }
    first_row.push_back((int)ranges.size());
}

/* All forwards, then all backwards, of one stage per position. */
toy::program_ptr all_then_all(int stages, int micro_batches) {
    crl_program *out = nullptr;
    EXPECT_EQ(crl_program_create(&out, stages, stages, micro_batches), CRL_STATUS_OK);
    for (int s = 0; s < stages; s++) {
        for (crl_action_kind kind : {CRL_ACTION_FORWARD, CRL_ACTION_BACKWARD}) {
            for (int m = 0; m < micro_batches; m++) {
                EXPECT_EQ(crl_program_append(out, s, kind, s, m), CRL_STATUS_OK);
            }
        }
    }
    return toy::program_ptr(out);
}

std::string text(const toy::program_ptr &program) { return toy::write(program, false); }

} // namespace

TEST(IrProgramDeal, ReplicasTakeTurnsAndNarrowPositionsFollow) {
    toy::program_ptr program = all_then_all(2, 6);
    std::vector<int> first_row = {0};
    std::vector<crl_range> ranges;
    add_rows(first_row, ranges, 3, 6);
    add_rows(first_row, ranges, 1, 6);
    ASSERT_EQ(crl_program_deal(program.get(), first_row.data(), ranges.data()), CRL_STATUS_OK);
    EXPECT_EQ(text(program), "0F0,0F1,0B0,0B1\n0F2,0F3,0B2,0B3\n0F4,0F5,0B4,0B5\n"
                             "1F0,1F4,1F2,1F1,1F5,1F3,1B0,1B4,1B2,1B1,1B5,1B3\n");
    EXPECT_TRUE(program->dealt);
    crl_check_report report;
    crl_program_check(program.get(), &report);
    EXPECT_EQ(report.verdict, CRL_VERDICT_VALID) << report.why;
}

TEST(IrProgramDeal, UnequalSharesComeInProportion) {
    std::vector<int> first_row = {0};
    std::vector<crl_range> ranges = {{0, 2}, {2, 4}, {4, 8}};
    first_row.push_back(3);
    int order[8];
    ASSERT_EQ(crl_program_deal_order(order, 1, first_row.data(), ranges.data(), 8), CRL_STATUS_OK);
    EXPECT_EQ(std::vector<int>(order, order + 8), (std::vector<int>{4, 0, 2, 5, 6, 1, 3, 7}));
}

TEST(IrProgramDeal, ReplicasOfNarrowerPositionsTakeTurnsToo) {
    std::vector<int> first_row = {0};
    std::vector<crl_range> ranges;
    add_rows(first_row, ranges, 4, 8);
    add_rows(first_row, ranges, 2, 8);
    int order[8];
    ASSERT_EQ(crl_program_deal_order(order, 2, first_row.data(), ranges.data(), 8), CRL_STATUS_OK);
    for (int i = 0; i + 1 < 8; i++) {
        EXPECT_NE(order[i] < 4, order[i + 1] < 4) << "micro-batches " << order[i] << " and "
                                                  << order[i + 1];
    }
}

TEST(IrProgramDeal, OneRowEachChangesNothing) {
    toy::program_ptr program = all_then_all(3, 4);
    const std::string before = text(program);
    std::vector<int> first_row = {0};
    std::vector<crl_range> ranges;
    for (int p = 0; p < 3; p++) {
        add_rows(first_row, ranges, 1, 4);
    }
    ASSERT_EQ(crl_program_deal(program.get(), first_row.data(), ranges.data()), CRL_STATUS_OK);
    EXPECT_EQ(text(program), before);
    EXPECT_FALSE(program->dealt);
}

TEST(IrProgramDeal, StaysValidUnderRendezvousWithAnyWidths) {
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    for (int i = 0; i < 200; i++) {
        const int stages = (int)(random() % 4 + 1), micro_batches = (int)(random() % 12 + 1);
        toy::graph_ptr graph = toy::chain(stages);
        toy::plan_ptr plan = toy::even_plan(graph, stages, stages);
        toy::program_ptr program = all_then_all(stages, micro_batches);
        std::vector<int> first_row = {0};
        std::vector<crl_range> ranges;
        for (int s = 0; s < stages; s++) {
            add_rows(first_row, ranges, (int)(random() % 5 + 1), micro_batches);
        }
        ASSERT_EQ(crl_program_deal(program.get(), first_row.data(), ranges.data()), CRL_STATUS_OK);
        ASSERT_EQ(crl_program_add_messages(program.get(), plan.get(), 1, false), CRL_STATUS_OK)
            << crl_error_message();
        crl_check_report report;
        crl_program_check(program.get(), &report);
        ASSERT_EQ(report.verdict, CRL_VERDICT_VALID) << report.why;
        for (int m = 0; m < program->messages; m++) {
            const crl_message &message = program->message[m];
            for (int row : {message.from, message.to}) {
                ASSERT_TRUE(message.micro_batch >= ranges[(size_t)row].first &&
                            message.micro_batch < ranges[(size_t)row].last);
            }
        }
    }
}

TEST(IrProgramDeal, RefusesRangesThatDoNotCover) {
    toy::program_ptr program = all_then_all(1, 4);
    const int first_row[] = {0, 2};
    const crl_range gap[] = {{0, 1}, {2, 4}}, less[] = {{0, 1}, {1, 3}};
    EXPECT_EQ(crl_program_deal(program.get(), first_row, gap), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "program: replica 1 of position 0 begins at 2, not 1");
    EXPECT_EQ(crl_program_deal(program.get(), first_row, less), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(),
                 "program: replicas of position 0 cover 3 of 4 micro-batches");
    EXPECT_EQ(program->positions, 1);
}

TEST(IrProgramDeal, AMicroBatchOfAStageHasOneHome) {
    toy::program_ptr program = toy::parse("0F0,0F1,0B1\n0B0");
    crl_check_report report;
    crl_program_check(program.get(), &report);
    EXPECT_EQ(report.verdict, CRL_VERDICT_INVALID);
    EXPECT_STREQ(report.why, "0B0 on position 1, but stage 0 is on position 0");
    program->dealt = true;
    crl_program_check(program.get(), &report);
    EXPECT_EQ(report.verdict, CRL_VERDICT_INVALID);
    EXPECT_STREQ(report.why, "0B0 on position 1, but micro-batch 0 is on position 0");
    program = toy::parse("0F1,0B1\n0F0,0B0");
    program->dealt = true;
    crl_program_check(program.get(), &report);
    EXPECT_EQ(report.verdict, CRL_VERDICT_VALID) << report.why;
}
