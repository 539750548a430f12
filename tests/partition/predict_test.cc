// SPDX-License-Identifier: Apache-2.0
#include "tests/partition/predict_case.h"

#include "engine/base/alloc.h"

TEST(PartitionPredict, OneDeviceTakesItsActionsAndTheUpdate) {
    predict_case one(2, forwards_first());
    one.layout.micro_batches = 3;
    one.units[0].update_s = 0.25;
    one.units[1].state_bytes = 1e9; /* read and written at 1e9 bytes/s */
    const crl_prediction p = one.predict();
    EXPECT_DOUBLE_EQ(p.pipeline_s, 3 * 2 * 3);
    EXPECT_DOUBLE_EQ(p.reduce_s, 0);
    EXPECT_DOUBLE_EQ(p.update_s, 0.25 + 2);
    EXPECT_DOUBLE_EQ(p.step_s, 20.25);
    EXPECT_DOUBLE_EQ(p.bubble, 0);
    EXPECT_DOUBLE_EQ(p.samples_per_s, 3 / 20.25);
}

/*
 * hop 0.5    0 | F0 F1 ......... B0--- B1---       F0 0-1, F1 1-2, B0 6-8, B1 8-10
 *            1 |  .5 F0 F1 B0--- B1---             F0 1.5, F1 2.5, B0 3.5-5.5, B1 5.5-7.5
 */
TEST(PartitionPredict, HopsTakeTheLinkInsideANode) {
    predict_case two(2, forwards_first());
    two.spread();
    two.layout.micro_batches = 2;
    two.units[0].output_bytes = 4e8;
    two.machine.within = {0.1, 1e9};
    const crl_prediction p = two.predict();
    EXPECT_DOUBLE_EQ(p.pipeline_s, 10);
    EXPECT_DOUBLE_EQ(p.bubble, 1 - 12.0 / 20);
}

TEST(PartitionPredict, HopsBetweenNodesTakeTheOther) {
    predict_case two(2, forwards_first());
    two.spread();
    two.machine.nodes = 2;
    two.machine.devices_per_node = 1;
    two.machine.between = {2, 0};
    EXPECT_DOUBLE_EQ(two.predict().pipeline_s, 6 + 2 * 2);
}

/* Three devices a node: ranks 0 1 2 | 3 4 5. The second pipeline, ranks 2 and 3, leaves a node. */
TEST(PartitionPredict, ThePipelineThatLeavesItsNodeCounts) {
    predict_case two(2, forwards_first());
    two.spread();
    two.layout.pipelines = 2;
    two.layout.micro_batches = 2;
    two.machine.nodes = 2;
    two.machine.devices_per_node = 3;
    two.machine.between = {2, 0};
    EXPECT_DOUBLE_EQ(two.predict().pipeline_s, 6 + 2 * 2);
    two.machine.devices_per_node = 4;
    EXPECT_DOUBLE_EQ(two.predict().pipeline_s, 6);
}

TEST(PartitionPredict, AResultReadFartherOnCrossesEveryCut) {
    predict_case three(3, forwards_first());
    three.spread();
    three.machine.within = {0, 1e9};
    three.units[0].output_bytes = 1e9;
    three.units[1].output_bytes = 0;
    EXPECT_DOUBLE_EQ(three.predict().pipeline_s, 9 + 2 * 1);
    three.inputs[2] = {0, 1};
    EXPECT_DOUBLE_EQ(three.predict().pipeline_s, 9 + 2 * 2);
}

TEST(PartitionPredict, RecomputeLengthensBackwardAndKeepsLess) {
    predict_case one(1, forwards_first());
    one.units[0].recompute_s[CRL_RECOMPUTE_FULL] = 0.5;
    one.units[0].kept_bytes[CRL_RECOMPUTE_NONE] = 100;
    one.units[0].kept_bytes[CRL_RECOMPUTE_FULL] = 10;
    one.layout.micro_batches = 2;
    EXPECT_DOUBLE_EQ(one.predict().pipeline_s, 6);
    EXPECT_DOUBLE_EQ(one.predict().peak_bytes, 200);
    one.recompute = {CRL_RECOMPUTE_FULL};
    EXPECT_DOUBLE_EQ(one.predict().pipeline_s, 7);
    EXPECT_DOUBLE_EQ(one.predict().peak_bytes, 20);
}

