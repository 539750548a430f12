// SPDX-License-Identifier: Apache-2.0
// Speed-ups of [huang19] tables 2 and 3 over two accelerators.
//
// The paper does not give layer times or batches ("adjusted to fit memory if necessary"), so each
// model is described by a few constants, in units of one sample's forward:
// - Transformer-48: 48 equal layers. A micro-batch of m samples takes m + 1.2; the batch is as many
//   whole samples as fit the memory, at most 32 and at least one per micro-batch.
// - AmoebaNet-D: 24 cells in three groups of equal size, each at half the resolution of the one
//   before it; GPipe gives every partition as many cells. A micro-batch takes m + 0.83, the cells
//   of a group 0.4 of those of the group before. The batch is 10 samples, or one per micro-batch.
//   On the TPU a step takes 55 more, divided among the partitions, and 23.6 that are not.
// A partition is made again as a whole in backward, which takes twice its forward.
#include "tests/cli/tables.h"

namespace tables {

namespace {

struct Model {
    const char *name;
    int layers, groups;
    double group_ratio;    // of a layer to one of the group before it
    double fixed;          // of a micro-batch, in samples
    double step, single;   // of a step: divided among partitions, or one's alone; in samples
    int batch;             // samples of a step; more where there are more micro-batches
    double flops;          // of a sample's forward
    double boundary_bytes; // of a sample, between layers
    double state_bytes, sample_bytes; // of the model, and what a sample's layers keep
    double partition_bytes;           // that a sample takes in any partition
};

const Model transformer48 = {"Transformer-48", 48,    1,      1,      1.2,   0, 0, 32,
                             5.4e12,           8.4e6, 6.64e9, 18.1e9, 3.02e9};
const Model amoebanet = {"AmoebaNet-D", 24, 3, 0.4, 0.83, 55, 23.6, 10, 1.0e12, 4e6, 0, 0, 0};

double share(const Model &model, int layer) {
    double all = 0, own = 0;
    for (int i = 0; i < model.layers; ++i) {
        const double cost = std::pow(model.group_ratio, i * model.groups / model.layers);
        all += cost;
        own += i == layer ? cost : 0;
    }
    return own / all;
}

struct Partitioned {
    const Model &model;
    const crl_machine &machine;
    int parts, micro_batches;
    bool steps; // whether a step takes more than its micro-batches
};

void fill(crl_profile_unit *unit, const Partitioned &at, int part, double samples) {
    const Model &model = at.model;
    const double sample_s = model.flops / (at.machine.peak_flops_per_s * at.machine.efficiency);
    const int each = model.layers / at.parts;
    for (int i = part * each; i < (part + 1) * each; ++i)
        unit->forward_s += share(model, i) * (samples + model.fixed) * sample_s;
    unit->input_s = unit->weight_s = unit->forward_s;
    unit->recompute_s[CRL_RECOMPUTE_FULL] = unit->forward_s;
    unit->output_bytes = samples * model.boundary_bytes;
    unit->kept_bytes[CRL_RECOMPUTE_FULL] = unit->output_bytes;
    unit->workspace_bytes = samples * (model.partition_bytes + model.sample_bytes / at.parts);
    unit->state_bytes = model.state_bytes / at.parts;
    unit->update_s =
        (at.steps ? (model.step / at.parts + (part == 0 ? model.single : 0)) * sample_s : 0) + 1e-9;
}

/* A step of `batch` samples, in micro-batches of equal parts of it. */
crl_prediction step(const Partitioned &at, int batch) {
    crl_prediction result = {};
    crl_profile *profile = nullptr;
    result.step_s = NAN;
    if (crl_profile_create(&profile, at.parts) != CRL_STATUS_OK)
        return result;
    std::vector<int> first;
    for (int p = 0; p < at.parts; ++p) {
        const int before = p - 1;
        const crl_status named =
            crl_profile_name_unit(profile, p, ("part" + std::to_string(p)).c_str(), p > 0, &before);
        fill(&profile->unit[p], at, p, static_cast<double>(batch) / at.micro_batches);
        first.push_back(named == CRL_STATUS_OK ? p : -1);
    }
    const std::vector<unsigned char> mode(first.size(), CRL_RECOMPUTE_FULL);
    crl_hybrid layout = {};
    layout.tensor = layout.pipelines = 1;
    layout.positions = layout.stages = at.parts;
    layout.first = first.data();
    layout.recompute = mode.data();
    layout.schedule = schedule("gpipe");
    layout.micro_batches = at.micro_batches;
    if (crl_predict(&result, nullptr, &layout, profile, &at.machine) != CRL_STATUS_OK)
        result.step_s = NAN;
    crl_profile_destroy(profile);
    return result;
}

double samples_per_s(const Partitioned &at) {
    int batch = std::max(at.model.batch, at.micro_batches);
    crl_prediction result = step(at, batch);
    while (batch > at.micro_batches && result.peak_bytes > at.machine.memory_bytes)
        result = step(at, --batch);
    return batch / result.step_s;
}

struct Published {
    int parts, micro_batches;
    double speedup;
};

void add(std::vector<Row> &rows, const char *table, const Model &model, const Machine &machine,
         bool steps, const std::vector<Published> &published) {
    if (!machine.ok())
        return;
    const Published &base = published[0];
    const double unit =
        samples_per_s({model, machine.get(), base.parts, base.micro_batches, steps});
    for (const Published &row : published) {
        const double speed =
            samples_per_s({model, machine.get(), row.parts, row.micro_batches, steps});
        rows.push_back({table,
                        std::string(model.name) + " K=" + std::to_string(row.parts) +
                            " M=" + std::to_string(row.micro_batches),
                        speed / unit, row.speedup, "times"});
    }
}

} // namespace

std::vector<Row> gpipe() {
    const Machine tpu("tpu-v3"), p100("p100-pcie");
    std::vector<Row> rows;
    add(rows, "GPipe table 2", amoebanet, tpu, true,
        {{2, 1, 1},
         {4, 1, 1.13},
         {8, 1, 1.38},
         {2, 4, 1.07},
         {4, 4, 1.26},
         {8, 4, 1.72},
         {2, 32, 1.21},
         {4, 32, 1.84},
         {8, 32, 3.48}});
    add(rows, "GPipe table 2", transformer48, tpu, true,
        {{2, 1, 1},
         {4, 1, 1.07},
         {8, 1, 1.3},
         {2, 4, 1.7},
         {4, 4, 3.2},
         {8, 4, 4.8},
         {2, 32, 1.8},
         {4, 32, 3.4},
         {8, 32, 6.3}});
    add(rows, "GPipe table 3", amoebanet, p100, false, {{2, 32, 1}, {4, 32, 1.7}, {8, 32, 2.7}});
    add(rows, "GPipe table 3", transformer48, p100, false,
        {{2, 32, 1}, {4, 32, 1.8}, {8, 32, 3.3}});
    return rows;
}

} // namespace tables
