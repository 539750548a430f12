/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/partition/partition_case.h"

namespace {

struct manual_case : partition_case {
    manual_case() {
        time = {1, 2, 3, 4, 5};
        boundary = {1, 1, 20, 1, 1};
        names = {"embed", "h0", "h1", "3", "head"};
        stages = 3;
    }
    crl_status cut(crl_partition *out, std::vector<const char *> at) {
        cuts = std::move(at);
        const crl_partition_request r = request();
        return crl_partitioner_manual.cut(out, &r);
    }
    std::string failure(std::vector<const char *> at) {
        crl_partition out = {};
        EXPECT_EQ(cut(&out, std::move(at)), CRL_STATUS_INVALID);
        return crl_error_message();
    }
};

} // namespace

TEST(PartitionManual, TakesNamesAndIndices) {
    manual_case c;
    crl_partition out = {};
    ASSERT_EQ(c.cut(&out, {"h0", "4"}), CRL_STATUS_OK) << crl_error_message();
    EXPECT_EQ(firsts(out), (std::vector<int>{0, 1, 4}));
    EXPECT_EQ(out.bottleneck_s, 9);
    ASSERT_EQ(c.cut(&out, {"1", "3"}), CRL_STATUS_OK);
    EXPECT_EQ(firsts(out), (std::vector<int>{0, 1, 3}));
    EXPECT_EQ(out.bottleneck_s, 20);
}

TEST(PartitionManual, CutsDecideTheStagesWhenNoNumberIsGiven) {
    manual_case c;
    crl_partition out = {};
    c.stages = 0;
    ASSERT_EQ(c.cut(&out, {"h0", "h1", "head"}), CRL_STATUS_OK) << crl_error_message();
    EXPECT_EQ(out.stages, 4);
    ASSERT_EQ(c.cut(&out, {}), CRL_STATUS_OK);
    EXPECT_EQ(out.stages, 1);
}

TEST(PartitionManual, GivesOneErrorPerProblem) {
    manual_case c;
    EXPECT_EQ(c.failure({"h0"}), "manual: 1 cuts make 2 stages, expected 3");
    EXPECT_EQ(c.failure({"h0", "haed"}), "manual: cut 'haed' is no layer, did you mean 'head'?");
    EXPECT_EQ(c.failure({"h0", "5"}), "manual: cut '5' is outside the layers 0 to 4");
    EXPECT_EQ(c.failure({"h0", "-1"}), "manual: cut '-1' is outside the layers 0 to 4");
    EXPECT_EQ(c.failure({"h1", "h0"}), "manual: cut 'h0' is layer 1, expected one after layer 2");
    EXPECT_EQ(c.failure({"h1", "2"}), "manual: cut '2' is given twice");
    EXPECT_EQ(c.failure({"embed", "h0"}),
              "manual: cut 'embed' is the first layer, where stage 0 begins anyway");
    c.may_cut = {1, 1, 0, 1, 1};
    EXPECT_EQ(c.failure({"h0", "h1"}), "manual: no stage may begin at 'h1'");
    c.fewer = true;
    crl_partition out = {};
    EXPECT_EQ(c.cut(&out, {"h0"}), CRL_STATUS_OK);
    EXPECT_EQ(c.failure({"h0", "3", "head"}), "manual: 3 cuts make 4 stages, expected at most 3");
}

TEST(PartitionManual, RefusesWhatDoesNotFit) {
    manual_case c;
    c.state = {1, 1, 1, 1, 50};
    c.limit = 20;
    crl_partition out = {};
    EXPECT_EQ(c.cut(&out, {"h0", "head"}), CRL_STATUS_UNSUPPORTED);
    EXPECT_STREQ(crl_error_message(),
                 "manual: 3 stages need 50 bytes on one device, the limit is 20 bytes");
}
