/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/models/harness.h"

namespace model_test {
namespace {

using Names = std::vector<std::string>;

TEST(ModelsMlp, BuildsItsDefault) {
    const Built mlp(crl_model_mlp, {}, 5);
    ASSERT_EQ(mlp.error, "");
    EXPECT_EQ(mlp.Nodes(),
              (Names{"images", "flat <- images", "fc1 <- flat", "act1 <- fc1", "fc2 <- act1",
                     "act2 <- fc2", "head <- act2", "labels", "loss <- head, labels"}));
    EXPECT_EQ(mlp.Output("images"), "f32(5,28,28)");
    EXPECT_EQ(mlp.Output("head"), "f32(5,10)");
    EXPECT_EQ(mlp.Output("labels"), "i32(5)");
    EXPECT_STREQ(mlp.Node("act1")->layer->name, "relu");
    EXPECT_EQ(crl_graph_param_elements(mlp.graph),
              784 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10);
}

TEST(ModelsMlp, FollowsItsOptions) {
    const Built mlp(crl_model_mlp,
                    {{"inputs", "13"},
                     {"hidden", "7"},
                     {"classes", "3"},
                     {"activation", "gelu"},
                     {"dropout", "0.25"}},
                    2);
    ASSERT_EQ(mlp.error, "");
    EXPECT_EQ(mlp.Nodes(),
              (Names{"images", "flat <- images", "fc1 <- flat", "act1 <- fc1", "drop1 <- act1",
                     "head <- drop1", "labels", "loss <- head, labels"}));
    EXPECT_EQ(mlp.Output("images"), "f32(2,13)");
    EXPECT_EQ(mlp.Output("drop1"), "f32(2,7)");
    EXPECT_STREQ(mlp.Node("act1")->layer->name, "gelu");
}

TEST(ModelsMlp, NeedsNoHiddenLayer) {
    const Built mlp(crl_model_mlp, {{"hidden", ""}}, 2);
    ASSERT_EQ(mlp.error, "");
    EXPECT_EQ(mlp.Nodes(), (Names{"images", "flat <- images", "head <- flat", "labels",
                                  "loss <- head, labels"}));
}

TEST(ModelsMlp, RejectsBadSizes) {
    EXPECT_EQ(Built(crl_model_mlp, {{"inputs", "28,x"}}, 2).status, CRL_STATUS_INVALID);
    EXPECT_EQ(Built(crl_model_mlp, {{"hidden", "0"}}, 2).status, CRL_STATUS_INVALID);
    EXPECT_EQ(Built(crl_model_mlp, {{"dropout", "1"}}, 2).status, CRL_STATUS_INVALID);
}

TEST(ModelsMlp, SurvivesEveryFailedAllocation) {
    ExpectSurvivesFailedAllocations(crl_model_mlp, {{"dropout", "0.1"}});
}

} // namespace
} // namespace model_test
