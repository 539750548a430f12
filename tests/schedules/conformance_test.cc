/* SPDX-License-Identifier: Apache-2.0 */
/* Every registered schedule, over the grid of its sizes. */
#include "tests/schedules/schedules.h"

#include "engine/base/alloc.h"

#include <map>

using namespace schedules;

namespace {

class SchedulesConformance : public testing::TestWithParam<const crl_schedule *> {
  protected:
    const crl_schedule &schedule = *GetParam();

    std::vector<int> virtual_widths() const {
        std::vector<int> widths;
        for (int v = schedule.least_virtual;
             v <= (schedule.most_virtual ? schedule.most_virtual : 4); v++) {
            widths.push_back(v);
        }
        return widths;
    }

    /* Valid, and within what is declared; dealt out to replicas if there are any. */
    void expect_as_declared(const crl_schedule_request &request) const {
        toy::program_ptr program = build(schedule, request);
        ASSERT_TRUE(program);
        if (request.widths) {
            deal(program.get(), request);
        }
        simulation_ptr simulation = simulate(program.get(), unit_cost());
        ASSERT_TRUE(simulation) << label(request);
        const bool exact = schedule.exact && schedule.exact(&request);
        const double bubble = schedule.bubble(&request);
        EXPECT_LE(simulation->bubble, bubble + 1e-9) << label(request);
        EXPECT_TRUE(!exact || simulation->bubble > bubble - 1e-9)
            << label(request) << ": " << simulation->bubble << ", declared " << bubble;
        const std::vector<int> held = peaks(program.get());
        for (int s = 0; s < request.stages; s++) {
            const int declared = schedule.peak_activations(&request, s);
            EXPECT_LE(held[(size_t)s], declared) << label(request) << " stage " << s;
            EXPECT_TRUE(!exact || held[(size_t)s] == declared)
                << label(request) << " stage " << s << ": " << held[(size_t)s] << ", declared "
                << declared;
        }
    }
};

/* Widths by position, repeated. */
const std::vector<std::vector<int>> width_patterns = {{2},    {2, 1}, {1, 2},
                                                      {3, 1}, {3, 2}, {1, 4, 2}};

} // namespace

TEST_P(SchedulesConformance, EndsWithinItsBubbleAndPeak) {
    for (int v : virtual_widths()) {
        for (int p = 1; p <= 16; p++) {
            for (int m = 1; m <= 64; m++) {
                expect_as_declared({p, p * v, m});
                if (HasFailure()) {
                    return;
                }
            }
        }
    }
}

TEST_P(SchedulesConformance, EndsWithinItsBubbleAndPeakOnReplicas) {
    for (const std::vector<int> &pattern : width_patterns) {
        for (int p : {1, 2, 3, 4, 5, 8, 16}) {
            std::vector<int> widths;
            for (int i = 0; i < p; i++) {
                widths.push_back(pattern[(size_t)i % pattern.size()]);
            }
            for (int m : {1, 2, 3, 4, 5, 6, 8, 11, 12, 24, 31, 64}) {
                expect_as_declared({p, p * schedule.least_virtual, m, widths.data()});
                if (HasFailure()) {
                    return;
                }
            }
        }
    }
}

TEST_P(SchedulesConformance, WeightHalvesOfAStageAscendOnItsPosition) {
    for (int v : virtual_widths()) {
        for (int p = 1; p <= 16; p++) {
            for (int m : {1, 2, 3, 4, 7, 8, 15, 16, 33, 64}) {
                const crl_schedule_request request = {p, p * v, m};
                toy::program_ptr program = build(schedule, request);
                std::map<int, int> next;
                for (int q = 0; q < program->positions; q++) {
                    for (int i = 0; i < program->position[q].count; i++) {
                        const crl_action &action = program->position[q].action[i];
                        ASSERT_EQ(crl_schedule_position(&schedule, &request, action.stage), q)
                            << label(request);
                        if (action.kind == CRL_ACTION_BACKWARD ||
                            action.kind == CRL_ACTION_WEIGHT) {
                            ASSERT_EQ(action.micro_batch, next[action.stage]++) << label(request);
                        }
                    }
                }
            }
        }
    }
}

TEST_P(SchedulesConformance, MessagesCannotDeadlock) {
    for (int v : virtual_widths()) {
        for (int p = 1; p * v <= 16; p++) {
            toy::graph_ptr graph = toy::chain(p * v);
            std::vector<int> first(1, 0), position;
            crl_schedule_request request = {p, p * v, 1};
            for (int s = 0; s < p * v; s++) {
                position.push_back(crl_schedule_position(&schedule, &request, s));
                if (s > 0) {
                    first.push_back(s + 1);
                }
            }
            toy::plan_ptr plan = toy::plan(graph, p, first, position);
            for (int m : {1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 24, 31, 33, 64}) {
                request.micro_batches = m;
                toy::program_ptr program = build(schedule, request);
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

TEST_P(SchedulesConformance, GivesEverythingBackWhenMemoryRunsOut) {
    const crl_schedule_request request = {3, 3 * schedule.least_virtual, 7};
    crl_status status = CRL_STATUS_NOMEM;
    for (int64_t at = 1; status != CRL_STATUS_OK; at++) {
        crl_program *out = nullptr;
        crl_alloc_watch watch = {};
        watch.fail_at = at;
        crl_alloc_watch *const before = crl_alloc_attach(&watch);
        status = schedule.build(&out, &request);
        const bool failed = watch.fail_at <= 0;
        crl_program_destroy(out);
        crl_alloc_attach(before);
        ASSERT_EQ(status, failed ? CRL_STATUS_NOMEM : CRL_STATUS_OK) << "allocation " << at;
        ASSERT_EQ(watch.live_bytes, 0) << "allocation " << at;
    }
}

INSTANTIATE_TEST_SUITE_P(All, SchedulesConformance, testing::ValuesIn(all),
                         [](const testing::TestParamInfo<const crl_schedule *> &info) {
                             std::string name = "of_" + std::string(info.param->name);
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });
