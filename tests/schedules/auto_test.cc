/* SPDX-License-Identifier: Apache-2.0 */
/* auto against everything that is possible where that can be tried, and against 1F1B elsewhere. */
#include "tests/schedules/schedules.h"

#include <array>
#include <random>

using namespace schedules;

namespace {

struct sample {
    crl_schedule_request request = {};
    std::vector<crl_stage_cost> cost;
    std::vector<int> widths;
};

int below(std::mt19937 *random, int n) {
    return (int)((*random)() % (unsigned)n);
}

/* Small whole numbers as costs. */
sample draw(std::mt19937 *random, int positions, int each, int micro_batches) {
    sample out;
    out.request = {positions, positions * each, micro_batches};
    for (int s = 0; s < positions * each; s++) {
        crl_stage_cost cost = {};
        cost.forward_s = 1 + below(random, 4);
        cost.input_s = 1 + below(random, 4);
        cost.weight_s = below(random, 5);
        cost.kept_bytes = 2 + below(random, 2);
        cost.held_bytes = 1 + below(random, 2);
        out.cost.push_back(cost);
    }
    out.request.message_s = below(random, 3) == 0 ? 1 : 0;
    return out;
}

simulation_ptr timed(const toy::program_ptr &program, const sample &item) {
    crl_simulation_config config = {};
    config.stage = item.cost.data();
    config.link.latency_s = item.request.message_s;
    crl_simulation *out = nullptr;
    EXPECT_EQ(crl_simulate(&out, program.get(), &config), CRL_STATUS_OK) << crl_error_message();
    return simulation_ptr(out);
}

double peak_bytes(const crl_simulation *simulation, int lists) {
    double most = 0;
    for (int p = 0; p < lists; p++) {
        most = std::max(most, simulation->position[p].peak_bytes);
    }
    return most;
}

/* All orders of a chain of stages, one to a position: actions are begun in the order of time, each
 * as early as it can. Finds whether any is shorter than what is known. */
class exhaustive {
  public:
    exhaustive(const sample &item, double known) : item(item), best(known) {
        const size_t stages = item.cost.size();
        const size_t M = (size_t)item.request.micro_batches;
        done.assign(stages, {0, 0, 0});
        free.assign(stages, 0);
        used.assign(stages, 0);
        end_f.assign(stages, std::vector<double>(M, 0));
        end_i.assign(stages, std::vector<double>(M, 0));
    }

    /* The least makespan; `known` if no order beats it. */
    double search() {
        visit(0, 0);
        return best;
    }
    bool gave_up() const { return visits > most_visits; }

  private:
    const sample &item;
    double best;
    std::vector<std::array<int, 3>> done; /* (S) F, I, W begun */
    std::vector<double> free, used;
    std::vector<std::vector<double>> end_f, end_i;
    int64_t visits = 0;
    static constexpr int64_t most_visits = 400000;

    double left(size_t s) const {
        const crl_stage_cost &c = item.cost[s];
        const int M = item.request.micro_batches;
        return (M - done[s][0]) * c.forward_s + (M - done[s][1]) * c.input_s +
               (M - done[s][2]) * c.weight_s;
    }

    /* When the next action of a kind could begin; negative: not yet known, or no room. */
    double begin(size_t s, int kind) const {
        const crl_stage_cost &c = item.cost[s];
        const auto m = (size_t)done[s][(size_t)kind];
        const double growth[] = {c.kept_bytes, c.held_bytes - c.kept_bytes, -c.held_bytes};
        double ready = free[s];
        if ((int)m == item.request.micro_batches ||
            (kind > 0 && done[s][(size_t)kind - 1] <= (int)m) ||
            used[s] + growth[kind] > item.request.memory_limit_bytes) {
            return -1;
        }
        if (kind == 0 && s > 0) {
            ready = done[s - 1][0] > (int)m
                        ? std::max(ready, end_f[s - 1][m] + item.request.message_s)
                        : -1;
        }
        if (kind == 1 && s + 1 < done.size()) {
            ready = done[s + 1][1] > (int)m
                        ? std::max(ready, end_i[s + 1][m] + item.request.message_s)
                        : -1;
        }
        return ready;
    }