/* Position 0: state 1000, two micro-batches of 100, workspace 7, a result and a gradient of 3 each
 * way and one of each being sent. */
TEST(PartitionPredict, MemoryIsStateAndWhatIsInFlight) {
    predict_case two(2, forwards_first());
    two.spread();
    two.layout.micro_batches = 2;
    two.units[0].state_bytes = 1000;
    two.units[0].workspace_bytes = 7;
    two.units[0].output_bytes = 3;
    two.units[0].kept_bytes[CRL_RECOMPUTE_NONE] = 100;
    std::vector<double> bytes;
    const crl_prediction p = two.predict(&bytes);
    EXPECT_DOUBLE_EQ(bytes[0], 1000 + 200 + 7 + 6);
    EXPECT_DOUBLE_EQ(bytes[1], 6);
    EXPECT_DOUBLE_EQ(p.peak_bytes, bytes[0]);
    EXPECT_EQ(p.peak_position, 0);
}

/* A ring of two: all bytes once at 1e9 bytes/s. */
TEST(PartitionPredict, SumsComeAfterOrBehindTheLastBackward) {
    predict_case one(4, forwards_first());
    one.layout.pipelines = 2;
    one.layout.micro_batches = 2;
    one.machine.within = {0, 1e9};
    for (crl_profile_unit &unit : one.units)
        unit.parameter_bytes = 5e8;
    EXPECT_DOUBLE_EQ(one.predict().reduce_s, 2);
    EXPECT_DOUBLE_EQ(one.predict().pipeline_s, 12);
    one.machine.sum_overlap = 1; /* behind a backward of 8: all but the last of four units */
    EXPECT_DOUBLE_EQ(one.predict().reduce_s, 0.5);
    one.machine.within.bytes_per_s = 1e8; /* sums of 20, backward from 4 to 12 */
    EXPECT_DOUBLE_EQ(one.predict().reduce_s, 12);
    one.machine.sum_overlap = 0.5; /* from 8 on */
    EXPECT_DOUBLE_EQ(one.predict().reduce_s, 16);
}

/* Half of a sum of 2 waits for nothing but the forward that follows, of 4. */
TEST(PartitionPredict, GatheringHidesBehindTheNextForward) {
    predict_case one(4, forwards_first());
    one.layout.pipelines = 2;
    one.layout.micro_batches = 2;
    one.machine.within = {0, 1e9};
    for (crl_profile_unit &unit : one.units)
        unit.parameter_bytes = 5e8;
    one.machine.gather_overlap = 1;
    EXPECT_DOUBLE_EQ(one.predict().reduce_s, 1);
    one.machine.gather_overlap = 0.125; /* only half of a second of it */
    EXPECT_DOUBLE_EQ(one.predict().reduce_s, 1.5);
    one.machine.sum_overlap = one.machine.gather_overlap = 1;
    EXPECT_DOUBLE_EQ(one.predict().reduce_s, 0);
}

/* Two nodes of a replica each: the sum goes over the link between them. */
TEST(PartitionPredict, SumsOfReplicasOnOtherNodesTakeTheirLink) {
    predict_case one(1, forwards_first());
    one.layout.pipelines = 2;
    one.layout.micro_batches = 2;
    one.machine.nodes = 2;
    one.machine.within = {0, 1e9};
    one.machine.between = {0, 1e8};
    one.units[0].parameter_bytes = 1e9;
    EXPECT_DOUBLE_EQ(one.predict().reduce_s, 1);
    one.machine.devices_per_node = 1;
    EXPECT_DOUBLE_EQ(one.predict().reduce_s, 10);
}

TEST(PartitionPredict, PositionsUpdateAtTheSameTime) {
    predict_case two(2, forwards_first());
    two.spread();
    two.units[0].update_s = 0.5;
    two.units[1].update_s = 0.75;
    EXPECT_DOUBLE_EQ(two.predict().update_s, 0.75);
}

/* The second position is done with its sum before the first is done with its backward. */
TEST(PartitionPredict, SumsOfPositionsThatWaitCostNothing) {
    predict_case two(2, forwards_first());
    two.spread();
    two.layout.pipelines = 2;
    two.layout.micro_batches = 2;
    two.machine.within = {0, 1e9};
    two.units[1].parameter_bytes = 1.5e9;
    EXPECT_DOUBLE_EQ(two.predict().reduce_s, 0);
    two.units[1].parameter_bytes = 2.5e9;
    EXPECT_DOUBLE_EQ(two.predict().reduce_s, 0.5);
}

