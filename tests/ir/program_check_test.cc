/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/ir/toy_model.h"

#include <algorithm>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "engine/base/alloc.h"
#include "engine/base/json.h"

namespace {

crl_check_report check(const toy::program_ptr &program) {
    crl_check_report report;
    crl_program_check(program.get(), &report);
    return report;
}

crl_check_report check(const std::string &text) {
    return check(toy::parse(text));
}

/* Sweeps over all positions until nothing moves; the definition, not the algorithm. */
bool comes_to_its_end(const crl_program *program) {
    std::set<std::string> done;
    std::vector<int> at((size_t)program->positions, 0);
    auto name = [](char kind, int stage, int micro_batch) {
        return std::to_string(stage) + kind + std::to_string(micro_batch);
    };
    for (bool moved = true; moved;) {
        moved = false;
        for (int p = 0; p < program->positions; p++) {
            if (at[p] == program->position[p].count) {
                continue;
            }
            const crl_action &a = program->position[p].action[at[p]];
            const int s = a.stage, m = a.micro_batch;
            bool ready = true;
            if (a.kind == CRL_ACTION_FORWARD) {
                ready = s == 0 || done.count(name('F', s - 1, m));
            } else if (a.kind == CRL_ACTION_WEIGHT) {
                ready = done.count(name('I', s, m));
            } else {
                ready = done.count(name('F', s, m)) &&
                        (s + 1 == program->stages || done.count(name('I', s + 1, m)));
            }
            if (ready) {
                done.insert(name("FBIW"[a.kind], s, m));
                if (a.kind == CRL_ACTION_BACKWARD) {
                    done.insert(name('I', s, m));
                }
                at[p]++;
                moved = true;
            }
        }
    }
    for (int p = 0; p < program->positions; p++) {
        if (at[p] < program->position[p].count) {
            return false;
        }
    }
    return true;
}

} // namespace

TEST(IrProgramCheck, AcceptsSplitAndFusedBackwardsSideBySide) {
    EXPECT_EQ(check("0F0,0F1,0B0,0I1,0W1\n1F0,1I0,1W0,1F1,1B1").verdict, CRL_VERDICT_VALID);
    EXPECT_EQ(check("0F0,0F1\n1F0,1F1").verdict, CRL_VERDICT_VALID);
    EXPECT_EQ(check("1F0,1B0\n2F0,2B0\n0F0,0B0").verdict, CRL_VERDICT_VALID);
    EXPECT_EQ(check("0F0,1F0,1B0,0B0").verdict, CRL_VERDICT_VALID);
    EXPECT_EQ(check("0F0,2F0,2I0,2W0,0B0\n1F0,,,1B0,").verdict, CRL_VERDICT_VALID);
    EXPECT_EQ(check("0F0").verdict, CRL_VERDICT_VALID);
}

TEST(IrProgramCheck, NamesWhatIsMissing) {
    EXPECT_STREQ(check("0F0,0F1,0B0,0B1\n1F0,1F1,1B1").why, "1B0 is missing");
    EXPECT_STREQ(check("0F0,0B0\n1B0").why, "1F0 is missing");
    EXPECT_STREQ(check("0F0,0I0").why, "0W0 is missing");
    EXPECT_STREQ(check("0F0,0W0").why, "0I0 is missing");
    EXPECT_STREQ(check("0F0,0B0\n2F0,2B0").why, "1F0 is missing");
    EXPECT_STREQ(check("4000F4000").why, "0F0 is missing");
    EXPECT_EQ(check("4000F4000").verdict, CRL_VERDICT_INVALID);
}

TEST(IrProgramCheck, NamesWhatIsThereTwice) {
    crl_check_report report = check("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1,1F0");
    EXPECT_STREQ(report.why, "1F0 twice: cells 1 and 5 of position 1");
    EXPECT_EQ(report.position, 1);
    EXPECT_EQ(report.index, 4);
    EXPECT_STREQ(check("0F0,0B0,1F0\n1F0,1B0").why,
                 "1F0 twice: cell 3 of position 0 and cell 1 of position 1");
    EXPECT_STREQ(check("0F0,0B0,0I0").why, "0B0 beside 0I0, which is part of it");
    EXPECT_STREQ(check("0F0,0B0,0W0").why, "0B0 beside 0W0, which is part of it");
}

TEST(IrProgramCheck, RefusesNumbersOutOfRange) {
    const toy::program_ptr program = toy::parse("0F0,0F1,1F0\n");
    for (const int stage : {-1, 2, 1 << 28}) {
        program->position[0].action[1].stage = stage;
        const crl_check_report report = check(program);
        EXPECT_EQ(report.verdict, CRL_VERDICT_INVALID);
        EXPECT_EQ(report.index, 1);
        EXPECT_EQ(report.why, "cell 2 of position 0: stage " + std::to_string(stage) +
                                  " micro-batch 1 is out of range");
    }
}

TEST(IrProgramCheck, KeepsAStageOnOnePosition) {
    EXPECT_STREQ(check("0F0,0B0,1F1,1B1\n1F0,1B0,0F1,0B1").why,
                 "1F0 on position 1, but stage 1 is on position 0");
}

TEST(IrProgramCheck, ExplainsDeadlocksByTheirCycle) {
    crl_check_report report = check("0F0,0B0\n1F0,1B0\n2B0,2F0");
    EXPECT_EQ(report.verdict, CRL_VERDICT_DEADLOCK);
    EXPECT_STREQ(report.why, "position 2 waits at 2B0 for 2F0");
    EXPECT_EQ(report.position, 2);
    EXPECT_EQ(report.index, 0);
    report = check("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1");
    EXPECT_EQ(report.verdict, CRL_VERDICT_DEADLOCK);
    EXPECT_STREQ(report.why, "position 0 waits at 0B0 for 1B0; position 1 waits at 1F1 for 0F1");
    report = check("0F0,0W0,0I0");
    EXPECT_EQ(report.verdict, CRL_VERDICT_DEADLOCK);
    EXPECT_STREQ(report.why, "position 0 waits at 0W0 for 0I0");
}

TEST(IrProgramCheck, AgreesWithTheDefinitionOnRandomOrders) {
    const unsigned seed = 99;
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    int dead = 0, valid = 0;
    for (int n = 0; n < 4000; n++) {
        const int positions = 1 + (int)(random() % 3), stages = 1 + (int)(random() % 4);
        const int micro_batches = 1 + (int)(random() % 3);
        crl_program *out = nullptr;
        ASSERT_EQ(crl_program_create(&out, positions, stages, micro_batches), CRL_STATUS_OK);
        toy::program_ptr program(out);
        for (int s = 0; s < stages; s++) {
            const int p = (int)(random() % (unsigned)positions);
            for (int m = 0; m < micro_batches; m++) {
                const bool split = random() % 2;
                ASSERT_EQ(crl_program_append(out, p, CRL_ACTION_FORWARD, s, m), CRL_STATUS_OK);
                ASSERT_EQ(crl_program_append(out, p, split ? CRL_ACTION_INPUT : CRL_ACTION_BACKWARD,
                                             s, m),
                          CRL_STATUS_OK);
                if (split) {
                    ASSERT_EQ(crl_program_append(out, p, CRL_ACTION_WEIGHT, s, m), CRL_STATUS_OK);
                }
            }
        }
        for (int p = 0; p < positions; p++) {
            crl_action_list &list = out->position[p];
            std::stable_sort(list.action, list.action + list.count,
                             [](const crl_action &a, const crl_action &b) {
                                 const bool fa = a.kind == CRL_ACTION_FORWARD;
                                 const bool fb = b.kind == CRL_ACTION_FORWARD;
                                 return fa != fb ? fa : fa ? a.stage < b.stage : a.stage > b.stage;
                             });
            for (unsigned swaps = random() % 4; swaps > 0 && list.count > 1; swaps--) {
                const unsigned i = random() % ((unsigned)list.count - 1);
                std::swap(list.action[i], list.action[i + 1]);
            }
        }
        const bool ends = comes_to_its_end(out);
        const crl_check_report report = check(program);
        ASSERT_EQ(report.verdict, ends ? CRL_VERDICT_VALID : CRL_VERDICT_DEADLOCK)
            << toy::write(program, false) << report.why;
        (ends ? valid : dead)++;
    }
    EXPECT_GT(dead, 300);
    EXPECT_GT(valid, 300);
}

TEST(IrProgramCheck, GivesThePublishedVerdicts) {
    const std::string folder = CRL_SOURCE_DIR "/../shared/cases/schedules/";
    json_t *cases = nullptr;
    if (!std::ifstream(folder + "verdicts.json").good()) {
        GTEST_SKIP() << folder << " is not there";
    }
    ASSERT_EQ(crl_json_load(&cases, (folder + "verdicts.json").c_str()), CRL_STATUS_OK);
    EXPECT_GT(json_array_size(cases), 10u);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *item = json_array_get(cases, i);
        const char *file = json_string_value(json_object_get(item, "file"));
        const std::string expected = json_string_value(json_object_get(item, "expect"));
        std::ifstream in(folder + file);
        std::stringstream text;
        text << in.rdbuf();
        const crl_check_report report = check(text.str());
        const char *const names[] = {"valid", "invalid", "deadlock"};
        EXPECT_EQ(names[report.verdict], expected) << file << ": " << report.why;
    }
    json_decref(cases);
}

TEST(IrProgramCheck, RequireValidTurnsTheReportIntoAFailure) {
    EXPECT_EQ(crl_program_require_valid(toy::parse("0F0,0B0").get()), CRL_STATUS_OK);
    EXPECT_EQ(crl_program_require_valid(toy::parse("0B0,0F0").get()), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "schedule: deadlock: position 0 waits at 0B0 for 0F0");
    EXPECT_EQ(crl_program_require_valid(toy::parse("0F0,0F1,0B0").get()), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "schedule: 0B1 is missing");
}

TEST(IrProgramCheck, SaysWhenMemoryRanOut) {
    toy::program_ptr program = toy::parse("0F0,0B0\n1F0,1B0");
    for (int64_t n = 1;; n++) {
        crl_alloc_watch watch = {};
        crl_alloc_attach(&watch);
        watch.fail_at = n;
        const crl_check_report report = check(program);
        const bool done = watch.fail_at > 0;
        crl_alloc_attach(nullptr);
        EXPECT_EQ(watch.live_bytes, 0);
        EXPECT_EQ(report.verdict, done ? CRL_VERDICT_VALID : CRL_VERDICT_INVALID);
        if (done) {
            break;
        }
        EXPECT_EQ(std::string(report.why).rfind("not checked: ", 0), 0u) << report.why;
    }
}
