// SPDX-License-Identifier: Apache-2.0
// Published tables, predicted row by row: one machine description per table and no other numbers
// than those the table gives. What a table leaves open is settled by one rule for all of its rows,
// stated with it.
#pragma once

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "cli/builtins.h"
#include "engine/base/registry.h"
#include "engine/run/machine.h"
#include "partition/predict.h"
#include "partition/transformer.h"

namespace tables {

struct Row {
    std::string table, name;
    double predicted, published;
    std::string unit;
    double error() const { return predicted / published - 1; }
};

inline void print(const std::vector<Row> &rows, FILE *out) {
    for (const Row &row : rows)
        fprintf(out, "%-18s %-28s %9.4g predicted %9.4g published %-8s %+5.1f %%\n",
                row.table.c_str(), row.name.c_str(), row.predicted, row.published, row.unit.c_str(),
                100 * row.error());
}

/* A machine of configs/machines. */
class Machine {
  public:
    explicit Machine(const std::string &name) {
        const std::string path = folder() + name + ".yaml";
        ok_ = crl_machine_file_read(&file_, path.c_str(), nullptr, 0) == CRL_STATUS_OK;
        if (!ok_)
            fprintf(stderr, "%s\n", crl_error_message());
    }
    ~Machine() { crl_machine_file_fini(&file_); }
    Machine(const Machine &) = delete;
    Machine &operator=(const Machine &) = delete;
    bool ok() const { return ok_; }
    const crl_machine &get() const { return file_.machine; }

  private:
    static std::string folder();
    crl_machine_file file_ = {};
    bool ok_ = false;
};

inline const crl_schedule *schedule(const char *name) {
    const void *found = nullptr;
    const crl_status status =
        crl_registry_find(&found, crl_builtins()->schedules, "schedule", name);
    return status == CRL_STATUS_OK ? static_cast<const crl_schedule *>(found) : nullptr;
}

/* A run of Megatron: equal numbers of layers per stage, the embedding with the first, the head with
 * the last; 1F1B, interleaved where stages are virtual. */
struct Run {
    crl_transformer model;
    int pipeline, virtual_stages, pipelines, global_batch, recompute;
};

/* step_s is NAN when there is no prediction; the error says why. */
inline crl_prediction predict(const Run &run, const crl_machine &machine) {
    crl_prediction result = {};
    crl_profile *profile = nullptr;
    result.step_s = NAN;
    if (crl_transformer_profile(&profile, &run.model, &machine) != CRL_STATUS_OK)
        return result;
    const int stages = run.pipeline * run.virtual_stages;
    std::vector<int> first(static_cast<size_t>(stages));
    for (int s = 1; s < stages; ++s)
        first[static_cast<size_t>(s)] = static_cast<int>(1 + run.model.layers * s / stages);
    const std::vector<unsigned char> mode(first.size(), static_cast<unsigned char>(run.recompute));
    crl_hybrid layout = {};
    layout.tensor = run.model.tensor;
    layout.pipelines = run.pipelines;
    layout.positions = run.pipeline;
    layout.stages = stages;
    layout.first = first.data();
    layout.recompute = mode.data();
    layout.schedule = schedule(run.virtual_stages > 1 ? "interleaved" : "1f1b");
    layout.micro_batches = run.global_batch / static_cast<int>(run.model.micro_batch);
    layout.lanes = run.pipelines;
    if (crl_predict(&result, nullptr, &layout, profile, &machine) != CRL_STATUS_OK)
        result.step_s = NAN;
    crl_profile_destroy(profile);
    return result;
}

inline crl_transformer transformer(int heads, int hidden, int layers, int tensor, int micro_batch,
                                   int sequence, int vocabulary) {
    crl_transformer model = {};
    model.heads = heads;
    model.hidden = hidden;
    model.layers = layers;
    model.tensor = tensor;
    model.micro_batch = micro_batch;
    model.sequence = sequence;
    model.vocabulary = vocabulary;
    model.gathered_messages = true;
    return model;
}

/* The tables. Each is empty when its machine cannot be read. */
std::vector<Row> sc21();
std::vector<Row> recompute();
std::vector<Row> h100();
std::vector<Row> gpipe();

} // namespace tables
