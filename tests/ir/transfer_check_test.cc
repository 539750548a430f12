/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/ir/transfer_check.h"

#include "tests/ir/toy_model.h"

#include <fstream>
#include <random>

#include "engine/base/alloc.h"
#include "engine/base/json.h"

namespace {

using ranks = std::vector<std::vector<crl_transfer>>;

crl_check_report check(const ranks &programs, bool rendezvous) {
    std::vector<const crl_transfer *> lists;
    std::vector<int> counts;
    for (const auto &program : programs) {
        lists.push_back(program.data());
        counts.push_back((int)program.size());
    }
    crl_check_report report = {};
    EXPECT_EQ(
        crl_transfers_check(&report, (int)programs.size(), lists.data(), counts.data(), rendezvous),
        CRL_STATUS_OK);
    return report;
}

crl_transfer send(int peer, int batch, const char *tag = "x") {
    return {true, peer, tag, batch};
}

crl_transfer recv(int peer, int batch, const char *tag = "x") {
    return {false, peer, tag, batch};
}

crl_transfer from_json(const json_t *item, int batch) {
    return {std::string(json_string_value(json_array_get(item, 0))) == "S",
            (int)json_integer_value(json_array_get(item, 1)),
            json_string_value(json_array_get(item, 2)), batch};
}

} // namespace

TEST(IrTransferCheck, BlockingSendsWaitUnderRendezvousOnly) {
    const ranks both_send = {{send(1, 0), recv(1, 1)}, {send(0, 0), recv(0, 1)}};
    EXPECT_EQ(check(both_send, true).verdict, CRL_VERDICT_DEADLOCK);
    EXPECT_STREQ(check(both_send, true).why, "rank 0 waits at item 0, send 'x' to rank 1, which "
                                             "does not reach its counterpart");
    EXPECT_EQ(check(both_send, false).verdict, CRL_VERDICT_VALID);
    const ranks together = {{send(1, 0), recv(1, 0)}, {send(0, 0), recv(0, 0)}};
    EXPECT_EQ(check(together, true).verdict, CRL_VERDICT_VALID);
    const ranks one_together = {{send(1, 0), recv(1, 0)}, {send(0, 0), recv(0, 1)}};
    EXPECT_EQ(check(one_together, true).verdict, CRL_VERDICT_VALID);
}

TEST(IrTransferCheck, TagsAndOrderDecideWhoMeets) {
    const ranks crossed = {{send(1, 0, "a"), send(1, 1, "b")}, {recv(0, 0, "b"), recv(0, 1, "a")}};
    EXPECT_EQ(check(crossed, true).verdict, CRL_VERDICT_DEADLOCK);
    EXPECT_EQ(check(crossed, false).verdict, CRL_VERDICT_VALID);
    const ranks lonely = {{}, {recv(0, 0)}};
    EXPECT_EQ(check(lonely, false).verdict, CRL_VERDICT_DEADLOCK);
    EXPECT_STREQ(check(lonely, false).why,
                 "rank 1 waits at item 0, receive 'x' from rank 0, which has no counterpart");
    const ranks unheard = {{send(1, 0)}, {}};
    EXPECT_EQ(check(unheard, true).verdict, CRL_VERDICT_DEADLOCK);
    EXPECT_EQ(check(unheard, false).verdict, CRL_VERDICT_VALID);
    const ranks own = {{send(0, 0), recv(0, 0)}};
    EXPECT_EQ(check(own, true).verdict, CRL_VERDICT_VALID);
}

TEST(IrTransferCheck, RefusesNonsense) {
    EXPECT_EQ(check({{send(2, 0)}, {}}, true).verdict, CRL_VERDICT_INVALID);
    EXPECT_STREQ(check({{send(2, 0)}, {}}, true).why, "rank 0 item 0: peer 2 is outside the job");
    EXPECT_EQ(check({{send(0, 1), recv(0, 0)}}, true).verdict, CRL_VERDICT_INVALID);
    EXPECT_EQ(check({}, true).verdict, CRL_VERDICT_VALID);
}

TEST(IrTransferCheck, GivesThePublishedVerdicts) {
    const std::string path = CRL_SOURCE_DIR "/../shared/cases/schedules/comm_vectors.json";
    json_t *cases = nullptr;
    if (!std::ifstream(path).good()) {
        GTEST_SKIP() << path << " is not there";
    }
    ASSERT_EQ(crl_json_load(&cases, path.c_str()), CRL_STATUS_OK);
    EXPECT_GT(json_array_size(cases), 3u);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *item = json_array_get(cases, i);
        const json_t *programs = json_object_get(item, "programs");
        ranks list(json_array_size(programs));
        for (size_t r = 0; r < list.size(); r++) {
            const json_t *program = json_array_get(programs, r);
            for (size_t k = 0; k < json_array_size(program); k++) {
                const json_t *part = json_array_get(program, k);
                if (std::string(json_string_value(json_array_get(part, 0))) != "BATCH") {
                    list[r].push_back(from_json(part, (int)k));
                    continue;
                }
                for (size_t b = 1; b < json_array_size(part); b++) {
                    list[r].push_back(from_json(json_array_get(part, b), (int)k));
                }
            }
        }
        for (const char *mode : {"rendezvous", "eager"}) {
            const std::string expected = json_string_value(json_object_get(item, mode));
            const crl_check_report report = check(list, mode[0] == 'r');
            EXPECT_EQ(report.verdict, expected == "ok" ? CRL_VERDICT_VALID : CRL_VERDICT_DEADLOCK)
                << json_string_value(json_object_get(item, "name")) << " " << mode << report.why;
        }
    }
    json_decref(cases);
}