    void visit(double now, int begun) {
        double makespan = 0;
        if (++visits > most_visits) {
            return;
        }
        for (size_t s = 0; s < done.size(); s++) {
            makespan = std::max(makespan, std::max(free[s], left(s) > 0 ? now : 0) + left(s));
        }
        if (makespan >= best - 1e-9) {
            return;
        }
        if (begun == 3 * (int)done.size() * item.request.micro_batches) {
            best = makespan;
            return;
        }
        for (size_t s = 0; s < done.size(); s++) {
            for (int kind = 0; kind < 3; kind++) {
                const double start = begin(s, kind);
                if (start >= now) {
                    follow(s, kind, start, begun);
                }
            }
        }
    }

    void follow(size_t s, int kind, double start, int begun) {
        const crl_stage_cost &c = item.cost[s];
        const double duration[] = {c.forward_s, c.input_s, c.weight_s};
        const double growth[] = {c.kept_bytes, c.held_bytes - c.kept_bytes, -c.held_bytes};
        const auto m = (size_t)done[s][(size_t)kind];
        const double free_before = free[s];
        free[s] = start + duration[kind];
        used[s] += growth[kind];
        done[s][(size_t)kind]++;
        if (kind < 2) {
            (kind == 0 ? end_f : end_i)[s][m] = free[s];
        }
        visit(start, begun + 1);
        free[s] = free_before;
        used[s] -= growth[kind];
        done[s][(size_t)kind]--;
    }
};

} // namespace

TEST(SchedulesAuto, ReachesTheOptimumWhereItCanBeFound) {
    int exact = 0, tried = 0;
    double worst = 0;
    for (int seed = 0; seed < 400; seed++) {
        std::mt19937 random((unsigned)seed);
        const int positions = 1 + below(&random, 3), micro_batches = 1 + below(&random, 3);
        sample item = draw(&random, positions, 1, micro_batches);
        item.request.cost = item.cost.data();
        item.request.memory_limit_bytes = 3 + below(&random, 8);
        toy::program_ptr program = build(crl_schedule_auto, item.request);
        simulation_ptr simulation = timed(program, item);
        EXPECT_LE(peak_bytes(simulation.get(), positions), item.request.memory_limit_bytes);
        exhaustive all(item, simulation->makespan_s + 1); /* so it finds what is as good, too */
        const double least = all.search();
        if (all.gave_up()) {
            continue;
        }
        ASSERT_LE(least, simulation->makespan_s + 1e-9) << "seed " << seed;
        tried++;
        exact += simulation->makespan_s < least + 1e-9;
        worst = std::max(worst, simulation->makespan_s / least - 1);
        EXPECT_LE(simulation->makespan_s, least * 1.08)
            << "seed " << seed << " " << label(item.request);
    }
    printf("optimum reached in %d of %d, at most %.1f %% over\n", exact, tried, 100 * worst);
    EXPECT_GE(tried, 300);
    EXPECT_GE(exact, tried * 95 / 100);
}

TEST(SchedulesAuto, IsNeverWorseThanKnownOnesWithinTheirMemory) {
    const crl_schedule *const chain[] = {&crl_schedule_1f1b, &crl_schedule_zb_h1,
                                         &crl_schedule_zb_h2};
    const crl_schedule *const folded[] = {&crl_schedule_zb_v, &crl_schedule_v_half,
                                          &crl_schedule_dualpipe_v};
    int better = 0;
    for (int seed = 0; seed < 60; seed++) {
        std::mt19937 random((unsigned)seed);
        const int positions = 2 + below(&random, 5), each = 1 + below(&random, 2);
        sample item = draw(&random, positions, each, 1 + below(&random, 14));
        for (const crl_schedule *known : each == 1 ? chain : folded) {
            item.request.cost = nullptr;
            item.request.memory_limit_bytes = 0;
            simulation_ptr other = timed(build(*known, item.request), item);
            item.request.cost = item.cost.data();
            item.request.memory_limit_bytes = peak_bytes(other.get(), positions);
            crl_program *out = nullptr;
            if (crl_schedule_auto.build(&out, &item.request) == CRL_STATUS_UNSUPPORTED) {
                continue; /* room for one at a time is less than it needs to be safe */
            }
            toy::program_ptr program(out);
            simulation_ptr made = timed(program, item);
            EXPECT_LE(made->makespan_s, other->makespan_s + 1e-9)
                << known->name << " seed " << seed << " " << label(item.request);
            EXPECT_LE(peak_bytes(made.get(), positions), item.request.memory_limit_bytes + 1e-9);
            better += made->makespan_s < other->makespan_s - 1e-9;
        }
    }
    EXPECT_GT(better, 60);
}

