/* SPDX-License-Identifier: Apache-2.0 */
/* Every registered schedule, over the grid of its sizes. */
#include "tests/ir/toy_model.h"

#include <map>

#include "engine/ir/simulate.h"

#define CRL_SCHEDULE(name) extern "C" const crl_schedule crl_schedule_##name;
#include "schedules/schedules.def"
#undef CRL_SCHEDULE

namespace {

const crl_schedule *const schedules[] = {
#define CRL_SCHEDULE(name) &crl_schedule_##name,
#include "schedules/schedules.def"
#undef CRL_SCHEDULE
};

class SchedulesConformance : public testing::TestWithParam<const crl_schedule *> {
  protected:
    const crl_schedule &schedule = *GetParam();

    std::vector<int> virtual_widths() const {
        std::vector<int> widths;
        for (int v = schedule.least_virtual; v <= (schedule.most_virtual ? schedule.most_virtual : 4); v++) {
            widths.push_back(v);
        }
        return widths;
    }

    template <typename Visit> void over_grid(int positions, int micro_batches, Visit visit) const {
        for (int v : virtual_widths()) {
            for (int p = 1; p <= positions; p++) {
                for (int m = 1; m <= micro_batches; m++) {
                    visit(crl_schedule_request{p, p * v, m});
                }
            }
        }
    }

    toy::program_ptr build(const crl_schedule_request &request) const {
        crl_program *out = nullptr;
        EXPECT_EQ(schedule.build(&out, &request), CRL_STATUS_OK) << crl_error_message();
        return toy::program_ptr(out);
    }
};

std::string label(const crl_schedule_request &request) {
    return "P=" + std::to_string(request.positions) + " S=" + std::to_string(request.stages) +
           " M=" + std::to_string(request.micro_batches);
}

} // namespace

TEST_P(SchedulesConformance, IsCompleteAndEnds) {
    over_grid(16, 64, [&](const crl_schedule_request &request) {
        toy::program_ptr program = build(request);
        crl_check_report report;
        crl_program_check(program.get(), &report);
        EXPECT_EQ(report.verdict, CRL_VERDICT_VALID) << label(request) << ": " << report.why;
    });
}

TEST_P(SchedulesConformance, BackwardsOfAStageAscend) {
    over_grid(16, 64, [&](const crl_schedule_request &request) {
        toy::program_ptr program = build(request);
        std::map<std::pair<int, int>, int> next;
        for (int p = 0; p < program->positions; p++) {
            for (int i = 0; i < program->position[p].count; i++) {
                const crl_action &action = program->position[p].action[i];
                ASSERT_EQ(crl_schedule_position(&schedule, &request, action.stage), p) << label(request);
                ASSERT_EQ(action.micro_batch, (next[{action.stage, (int)action.kind}]++))
                    << label(request);
            }
        }
    });
}

TEST_P(SchedulesConformance, KeepsItsDeclaredBubble) {
    over_grid(16, 64, [&](const crl_schedule_request &request) {
        toy::program_ptr program = build(request);
        std::vector<crl_stage_cost> times((size_t)request.stages, crl_stage_cost{1, 1, 1, 1, 1});
        crl_simulation_config config = {};
        config.stage = times.data();
        crl_simulation *simulation = nullptr;
        ASSERT_EQ(crl_simulate(&simulation, program.get(), &config), CRL_STATUS_OK)
            << crl_error_message();
        const double declared = schedule.bubble(&request);
        EXPECT_LE(simulation->bubble, declared + 1e-9) << label(request);
        if (schedule.exact && schedule.exact(&request)) {
            EXPECT_NEAR(simulation->bubble, declared, 1e-9) << label(request);
        }
        crl_simulation_destroy(simulation);
    });
}

TEST_P(SchedulesConformance, HoldsExactlyItsDeclaredPeak) {
    over_grid(16, 64, [&](const crl_schedule_request &request) {
        toy::program_ptr program = build(request);
        for (int s = 0; s < request.stages; s++) {
            ASSERT_EQ(crl_program_peak_activations(program.get(), s, true),
                      schedule.peak_activations(&request, s))
                << label(request) << " stage " << s;
        }
    });
}

TEST_P(SchedulesConformance, MessagesCannotDeadlock) {
    for (int v : virtual_widths()) {
        for (int p = 1; p * v <= 16; p++) {
            toy::graph_ptr graph = toy::chain(p * v);
            toy::plan_ptr plan = toy::even_plan(graph, p, p * v);
            for (int m = 1; m <= 64; m++) {
                const crl_schedule_request request = {p, p * v, m};
                toy::program_ptr program = build(request);
                ASSERT_EQ(crl_program_add_messages(program.get(), plan.get(), 1, false),
                          CRL_STATUS_OK)
                    << label(request) << crl_error_message();
                crl_check_report report;
                crl_program_check(program.get(), &report);
                ASSERT_EQ(report.verdict, CRL_VERDICT_VALID) << label(request) << report.why;
            }
        }
    }
}

TEST_P(SchedulesConformance, RefusesSizesThatDoNotSuit) {
    const int stages = 4 * schedule.least_virtual;
    const int empty[] = {1, 1, 0, 1};
    const crl_schedule_request bad[] = {{0, stages, 4},
                                        {4, 0, 4},
                                        {4, stages, 0},
                                        {4, 6, 4},
                                        {4, stages, 70000},
                                        {4, stages, 4, empty},
                                        {4, stages, 4, nullptr, -1},
                                        {4, stages, 4, nullptr, 0, nullptr, -1}};
    for (const crl_schedule_request &request : bad) {
        crl_program *out = nullptr;
        EXPECT_EQ(schedule.build(&out, &request), CRL_STATUS_INVALID) << label(request);
        EXPECT_EQ(out, nullptr);
    }
}

INSTANTIATE_TEST_SUITE_P(All, SchedulesConformance, testing::ValuesIn(schedules),
                         [](const testing::TestParamInfo<const crl_schedule *> &info) {
                             return "of_" + std::string(info.param->name);
                         });
