// SPDX-License-Identifier: Apache-2.0
// Backward in halves costs what the profile says it costs, and nothing where it is whole.
#include <gtest/gtest.h>

#include "partition/predict.h"

namespace {

// One stage: F m, then `halves` of the micro-batches as I and W, the others as B.
template <int halves> crl_status Build(crl_program **out, const crl_schedule_request *request) {
    crl_status status = crl_program_create(out, 1, 1, request->micro_batches);
    for (int m = 0; m < request->micro_batches && status == CRL_STATUS_OK; m++) {
        status = crl_program_append(*out, 0, CRL_ACTION_FORWARD, 0, m);
    }
    for (int m = 0; m < request->micro_batches && status == CRL_STATUS_OK; m++) {
        status =
            crl_program_append(*out, 0, m < halves ? CRL_ACTION_INPUT : CRL_ACTION_BACKWARD, 0, m);
        if (m < halves && status == CRL_STATUS_OK) {
            status = crl_program_append(*out, 0, CRL_ACTION_WEIGHT, 0, m);
        }
    }
    return status;
}

template <int halves> double Pipeline() {
    crl_profile *profile = nullptr;
    EXPECT_EQ(crl_profile_create(&profile, 1), CRL_STATUS_OK);
    EXPECT_EQ(crl_profile_name_unit(profile, 0, "a", 0, nullptr), CRL_STATUS_OK);
    profile->unit[0].forward_s = 1;
    profile->unit[0].input_s = 1;
    profile->unit[0].weight_s = 1;
    profile->unit[0].split_s = 0.5;
    crl_schedule schedule = {};
    schedule.name = "test";
    schedule.build = Build<halves>;
    const int first = 0;
    crl_hybrid hybrid = {};
    hybrid.tensor = hybrid.pipelines = hybrid.positions = hybrid.stages = 1;
    hybrid.first = &first;
    hybrid.schedule = &schedule;
    hybrid.micro_batches = 4;
    crl_machine machine = {};
    machine.name = "test";
    machine.nodes = machine.devices_per_node = 1;
    machine.peak_flops_per_s = machine.efficiency = machine.memory_bytes_per_s = 1;
    crl_prediction prediction = {};
    EXPECT_EQ(crl_predict(&prediction, nullptr, &hybrid, profile, &machine), CRL_STATUS_OK)
        << crl_error_message();
    crl_profile_destroy(profile);
    return prediction.pipeline_s;
}

TEST(PartitionPredictSplit, HalvesTakeLongerAndOnlyHalves) {
    EXPECT_DOUBLE_EQ(Pipeline<0>(), 4 * 3);
    EXPECT_DOUBLE_EQ(Pipeline<4>(), 4 * 3.5);
    EXPECT_DOUBLE_EQ(Pipeline<1>(), 4 * 3 + 0.5);
}

} // namespace