TEST(SchedulesAuto, KeepsItsDeclarationsUnderAnyCosts) {
    for (int seed = 0; seed < 120; seed++) {
        std::mt19937 random((unsigned)seed);
        const int positions = 1 + below(&random, 5), each = 1 + below(&random, 2);
        sample item = draw(&random, positions, each, 1 + below(&random, 12));
        item.request.cost = item.cost.data();
        item.request.memory_limit_bytes = 12 + below(&random, 20);
        for (int p = 0; p < positions; p++) {
            item.widths.push_back(1 + below(&random, 3));
        }
        item.request.widths = below(&random, 2) ? item.widths.data() : nullptr;
        toy::program_ptr program = build(crl_schedule_auto, item.request);
        if (item.request.widths) {
            deal(program.get(), item.request);
        }
        const std::vector<int> held = peaks(program.get());
        for (int s = 0; s < item.request.stages; s++) {
            EXPECT_LE(held[(size_t)s], crl_schedule_auto.peak_activations(&item.request, s))
                << "seed " << seed << " " << label(item.request) << " stage " << s;
        }
        simulation_ptr made = timed(program, item);
        EXPECT_LE(peak_bytes(made.get(), program->positions), item.request.memory_limit_bytes)
            << "seed " << seed << " " << label(item.request);
        EXPECT_LE(simulate(program.get(), unit_cost())->bubble,
                  crl_schedule_auto.bubble(&item.request) + 1e-9)
            << "seed " << seed << " " << label(item.request);
    }
}

TEST(SchedulesAuto, SaysTheLeastMemoryThatWouldDo) {
    std::vector<crl_stage_cost> cost(8, crl_stage_cost{1, 1, 1, 100, 40});
    cost[2].held_bytes = 130; /* position 2 also has stage 5: 100 + 100 + 30 */
    crl_schedule_request request = {4, 8, 6};
    request.cost = cost.data();
    request.memory_limit_bytes = 229;
    crl_program *out = nullptr;
    ASSERT_EQ(crl_schedule_auto.build(&out, &request), CRL_STATUS_UNSUPPORTED);
    EXPECT_STREQ(crl_error_message(), "auto: memory limit is 229 bytes, expected 230 or more: what "
                                      "one micro-batch needs on position 2");
    request.memory_limit_bytes = 230;
    toy::program_ptr program = build(crl_schedule_auto, request);
    EXPECT_EQ(crl_program_require_valid(program.get()), CRL_STATUS_OK) << crl_error_message();
}

TEST(SchedulesAuto, TheSameRequestGivesTheSameProgram) {
    std::mt19937 random(7);
    sample item = draw(&random, 4, 2, 9);
    item.request.cost = item.cost.data();
    EXPECT_EQ(toy::write(build(crl_schedule_auto, item.request), false),
              toy::write(build(crl_schedule_auto, item.request), false));
}

TEST(SchedulesAuto, ReplicasWorkAtOnce) {
    const std::vector<int> widths = {3, 1};
    std::vector<crl_stage_cost> cost(2, crl_stage_cost{3, 3, 3, 1, 1});
    cost[1] = crl_stage_cost{1, 1, 1, 1, 1}; /* as fast as the three together */
    crl_schedule_request request = {2, 2, 24};
    request.widths = widths.data();
    request.cost = cost.data();
    request.memory_limit_bytes = 6;
    toy::program_ptr program = build(crl_schedule_auto, request);
    deal(program.get(), request);
    crl_simulation_config config = {};
    config.stage = cost.data();
    crl_simulation *out = nullptr;
    ASSERT_EQ(crl_simulate(&out, program.get(), &config), CRL_STATUS_OK) << crl_error_message();
    simulation_ptr simulation(out);
    /* 72 of work on the second, 3 before it begins, 3 and its W after its last I at most */
    EXPECT_LE(simulation->makespan_s, 72 + 3 + 6);
}
