// SPDX-License-Identifier: Apache-2.0
// A chain of units on a small machine, with numbers one can add up by hand.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "partition/predict.h"

struct predict_case {
    std::vector<crl_profile_unit> units;
    std::vector<std::vector<int>> inputs;
    std::vector<int> first = {0}, widths;
    std::vector<unsigned char> recompute;
    crl_profile profile = {};
    crl_machine machine = {};
    crl_hybrid layout = {};

    /* F 1, I 1, W 1; machines of a single node whose links are infinitely fast. */
    explicit predict_case(int count, const crl_schedule *schedule) {
        machine.name = "toy";
        machine.nodes = 1;
        machine.devices_per_node = 64;
        machine.peak_flops_per_s = machine.memory_bytes_per_s = 1e9;
        machine.efficiency = 1;
        layout.tensor = layout.pipelines = layout.positions = layout.stages = 1;
        layout.micro_batches = 1;
        layout.schedule = schedule;
        for (int u = 0; u < count; ++u) {
            crl_profile_unit unit = {};
            unit.name = "u";
            unit.forward_s = unit.input_s = unit.weight_s = 1;
            units.push_back(unit);
            inputs.push_back(u > 0 ? std::vector<int>{u - 1} : std::vector<int>{});
        }
        profile.micro_batch = 1;
        profile.tokens_per_sample = 1;
    }

    /* Stages of one unit each on as many positions. */
    void spread() {
        first.clear();
        for (int u = 0; u < static_cast<int>(units.size()); ++u)
            first.push_back(u);
        layout.positions = layout.stages = static_cast<int>(units.size());
    }

    crl_status run(crl_prediction *out, std::vector<double> *bytes = nullptr) {
        for (size_t u = 0; u < units.size(); ++u) {
            units[u].inputs = static_cast<int>(inputs[u].size());
            units[u].input = inputs[u].data();
        }
        profile.units = static_cast<int>(units.size());
        profile.unit = units.data();
        layout.first = first.data();
        layout.widths = widths.empty() ? nullptr : widths.data();
        layout.recompute = recompute.empty() ? nullptr : recompute.data();
        if (bytes)
            bytes->assign(static_cast<size_t>(layout.positions), 0);
        return crl_predict(out, bytes ? bytes->data() : nullptr, &layout, &profile, &machine);
    }

    crl_prediction predict(std::vector<double> *bytes = nullptr) {
        crl_prediction result = {};
        EXPECT_EQ(run(&result, bytes), CRL_STATUS_OK) << crl_error_message();
        return result;
    }

    std::string refusal() {
        crl_prediction result = {};
        EXPECT_EQ(run(&result), CRL_STATUS_INVALID);
        return crl_error_message();
    }
};

/* All forwards, then all backwards. */
inline crl_status build_forwards_first(crl_program **out, const crl_schedule_request *request) {
    crl_program *program = nullptr;
    crl_status status =
        crl_program_create(&program, request->positions, request->stages, request->micro_batches);
    for (const crl_action_kind kind : {CRL_ACTION_FORWARD, CRL_ACTION_BACKWARD})
        for (int s = 0; s < request->stages; ++s)
            for (int m = 0; m < request->micro_batches && status == CRL_STATUS_OK; ++m)
                status = crl_program_append(program, s, kind, s, m);
    if (status == CRL_STATUS_OK)
        *out = program;
    else
        crl_program_destroy(program);
    return status;
}

inline const crl_schedule *forwards_first() {
    static const crl_schedule schedule = [] {
        crl_schedule made = {};
        made.name = "forwards-first";
        made.build = build_forwards_first;
        return made;
    }();
    return &schedule;
}