TEST(PartitionPredict, LanesOfAReplicaAreAdded) {
    predict_case one(1, forwards_first());
    one.layout.micro_batches = 4;
    one.units[0].add_s = 0.25;
    EXPECT_DOUBLE_EQ(one.predict().reduce_s, 0);
    one.layout.lanes = 4;
    EXPECT_DOUBLE_EQ(one.predict().reduce_s, 0.75);
}

/* Two replicas of the first position have two micro-batches each. */
TEST(PartitionPredict, WidthsShareTheMicroBatches) {
    predict_case two(2, forwards_first());
    two.spread();
    two.layout.micro_batches = 4;
    for (crl_profile_unit &unit : two.units)
        unit.kept_bytes[CRL_RECOMPUTE_NONE] = 100;
    two.units[0].forward_s = 2;
    two.units[0].input_s = two.units[0].weight_s = 2;
    const double narrow = two.predict().pipeline_s;
    two.widths = {2, 1};
    std::vector<double> bytes;
    const crl_prediction wide = two.predict(&bytes);
    /* Forwards meet at the second position: 2, then four of 1 + 2; the last backward of 4. */
    EXPECT_DOUBLE_EQ(wide.pipeline_s, 2 + 4 * 1 + 4 * 2 + 4);
    EXPECT_GT(narrow, wide.pipeline_s);
    EXPECT_EQ(bytes, (std::vector<double>{200, 400}));
}

TEST(PartitionPredict, PricesEveryDevice) {
    predict_case one(1, forwards_first());
    one.layout.pipelines = 2;
    one.layout.micro_batches = 2;
    one.profile.tokens_per_sample = 500;
    one.machine.price_per_hour = 1.5;
    const crl_prediction p = one.predict(); /* 1000 tokens in 3 s on two devices */
    EXPECT_DOUBLE_EQ(p.tokens_per_s, 1000.0 / 3);
    EXPECT_DOUBLE_EQ(p.price_per_billion_tokens, 1.5 * 2 * 3 / 3600 * 1e6);
}

TEST(PartitionPredict, RefusesLayoutsThatCannotBe) {
    predict_case two(2, forwards_first());
    two.spread();
    two.layout.tensor = 40;
    EXPECT_EQ(two.refusal(), "layout: needs 80 devices, machine toy has 64");
    two.layout.tensor = 1;
    two.layout.pipelines = 2;
    EXPECT_EQ(two.refusal(), "layout: position 0 has 2 replicas, expected at most its 1 lanes and "
                             "1 micro-batches");
    two.layout.pipelines = 1;
    two.first = {0, 2};
    EXPECT_EQ(two.refusal(),
              "layout: stage 1 begins at unit 2 of 2, expected one after the stage before it");
    two.first = {0, 1};
    two.widths = {1, 0};
    EXPECT_EQ(two.refusal(), "layout: position 1 has 0 replicas, expected 1 or more");
    two.widths.clear();
    two.recompute = {0, 9};
    EXPECT_EQ(two.refusal(), "layout: stage 1 has recompute mode 9, expected 0 to 2");
    two.recompute.clear();
    two.machine.efficiency = 2;
    EXPECT_EQ(two.refusal(), "machine toy: efficiency is 2, expected 1e-09 to 1");
    two.machine.efficiency = 1;
    two.layout.micro_batches = 0;
    EXPECT_NE(two.refusal().find("0 micro-batches"), std::string::npos);
}

TEST(PartitionPredict, GivesBackItsMemoryWhereverItRunsOut) {
    predict_case two(2, forwards_first());
    two.spread();
    two.widths = {2, 1};
    two.layout.micro_batches = 2;
    crl_alloc_watch watch = {};
    crl_alloc_watch *before = crl_alloc_attach(&watch);
    crl_status status = CRL_STATUS_NOMEM;
    crl_prediction p = {};
    for (int n = 1; status == CRL_STATUS_NOMEM && n < 1000; ++n) {
        watch.fail_at = n;
        status = two.run(&p);
        EXPECT_EQ(watch.live_bytes, 0) << n;
    }
    crl_alloc_attach(before);
    EXPECT_EQ(status, CRL_STATUS_OK);
    EXPECT_GT(watch.allocations, 10);
}
