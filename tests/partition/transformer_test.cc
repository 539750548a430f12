// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "partition/transformer.h"

namespace {

crl_transformer gpt(int64_t heads, int64_t hidden, int64_t layers, int tensor) {
    crl_transformer model = {};
    model.name = "gpt";
    model.heads = heads;
    model.hidden = hidden;
    model.layers = layers;
    model.tensor = tensor;
    model.sequence = 2048;
    model.vocabulary = 51200;
    model.micro_batch = 1;
    return model;
}

crl_machine fast() {
    crl_machine machine = {};
    machine.nodes = machine.devices_per_node = 8;
    machine.peak_flops_per_s = 1e12;
    machine.efficiency = 1;
    machine.memory_bytes_per_s = 1e30;
    return machine;
}

} // namespace

/* [narayanan21] table 1, in billions as printed there. */
TEST(PartitionTransformer, ParametersAreThePublishedOnes) {
    const struct {
        int64_t heads, hidden, layers;
        double billions;
    } rows[] = {{24, 2304, 24, 1.7},    {32, 3072, 30, 3.6},     {32, 4096, 36, 7.5},
                {48, 6144, 40, 18.4},   {64, 8192, 48, 39.1},    {80, 10240, 60, 76.1},
                {96, 12288, 80, 145.6}, {128, 16384, 96, 310.1}, {128, 20480, 105, 529.6},
                {160, 25600, 128, 1008}};
    for (const auto &row : rows) {
        const crl_transformer model = gpt(row.heads, row.hidden, row.layers, 8);
        const double billions = crl_transformer_parameters(&model) / 1e9;
        EXPECT_NEAR(billions, row.billions, row.billions > 1000 ? 0.5 : 0.05);
    }
}

/* [narayanan21] §5: 96 B s l h² (1 + s/6h + V/16lh), recomputation included. */
TEST(PartitionTransformer, FlopsAreThePublishedFormula) {
    const double batch = 1536, s = 2048, l = 48, h = 8192, V = 51200;
    const crl_transformer model = gpt(64, 8192, 48, 8);
    const double full = 96 * batch * s * l * h * h * (1 + s / 6 / h + V / 16 / l / h);
    EXPECT_NEAR(crl_transformer_flops(&model, batch, CRL_RECOMPUTE_FULL) / full, 1, 1e-12);
    const double none = 72 * batch * s * l * h * h * (1 + s / 6 / h + V / 12 / l / h);
    EXPECT_NEAR(crl_transformer_flops(&model, batch, CRL_RECOMPUTE_NONE) / none, 1, 1e-12);
    const double core = 4 * batch * s * s * h * l; /* scores and context, once more */
    EXPECT_NEAR(crl_transformer_flops(&model, batch, CRL_RECOMPUTE_SELECTIVE) / (none + core), 1,
                1e-12);
}

/* [korthikanti22] table 2, for the 22B model: a = 64, h = 6144, t = 8; 5as/h = 106.667. */
TEST(PartitionTransformer, KeepsWhatThePublishedTableSays) {
    crl_transformer model = gpt(64, 6144, 48, 1);
    const double sbh = 2048.0 * 6144, as_h = 64 * 2048 / 6144.0;
    EXPECT_DOUBLE_EQ(crl_transformer_layer_kept_bytes(&model, CRL_RECOMPUTE_NONE),
                     sbh * (34 + 5 * as_h));
    EXPECT_DOUBLE_EQ(crl_transformer_layer_kept_bytes(&model, CRL_RECOMPUTE_FULL), 2 * sbh);
    model.tensor = 8;
    EXPECT_DOUBLE_EQ(crl_transformer_layer_kept_bytes(&model, CRL_RECOMPUTE_NONE),
                     sbh * (10 + 24 / 8.0 + 5 * as_h / 8));
    EXPECT_DOUBLE_EQ(crl_transformer_layer_kept_bytes(&model, CRL_RECOMPUTE_SELECTIVE),
                     sbh * (10 + 24 / 8.0));
    model.sequence_parallel = true;
    EXPECT_DOUBLE_EQ(crl_transformer_layer_kept_bytes(&model, CRL_RECOMPUTE_NONE),
                     sbh / 8 * (34 + 5 * as_h));
    EXPECT_DOUBLE_EQ(crl_transformer_layer_kept_bytes(&model, CRL_RECOMPUTE_SELECTIVE),
                     sbh / 8 * 34);
    EXPECT_DOUBLE_EQ(crl_transformer_layer_kept_bytes(&model, CRL_RECOMPUTE_FULL), 2 * sbh);
}

/* [qi23] §2: 32 sbh for the weight half. */
TEST(PartitionTransformer, HoldsThePublishedBytesForTheWeights) {
    crl_transformer model = gpt(64, 6144, 48, 1);
    const double sbh = 2048.0 * 6144;
    EXPECT_DOUBLE_EQ(crl_transformer_layer_held_bytes(&model), 32 * sbh);
    model.tensor = 8;
    EXPECT_DOUBLE_EQ(crl_transformer_layer_held_bytes(&model), (8 + 3) * sbh);
    model.sequence_parallel = true;
    EXPECT_DOUBLE_EQ(crl_transformer_layer_held_bytes(&model), 4 * sbh);
}

