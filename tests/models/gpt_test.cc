/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/models/harness.h"

#include <cmath>

namespace model_test {
namespace {

using Names = std::vector<std::string>;

const Texts kSmall = {{"layers", "2"},  {"heads", "3"},       {"channels", "12"},
                      {"context", "8"}, {"vocabulary", "17"}, {"dropout", "0"}};

Texts With(Texts texts, const std::string &key, const std::string &value) {
    texts[key] = value;
    return texts;
}

TEST(ModelsGpt, BuildsPreNormBlocks) {
    const Built gpt(crl_model_gpt, With(With(kSmall, "layers", "1"), "dropout", "0.1"), 2);
    ASSERT_EQ(gpt.error, "");
    EXPECT_EQ(
        gpt.Nodes(),
        (Names{"tokens", "wte <- tokens", "drop <- wte", "h0.ln1 <- drop", "h0.attn.qkv <- h0.ln1",
               "h0.attn <- h0.attn.qkv", "h0.attn.proj <- h0.attn", "h0.attn.drop <- h0.attn.proj",
               "h0.res1 <- drop, h0.attn.drop", "h0.ln2 <- h0.res1", "h0.mlp.fc <- h0.ln2",
               "h0.mlp.gelu <- h0.mlp.fc", "h0.mlp.proj <- h0.mlp.gelu",
               "h0.mlp.drop <- h0.mlp.proj", "h0.res2 <- h0.res1, h0.mlp.drop", "lnf <- h0.res2",
               "head <- lnf", "targets", "loss <- head, targets"}));
}

TEST(ModelsGpt, LeavesOutDropoutOfZero) {
    const Built gpt(crl_model_gpt, kSmall, 2);
    ASSERT_EQ(gpt.error, "");
    EXPECT_EQ(gpt.graph->nodes, 2 + 2 * 10 + 2 + 2);
    for (int n = 0; n < gpt.graph->nodes; ++n) {
        EXPECT_STRNE(gpt.graph->node[n].layer->name, "dropout");
    }
    EXPECT_EQ(gpt.Output("h1.attn.qkv"), "f32(2,8,36)");
    EXPECT_EQ(gpt.Output("h1.mlp.fc"), "f32(2,8,48)");
    EXPECT_EQ(gpt.Output("head"), "f32(2,8,17)");
    EXPECT_EQ(gpt.Output("targets"), "i32(2,8)");
}

/* The published size of GPT-2 small. */
TEST(ModelsGpt, DefaultsToGpt2Small) {
    const Built gpt(crl_model_gpt, {}, 1);
    ASSERT_EQ(gpt.error, "");
    EXPECT_EQ(crl_graph_param_elements(gpt.graph), 124439808);
}

TEST(ModelsGpt, TiesTheHead) {
    const Built tied(crl_model_gpt, kSmall, 2);
    ASSERT_EQ(tied.error, "");
    ASSERT_NE(tied.Param("wte.token"), nullptr);
    EXPECT_EQ(tied.Param("wte.token")->uses, 2);
    EXPECT_EQ(tied.Param("head.weight"), nullptr);
    const Built free(crl_model_gpt, With(kSmall, "tied", "false"), 2);
    ASSERT_EQ(free.error, "");
    EXPECT_EQ(free.Param("wte.token")->uses, 1);
    ASSERT_NE(free.Param("head.weight"), nullptr);
    EXPECT_EQ(crl_graph_param_elements(free.graph) - crl_graph_param_elements(tied.graph), 17 * 12);
}

TEST(ModelsGpt, InitialisesAsGpt2) {
    const Built gpt(crl_model_gpt, kSmall, 2);
    ASSERT_EQ(gpt.error, "");
    for (const char *name :
         {"wte.token", "wte.position", "h0.attn.qkv.weight", "h1.mlp.fc.weight"}) {
        EXPECT_EQ(gpt.Param(name)->spec.init, CRL_INIT_NORMAL) << name;
        EXPECT_EQ(gpt.Param(name)->spec.init_scale, 0.02) << name;
        EXPECT_TRUE(gpt.Param(name)->spec.decay) << name;
    }
    for (const char *name : {"h0.attn.proj.weight", "h1.mlp.proj.weight"}) {
        EXPECT_DOUBLE_EQ(gpt.Param(name)->spec.init_scale, 0.02 / std::sqrt(4.0)) << name;
    }
    EXPECT_EQ(gpt.Param("h0.attn.qkv.bias")->spec.init, CRL_INIT_ZEROS);
    EXPECT_EQ(gpt.Param("h0.ln1.weight")->spec.init, CRL_INIT_ONES);
}

TEST(ModelsGpt, LeavesOutBiases) {
    const Built gpt(crl_model_gpt, With(kSmall, "bias", "false"), 2);
    ASSERT_EQ(gpt.error, "");
    EXPECT_EQ(gpt.Param("h0.attn.qkv.bias"), nullptr);
    EXPECT_NE(gpt.Param("h0.attn.qkv.weight"), nullptr);
}

TEST(ModelsGpt, RejectsHeadsThatDoNotDivide) {
    const Built gpt(crl_model_gpt, With(kSmall, "heads", "5"), 2);
    EXPECT_EQ(gpt.error, "attention h0.attn: input last dimension is 36, expected a multiple of 3 "
                         "x 5 heads");
}

TEST(ModelsGpt, SurvivesEveryFailedAllocation) {
    ExpectSurvivesFailedAllocations(crl_model_gpt, With(kSmall, "dropout", "0.1"));
}

} // namespace
} // namespace model_test
