/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/ir/toy_model.h"

#include <jansson.h>

#include <map>
#include <regex>

#include "engine/base/alloc.h"
#include "engine/ir/simulate.h"
#include "engine/ir/timeline.h"
#include "tests/ir/svg_check.h"

namespace {

/* A program with its times, and what the two writers make of it. */
class IrTimeline : public testing::Test {
  protected:
    void time(toy::program_ptr taken, const std::vector<crl_stage_cost> &costs,
              crl_simulation_config with = {}) {
        crl_simulation_destroy(times);
        times = nullptr;
        program = std::move(taken);
        stage = costs;
        config = with;
        config.stage = stage.data();
        ASSERT_EQ(crl_simulate(&times, program.get(), &config), CRL_STATUS_OK)
            << crl_error_message();
    }
    ~IrTimeline() override { crl_simulation_destroy(times); }

    std::string written(crl_status (*writer)(const crl_timeline *, FILE *)) {
        const crl_timeline timeline = {"a & b", program.get(), &config, times};
        char *text = nullptr;
        size_t bytes = 0;
        FILE *out = open_memstream(&text, &bytes);
        EXPECT_EQ(writer(&timeline, out), CRL_STATUS_OK);
        fclose(out);
        const std::string result(text, bytes);
        free(text);
        return result;
    }

    toy::program_ptr program;
    std::vector<crl_stage_cost> stage;
    crl_simulation_config config = {};
    crl_simulation *times = nullptr;
};

const std::vector<crl_stage_cost> ones(2, crl_stage_cost{1, 1, 1});

toy::program_ptr two_stages() {
    return toy::parse("0F0,0F1,0B0,0B1\n1F0,1I0,1W0,1F1,1I1,1W1");
}

/* Positions x micro-batches, F and B of each in turn. */
toy::program_ptr many(int positions, int micro_batches) {
    crl_program *out = nullptr;
    EXPECT_EQ(crl_program_create(&out, positions, positions, micro_batches), CRL_STATUS_OK);
    for (int p = 0; p < positions; p++) {
        for (const crl_action_kind kind : {CRL_ACTION_FORWARD, CRL_ACTION_BACKWARD}) {
            for (int m = 0; m < micro_batches; m++) {
                EXPECT_EQ(crl_program_append(out, p, kind, p, m), CRL_STATUS_OK);
            }
        }
    }
    return toy::program_ptr(out);
}

} // namespace

TEST_F(IrTimeline, DrawsEveryActionInItsPlace) {
    time(two_stages(), ones);
    const std::string picture = written(crl_timeline_write_svg);
    EXPECT_EQ(svg::problem(picture), "") << picture;
    EXPECT_NE(picture.find("a &amp; b: 2 positions, 2 micro-batches, time 8, bubble"),
              std::string::npos)
        << picture;
    /* of each kind its actions, and a square of the legend */
    for (const auto &[style, actions] :
         std::map<std::string, size_t>{{"F0", 4}, {"B0", 2}, {"I0", 2}, {"W0", 2}}) {
        EXPECT_EQ(svg::count(picture, "<rect class=\"" + style + "\""), actions + 1) << style;
    }
    EXPECT_EQ(svg::count(picture, "class=\"row\""), 2u);
    EXPECT_NE(picture.find(">weight gradient<"), std::string::npos);
    /* the second forward of position 0 begins where the first ended */
    const std::regex forward("class=\"F0\" x=\"([0-9.]+)\" y=\"([0-9.]+)\" width=\"([0-9.]+)\"");
    std::vector<double> x;
    for (std::sregex_iterator i(picture.begin(), picture.end(), forward), end; i != end; ++i) {
        x.push_back(std::stod((*i)[1]));
    }
    ASSERT_EQ(x.size(), 5u);
    EXPECT_NEAR(x[1] - x[0], x[2] - x[0], 1e-9); /* 0F1 and 1F0 start at 1 */
    EXPECT_GT(x[1], x[0]);
}

TEST_F(IrTimeline, ShadesTellTheStagesOfAPosition) {
    time(toy::parse("0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0"),
         std::vector<crl_stage_cost>(4, crl_stage_cost{1, 1, 1}));
    const std::string picture = written(crl_timeline_write_svg);
    EXPECT_EQ(svg::count(picture, "<rect class=\"F0\""), 3u);
    EXPECT_EQ(svg::count(picture, "<rect class=\"F1\""), 3u);
    EXPECT_NE(picture.find("stages in order"), std::string::npos);
    time(toy::parse("0F0,1F0,2F0,2B0,1B0,0B0\n3F0,3B0"),
         std::vector<crl_stage_cost>(4, crl_stage_cost{1, 1, 1}));
    EXPECT_EQ(svg::count(written(crl_timeline_write_svg), "<rect class=\"F2\""), 2u);
    /* not by its number, but by its place on the position */
    time(toy::parse("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0"),
         std::vector<crl_stage_cost>(4, crl_stage_cost{1, 1, 1}));
    EXPECT_EQ(svg::count(written(crl_timeline_write_svg), "<rect class=\"F1\""), 3u);
}