/* §5 there: selective recomputation saves 70 % of GPT-3's activations and 65 % of MT-NLG's. */
TEST(PartitionTransformer, SelectiveSavesThePublishedShare) {
    const struct {
        int64_t heads, hidden;
        double percent;
    } rows[] = {{96, 12288, 70}, {128, 20480, 65}};
    for (const auto &row : rows) {
        crl_transformer model = gpt(row.heads, row.hidden, 96, 8);
        model.sequence_parallel = true;
        const double all = crl_transformer_layer_kept_bytes(&model, CRL_RECOMPUTE_NONE);
        const double some = crl_transformer_layer_kept_bytes(&model, CRL_RECOMPUTE_SELECTIVE);
        EXPECT_EQ(std::round(100 * (1 - some / all)), row.percent);
    }
}

/* On a machine where only products take time, a layer takes its flops. */
TEST(PartitionTransformer, ProductsTakeTheirFlops) {
    const crl_machine machine = fast();
    const crl_transformer model = gpt(64, 6144, 48, 8);
    const crl_transformer_times times = crl_transformer_layer_times(&model, &machine);
    const double h = 6144, s = 2048, forward = 24 * s * h * h * (1 + s / 6 / h) / 8 / 1e12;
    EXPECT_NEAR(times.forward_s / forward, 1, 1e-9);
    EXPECT_NEAR((times.input_s + times.weight_s) / forward, 2, 1e-9);
    EXPECT_NEAR(times.recompute_s[CRL_RECOMPUTE_FULL] / forward, 1, 1e-9);
    EXPECT_NEAR(times.recompute_s[CRL_RECOMPUTE_SELECTIVE] * 1e12, 4 * s * s * h / 8, 1);
    const crl_transformer_times head = crl_transformer_head_times(&model, &machine);
    EXPECT_NEAR(head.forward_s * 1e12, 2 * s * h * 51200 / 8, 1);
}

/* Two sums of sbh elements each way over the group: 2 · 7/8 · 2 sbh bytes. */
TEST(PartitionTransformer, GroupsSumTwiceEachWay) {
    crl_machine machine = fast();
    machine.peak_flops_per_s = 1e30;
    machine.within.bytes_per_s = 1e9;
    crl_transformer model = gpt(64, 6144, 48, 8);
    const double sum_s = 2 * 7 / 8.0 * 2 * 2048 * 6144 / 1e9;
    crl_transformer_times times = crl_transformer_layer_times(&model, &machine);
    EXPECT_NEAR(times.forward_s / (2 * sum_s), 1, 1e-9);
    EXPECT_NEAR(times.input_s / (2 * sum_s), 1, 1e-9);
    machine.forward_overlap = 1;
    machine.backward_overlap = 0.5;
    times = crl_transformer_layer_times(&model, &machine);
    EXPECT_NEAR(times.forward_s / sum_s, 0, 1e-9);
    EXPECT_NEAR(times.input_s / sum_s, 1, 1e-9);
    model.tensor = 1;
    EXPECT_NEAR(crl_transformer_layer_times(&model, &machine).input_s / sum_s, 0, 1e-9);
}

/* 530B over 8 x 35 devices: 16 bytes a parameter. */
TEST(PartitionTransformer, ProfileHoldsTheWholeModel) {
    const crl_machine machine = fast();
    const crl_transformer model = gpt(128, 20480, 105, 8);
    crl_profile *profile = nullptr;
    ASSERT_EQ(crl_transformer_profile(&profile, &model, &machine), CRL_STATUS_OK);
    ASSERT_EQ(profile->units, 107);
    EXPECT_STREQ(profile->unit[1].name, "h0");
    EXPECT_STREQ(profile->unit[106].name, "head");
    double state = 0, sent = 0;
    for (int u = 0; u < 106; ++u) { /* the head's matrix is the embedding's */
        state += profile->unit[u].state_bytes;
        sent += profile->unit[u].parameter_bytes;
    }
    EXPECT_NEAR(state / (16 * crl_transformer_parameters(&model) / 8), 1, 1e-6);
    EXPECT_NEAR(sent / (2 * crl_transformer_parameters(&model) / 8), 1, 1e-6);
    crl_profile_destroy(profile);
}

TEST(PartitionTransformer, RefusesSizesThatCannotBe) {
    const crl_machine machine = fast();
    crl_profile *profile = nullptr;
    crl_transformer model = gpt(6, 6144, 48, 4);
    EXPECT_EQ(crl_transformer_profile(&profile, &model, &machine), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "transformer gpt: 6 heads over 4 devices do not divide");
    model = gpt(64, 0, 48, 8);
    EXPECT_EQ(crl_transformer_profile(&profile, &model, &machine), CRL_STATUS_INVALID);
    EXPECT_EQ(std::string(crl_error_message()).find("transformer gpt: hidden is 0, expected 1"),
              0u);
}
