// SPDX-License-Identifier: Apache-2.0
// The rows of three papers' tables on Megatron, with their published numbers.
#include "tests/cli/tables.h"

namespace tables {

namespace {

std::string label(double billions) {
    char text[32];
    snprintf(text, sizeof text, "%gB", billions);
    return text;
}

struct Sc21 {
    double billions;
    int heads, hidden, layers, tensor, pipeline, devices, batch;
    double tflops; // published, of a device, with recomputation
    int micro_batch, virtual_stages;
};

/* [narayanan21] table 1; micro-batches and virtual stages as in the scripts published with it. */
const Sc21 sc21_rows[] = {
    {1.7, 24, 2304, 24, 1, 1, 32, 512, 137, 16, 1},
    {3.6, 32, 3072, 30, 2, 1, 64, 512, 138, 16, 1},
    {7.5, 32, 4096, 36, 4, 1, 128, 512, 142, 16, 1},
    {18.4, 48, 6144, 40, 8, 1, 256, 1024, 135, 8, 1},
    {39.1, 64, 8192, 48, 8, 2, 512, 1536, 138, 4, 1},
    {76.1, 80, 10240, 60, 8, 4, 1024, 1792, 140, 2, 3},
    {145.6, 96, 12288, 80, 8, 8, 1536, 2304, 148, 2, 2},
    {310.1, 128, 16384, 96, 8, 16, 1920, 2160, 155, 1, 2},
    {529.6, 128, 20480, 105, 8, 35, 2520, 2520, 163, 1, 3},
    {1008, 160, 25600, 128, 8, 64, 3072, 3072, 163, 1, 1},
};

struct Published22 {
    const char *name;
    int heads, hidden, layers, pipeline, batch, micro_batch, virtual_stages;
    double full_s, present_s;
    double mfu, hfu; // of the present run: share of the peak, without and with what is repeated
};

/* [korthikanti22] tables 3 and 5: full recomputation, and selective with sequence parallelism. */
const Published22 recompute_rows[] = {
    {"22B", 64, 6144, 48, 1, 4, 4, 1, 1.42, 1.10, 41.5, 43.7},
    {"175B", 96, 12288, 96, 8, 64, 1, 3, 18.13, 13.75, 51.4, 52.8},
    {"530B", 128, 20480, 105, 35, 280, 1, 3, 49.05, 37.83, 56.0, 57.0},
    {"1T", 160, 25600, 128, 64, 512, 1, 1, 94.42, 71.49, 56.3, 57.0},
};

struct Layer22 {
    const char *name;
    bool sequence_parallel;
    int recompute;
    double forward_ms, backward_ms;
};

/* Table 4: a layer of the 22B model. */
const Layer22 layer_rows[] = {
    {"layer, baseline", false, CRL_RECOMPUTE_NONE, 7.7, 11.9},
    {"layer, sequence parallel", true, CRL_RECOMPUTE_NONE, 7.2, 11.8},
    {"layer, full", false, CRL_RECOMPUTE_FULL, 7.7, 19.5},
    {"layer, selective", false, CRL_RECOMPUTE_SELECTIVE, 7.7, 13.2},
    {"layer, selective + sequence", true, CRL_RECOMPUTE_SELECTIVE, 7.2, 13.1},
};

struct H100 {
    double billions;
    int heads, hidden, layers, tensor, pipeline, devices, batch;
    double tflops; // published, of a device
};

/* Megatron-Core's weak scaling, V = 131072, T = 4096. */
const H100 h100_rows[] = {
    {1.7, 16, 2048, 24, 1, 1, 48, 192, 408.8},        {16, 48, 6144, 32, 4, 1, 192, 192, 489.1},
    {70, 64, 8192, 84, 8, 2, 768, 384, 419.7},        {177, 96, 12288, 96, 8, 6, 2304, 1152, 432.8},
    {462, 144, 18432, 112, 8, 16, 6144, 3072, 459.9},
};

void add_layers(std::vector<Row> &rows, const crl_machine &machine) {
    for (const Layer22 &row : layer_rows) {
        crl_transformer model = transformer(64, 6144, 48, 8, 4, 2048, 51200);
        model.sequence_parallel = row.sequence_parallel;
        const crl_transformer_times times = crl_transformer_layer_times(&model, &machine);
        const double backward = times.input_s + times.weight_s + times.recompute_s[row.recompute];
        const std::string name = row.name;
        rows.push_back({"recompute T4", name + " F", 1e3 * times.forward_s, row.forward_ms, "ms"});
        rows.push_back({"recompute T4", name + " B", 1e3 * backward, row.backward_ms, "ms"});
        rows.push_back({"recompute T4", name + " F+B", 1e3 * (times.forward_s + backward),
                        row.forward_ms + row.backward_ms, "ms"});
    }
}

Run run_of(const Published22 &row, bool present, int pipelines) {
    Run run = {};
    run.model = transformer(row.heads, row.hidden, row.layers, 8, row.micro_batch, 2048, 51200);
    run.model.sequence_parallel = present;
    run.pipeline = row.pipeline;
    run.virtual_stages = row.virtual_stages;
    run.pipelines = pipelines;
    run.global_batch = row.batch * pipelines;
    run.recompute = present ? CRL_RECOMPUTE_SELECTIVE : CRL_RECOMPUTE_FULL;
    return run;
}

Run run_of(const H100 &row, const crl_machine &machine) {
    Run run = {};
    run.pipelines = row.devices / row.tensor / row.pipeline;
    run.model = transformer(row.heads, row.hidden, row.layers, row.tensor, 2, 4096, 131072);
    run.model.sequence_parallel = row.tensor > 1;
    run.model.fused_attention = true;
    run.model.gradient_bytes = 4;
    run.model.state_shards = run.pipelines;
    run.pipeline = row.pipeline;
    run.virtual_stages = row.pipeline > 1 ? row.layers / row.pipeline : 1;
    run.global_batch = row.batch;
    if (predict(run, machine).peak_bytes > machine.memory_bytes)
        run.model.micro_batch = 1;
    return run;
}

} // namespace

std::string Machine::folder() {
    return CRL_SOURCE_DIR "/configs/machines/";
}

std::vector<Row> sc21() {
    const Machine machine("a100-selene-2021");
    std::vector<Row> rows;
    for (const Sc21 &row : sc21_rows) {
        Run run = {};
        run.model = transformer(row.heads, row.hidden, row.layers, row.tensor, row.micro_batch,
                                2048, 51200);
        run.pipeline = row.pipeline;
        run.virtual_stages = row.virtual_stages;
        run.pipelines = row.devices / row.tensor / row.pipeline;
        run.global_batch = row.batch;
        run.recompute = CRL_RECOMPUTE_FULL;
        const double step_s = machine.ok() ? predict(run, machine.get()).step_s : NAN;
        const double flops = crl_transformer_flops(&run.model, row.batch, CRL_RECOMPUTE_FULL);
        rows.push_back({"SC21 table 1", label(row.billions), flops / step_s / row.devices / 1e12,
                        row.tflops, "Tflop/s"});
    }
    return rows;
}

std::vector<Row> recompute() {
    const Machine machine("a100-selene-2022");
    std::vector<Row> rows;
    if (!machine.ok())
        return rows;
    add_layers(rows, machine.get());
    for (const Published22 &row : recompute_rows) {
        const double full_s = predict(run_of(row, false, 1), machine.get()).step_s;
        const double present_s = predict(run_of(row, true, 1), machine.get()).step_s;
        const std::string name = row.name;
        rows.push_back({"recompute T5", name + " full", full_s, row.full_s, "s"});
        rows.push_back({"recompute T5", name + " present", present_s, row.present_s, "s"});
        const crl_transformer model = run_of(row, true, 1).model;
        const double peak = 1e-2 * machine.get().peak_flops_per_s * 8 * row.pipeline * present_s;
        const double useful = crl_transformer_flops(&model, row.batch, CRL_RECOMPUTE_NONE);
        const double done = crl_transformer_flops(&model, row.batch, CRL_RECOMPUTE_SELECTIVE);
        rows.push_back({"recompute T5", name + " MFU", useful / peak, row.mfu, "%"});
        rows.push_back({"recompute T5", name + " HFU", done / peak, row.hfu, "%"});
        rows.push_back({"recompute T5", name + " speed-up", full_s / present_s,
                        row.full_s / row.present_s, "times"});
    }
    rows.push_back({"recompute T5", "530B present, 8 replicas",
                    predict(run_of(recompute_rows[2], true, 8), machine.get()).step_s, 39.15, "s"});
    return rows;
}

/* Left open by the table, settled for all rows: micro-batches of 2 samples where they fit the
 * memory, else of 1; every layer a virtual stage; optimizer state divided among the replicas, fused
 * attention, sequence parallelism, no recomputation. */
std::vector<Row> h100() {
    const Machine machine("h100-eos");
    std::vector<Row> rows;
    for (const H100 &row : h100_rows) {
        if (!machine.ok())
            break;
        const Run run = run_of(row, machine.get());
        const double flops = crl_transformer_flops(&run.model, row.batch, CRL_RECOMPUTE_NONE);
        rows.push_back({"H100 scaling", label(row.billions),
                        flops / predict(run, machine.get()).step_s / row.devices / 1e12, row.tflops,
                        "Tflop/s"});
    }
    return rows;
}

} // namespace tables