TEST_F(IrTimeline, ALargeProgramMakesASmallPicture) {
    time(many(100, 2000), std::vector<crl_stage_cost>(100, crl_stage_cost{1, 1, 1}));
    const std::string picture = written(crl_timeline_write_svg);
    EXPECT_EQ(svg::problem(picture), "");
    EXPECT_LT(picture.size(), 4u << 20);
    EXPECT_EQ(svg::count(picture, "class=\"row\""), 64u);
    EXPECT_EQ(svg::count(picture, "class=\"on\""), 0u);
    EXPECT_NE(picture.find("(64 positions drawn)"), std::string::npos);
}

TEST_F(IrTimeline, NothingTakesNoPlace) {
    time(toy::parse("0F0,0B0"), {{0, 0, 0}});
    const std::string picture = written(crl_timeline_write_svg);
    EXPECT_EQ(svg::problem(picture), "");
    EXPECT_EQ(svg::count(picture, "<rect class=\"F0\""), 1u); /* the legend */
}

TEST_F(IrTimeline, TheTraceHasEveryActionAndItsArrow) {
    const int node[] = {0, 1};
    crl_simulation_config with = {nullptr, {0, 0}, {0.5, 0}, node};
    time(two_stages(), ones, with);
    const std::string text = written(crl_timeline_write_trace);
    json_error_t error;
    json_t *root = json_loadb(text.data(), text.size(), JSON_REJECT_DUPLICATES, &error);
    ASSERT_NE(root, nullptr) << error.text << text;
    std::map<std::string, int> phases;
    std::map<json_int_t, double> begun;
    size_t i = 0;
    json_t *event = nullptr;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event) {
        const std::string phase = json_string_value(json_object_get(event, "ph"));
        const std::string name = json_string_value(json_object_get(event, "name"));
        phases[phase]++;
        const double ts = json_number_value(json_object_get(event, "ts"));
        const json_int_t id = json_integer_value(json_object_get(event, "id"));
        if (name == "1I0") {
            EXPECT_EQ(ts, 2.5e6);
            EXPECT_EQ(json_number_value(json_object_get(event, "dur")), 1e6);
            EXPECT_EQ(json_integer_value(json_object_get(event, "pid")), 1);
            EXPECT_EQ(json_integer_value(json_object_get(event, "tid")), 1);
        }
        if (phase == "s") {
            EXPECT_TRUE(begun.emplace(id, ts).second) << id;
        } else if (phase == "f") {
            ASSERT_TRUE(begun.count(id));
            EXPECT_GT(ts, begun[id] + 0.5e6);
            EXPECT_STREQ(json_string_value(json_object_get(event, "bp")), "e");
        }
    }
    EXPECT_EQ(phases["X"], 10);
    EXPECT_EQ(phases["s"], 4);
    EXPECT_EQ(phases["f"], 4);
    EXPECT_EQ(phases["M"], 6); /* two nodes, two positions with a name and a place */
    json_decref(root);
}

TEST_F(IrTimeline, TheTraceShowsWaitingForMessages) {
    toy::graph_ptr graph = toy::chain(2);
    toy::plan_ptr plan = toy::even_plan(graph, 2, 2);
    toy::program_ptr inserted = toy::parse("0F0,0B0\n1F0,1B0");
    ASSERT_EQ(crl_program_add_messages(inserted.get(), plan.get(), 1, false), CRL_STATUS_OK);
    time(std::move(inserted), ones, {nullptr, {5, 0}});
    const std::string text = written(crl_timeline_write_trace);
    EXPECT_NE(text.find("\"1WAIT_RECV_F0\""), std::string::npos) << text;
    EXPECT_EQ(text.find("\"1RECV_F0\""), std::string::npos) << text;
}

TEST_F(IrTimeline, SurvivesEveryFailedAllocation) {
    time(two_stages(), ones);
    const crl_timeline timeline = {"x", program.get(), &config, times};
    FILE *out = fopen("/dev/null", "w");
    for (auto *writer : {crl_timeline_write_svg, crl_timeline_write_trace}) {
        for (int64_t n = 1;; n++) {
            crl_alloc_watch watch = {};
            crl_alloc_attach(&watch);
            watch.fail_at = n;
            const crl_status status = writer(&timeline, out);
            const bool done = watch.fail_at > 0;
            crl_alloc_attach(nullptr);
            EXPECT_EQ(watch.live_bytes, 0);
            EXPECT_EQ(status, done ? CRL_STATUS_OK : CRL_STATUS_NOMEM);
            if (done) {
                break;
            }
        }
    }
    fclose(out);
}
