// SPDX-License-Identifier: Apache-2.0
// Routes: both ends of every message know the same channel, on which both post in the same order.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "engine/run/routes.h"
#include "tests/layouts/job.h"

namespace {

using job::Schedule;
using job::Sets;
using job::Width;

// When a rank posts the messages of a tag, by program: training, evaluation, exchange.
using Posts = std::map<int, std::pair<int, int>>;

void AddProgram(Posts *posts, const crl_program *program, int row, int first_tag, int which) {
    const crl_action_list &list = program->position[row];
    for (int i = 0; i < list.count; i++) {
        const crl_action &action = list.action[i];
        if (action.kind == CRL_ACTION_SEND || action.kind == CRL_ACTION_RECV) {
            (*posts)[first_tag + action.message] = {which, i};
        }
    }
}

class LayoutsRoutes : public testing::Test {
  protected:
    // The routes of all ranks agree, and are ordered on every channel.
    void ExpectAgreement(const Sets &sets) {
        const job::Settings settings(sets);
        ASSERT_EQ(settings.status(), CRL_STATUS_OK) << crl_error_message();
        crl_layout *layout = nullptr;
        ASSERT_EQ(crl_layout_create(&layout, settings.get(), crl_builtins(), nullptr),
                  CRL_STATUS_OK)
            << crl_error_message();
        const int ranks = crl_mesh_rows(&layout->mesh) * layout->mesh.data;
        std::map<std::tuple<int, int, int>, std::vector<int>> seen; // by from, to, tag: channels
        std::map<std::tuple<int, int, int>, std::vector<std::array<int, 5>>> on_channel;
        for (int rank = 0; rank < ranks; rank++) {
            crl_rank *r = nullptr;
            crl_routes routes = {};
            ASSERT_EQ(crl_rank_create(&r, layout, rank, true, nullptr), CRL_STATUS_OK)
                << crl_error_message();
            ASSERT_EQ(crl_routes_create(&routes, r), CRL_STATUS_OK) << crl_error_message();
            Posts posts;
            const int row = crl_mesh_row(&layout->mesh, r->at.position, r->at.replica);
            AddProgram(&posts, r->program, row, 0, 0);
            AddProgram(&posts, r->evaluate_program, row, r->program->messages, 1);
            for (int i = 0; i < routes.count; i++) {
                const crl_route &route = routes.route[i];
                ASSERT_TRUE(route.from == rank || route.to == rank);
                const auto post = posts.count(route.tag) ? posts[route.tag] : std::make_pair(2, i);
                seen[{route.from, route.to, route.tag}].push_back(route.channel);
                on_channel[{route.from, route.to, route.channel}].push_back(
                    {post.first, post.second, route.tag, route.from == rank, 0});
            }
            crl_routes_fini(&routes);
            crl_rank_destroy(r);
        }
        for (const auto &[message, channels] : seen) {
            ASSERT_EQ(channels.size(), 2u) << sets.Text() << ": both ends, once each";
            ASSERT_EQ(channels[0], channels[1]) << sets.Text();
        }
        for (auto &[channel, posts] : on_channel) {
            std::vector<int> tags[2];
            std::sort(posts.begin(), posts.end());
            for (const auto &post : posts) {
                tags[post[3]].push_back(post[2]);
            }
            ASSERT_EQ(tags[0], tags[1]) << sets.Text();
        }
        messages_ = (int)seen.size();
        crl_layout_destroy(layout);
    }

    Scratch scratch_;
    int messages_ = 0;
};

} // namespace

TEST_F(LayoutsRoutes, BothEndsAgreeOnEveryChannel) {
    for (const crl_schedule *schedule : job::Schedules()) {
        ExpectAgreement(job::Gpt(scratch_) + Width(2, 2) + Schedule(schedule->name));
        EXPECT_GT(messages_, 0);
    }
    ExpectAgreement(job::Gpt(scratch_) + Width(4, 1));
    ExpectAgreement(job::Gpt(scratch_) + Sets{{"parallel.replicas", "[3, 1]"}});
    ExpectAgreement(job::Gpt(scratch_) + Width(1, 1));
    EXPECT_EQ(messages_, 0);
}
