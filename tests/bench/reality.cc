// SPDX-License-Identifier: Apache-2.0
// Prediction against reality: trains a small GPT in many layouts on this machine and prints, for
// each, the step time that the cost model makes of measured profiles, the one that training takes,
// and whether the memory plan is the reservation, to the byte. Profiles and runs take turns, so
// that a machine that becomes faster or slower does so for both. Asserts nothing.
//   bench_reality [REPEATS [STEPS [FILTER]]]   (default: 3 15, all layouts)
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "cli/builtins.h"
#include "engine/base/file.h"
#include "engine/base/thread.h"
#include "engine/run/profile.h"
#include "engine/run/trainer.h"
#include "partition/predict.h"

namespace {

struct Case {
    int blocks, pipeline, data, virtual_stages, micro_batches, lanes;
    const char *schedule, *recompute, *cut;
};

const Case cases[] = {
    {4, 1, 1, 1, 4, 1, "1f1b", "none", ""},        {4, 1, 1, 1, 4, 1, "1f1b", "full", ""},
    {4, 1, 2, 1, 4, 2, "1f1b", "none", ""},        {4, 1, 2, 1, 16, 4, "1f1b", "selective", ""},
    {8, 1, 2, 1, 8, 2, "1f1b", "none", ""},        {4, 2, 1, 1, 4, 1, "gpipe", "none", ""},
    {4, 2, 1, 1, 8, 1, "gpipe", "none", ""},       {4, 2, 1, 1, 2, 1, "1f1b", "none", ""},
    {4, 2, 1, 1, 4, 1, "1f1b", "none", ""},        {4, 2, 1, 1, 8, 1, "1f1b", "none", ""},
    {4, 2, 1, 1, 16, 4, "1f1b", "none", ""},       {4, 2, 1, 1, 8, 1, "1f1b", "selective", ""},
    {4, 2, 1, 1, 8, 1, "1f1b", "full", ""},        {4, 2, 1, 1, 8, 1, "1f1b", "full,none", ""},
    {4, 2, 1, 1, 8, 1, "1f1b", "none", "h1.ln1"},  {4, 2, 1, 1, 8, 1, "gpipe", "none", "h3.ln1"},
    {4, 2, 1, 2, 4, 1, "interleaved", "none", ""}, {4, 2, 1, 2, 8, 1, "interleaved", "none", ""},
    {8, 2, 1, 1, 8, 1, "1f1b", "none", ""},        {8, 2, 1, 4, 8, 1, "interleaved", "none", ""},
    {8, 2, 1, 1, 8, 1, "zb-h1", "none", ""},       {4, 2, 1, 1, 8, 1, "zb-h1", "none", ""},
    {4, 2, 1, 1, 8, 1, "zb-h2", "none", ""},       {4, 2, 1, 2, 8, 1, "zb-v", "none", ""},
    {4, 2, 1, 2, 8, 1, "v-half", "none", ""},      {4, 2, 1, 2, 8, 1, "dualpipe-v", "none", ""},
    {4, 2, 1, 2, 8, 1, "bfs", "full", ""},         {4, 2, 1, 1, 8, 1, "zb-2p", "none", ""},
    {4, 2, 1, 1, 8, 1, "auto", "none", ""},
};

const int context = 64, micro_batch = 4;
int repeats = 3, steps = 15;
std::string folder;

[[noreturn]] void Fail() {
    fprintf(stderr, "bench_reality: %s\n", crl_error_message());
    exit(1);
}

void Try(crl_status status) {
    if (status) {
        Fail();
    }
}

bool Known(const char *schedule) {
    for (int i = 0; crl_builtins()->schedules[i]; i++) {
        if (strcmp(((const crl_schedule *)crl_builtins()->schedules[i])->name, schedule) == 0) {
            return true;
        }
    }
    return false;
}

crl_settings *Load(const Case &c) {
    const auto number = [](const char *key, int value) {
        return std::string(key) + "=" + std::to_string(value);
    };
    std::vector<std::string> sets = {"model.type=gpt",
                                     number("model.layers", c.blocks),
                                     "model.heads=4",
                                     "model.channels=128",
                                     number("model.context", context),
                                     "model.vocabulary=256",
                                     "model.dropout=0",
                                     "data.train=" + folder + "/tokens.bin",
                                     number("parallel.pipeline", c.pipeline),
                                     number("parallel.data", c.data),
                                     number("parallel.virtual_stages", c.virtual_stages),
                                     std::string("parallel.schedule=") + c.schedule,
                                     std::string("parallel.recompute=") + c.recompute,
                                     number("numerics.lanes", c.lanes),
                                     number("train.micro_batch", micro_batch),
                                     number("train.global_batch", micro_batch * c.micro_batches),
                                     number("train.steps", steps),
                                     "optimizer.type=adamw",
                                     "optimizer.clip=1",
                                     "run.threads=1",
                                     "run.directory=" + folder + "/run"};
    if (c.cut[0]) {
        sets.push_back("parallel.partitioner=manual");
        sets.push_back(std::string("parallel.cuts=") + c.cut);
    }
    std::vector<const char *> lent;
    for (const std::string &set : sets) {
        lent.push_back(set.c_str());
    }
    crl_settings *settings = nullptr;
    Try(crl_settings_load(&settings, crl_builtins(), nullptr, nullptr, lent.data(),
                          int(lent.size())));
    return settings;
}

// Tokens in llm.c's format: 256 numbers of a header, then 16 bits each.
void WriteTokens() {
    const int count = 64 * 1024;
    std::vector<uint32_t> header(256);
    header[0] = 20240520;
    header[1] = 1;
    header[2] = count;
    std::vector<uint16_t> token(count);
    uint32_t state = 1;
    for (uint16_t &t : token) {
        state = state * 1664525u + 1013904223u;
        t = uint16_t(state >> 24);
    }
    std::string all(reinterpret_cast<char *>(header.data()), header.size() * 4);
    all.append(reinterpret_cast<char *>(token.data()), token.size() * 2);
    Try(crl_file_write_atomic((folder + "/tokens.bin").c_str(), all.data(), all.size()));
}

double Median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

// What was measured of one model with so many ranks at work.
struct Costs {
    crl_profile *profile = nullptr;
    crl_machine machine = {};
};

Costs Measure(const Case &c, int ranks) {
    Costs costs;
    crl_settings *settings = Load(c);
    crl_measured measured = {};
    crl_measure_config config = {};
    config.settings = settings;
    config.registries = crl_builtins();
    config.ranks = ranks;
    config.split = true;
    Try(crl_measure(&measured, &config));
    Try(crl_measured_profile(&costs.profile, &measured, settings, crl_builtins()));
    costs.machine = crl_measured_machine(&measured, "this machine");
    crl_measured_fini(&measured);
    crl_settings_destroy(settings);
    return costs;
}

struct Result {
    std::vector<double> predicted_s, step_s;
    std::vector<double> pipeline_s, reduce_s, update_s; // parts of the prediction
    bool memory_equal = true;
    size_t planned = 0;
};

// The mode of each stage: one for all, or one each.
std::vector<unsigned char> Modes(const Case &c, int stages) {
    std::vector<unsigned char> modes;
    std::string text = c.recompute;
    for (size_t at = 0; at <= text.size();) {
        const size_t comma = std::min(text.find(',', at), text.size());
        const std::string word = text.substr(at, comma - at);
        modes.push_back(word == "full"        ? CRL_RECOMPUTE_FULL
                        : word == "selective" ? CRL_RECOMPUTE_SELECTIVE
                                              : CRL_RECOMPUTE_NONE);
        at = comma + 1;
    }
    modes.resize(size_t(stages), modes.back());
    return modes;
}

void Predict(Result *result, const Case &c, const Costs &costs) {
    crl_settings *settings = Load(c);
    crl_layout *layout = nullptr;
    crl_prediction prediction = {};
    crl_memory_report report = {};
    Try(crl_layout_create(&layout, settings, crl_builtins(), nullptr));
    const std::vector<unsigned char> modes = Modes(c, layout->stages);
    crl_hybrid hybrid = {};
    hybrid.tensor = 1;
    hybrid.pipelines = layout->mesh.data;
    hybrid.positions = layout->mesh.pipeline;
    hybrid.stages = layout->stages;
    hybrid.first = layout->partition.first;
    hybrid.recompute = modes.data();
    hybrid.schedule = layout->schedule;
    hybrid.micro_batches = layout->micro_batches;
    hybrid.lanes = layout->lanes;
    Try(crl_predict(&prediction, nullptr, &hybrid, costs.profile, &costs.machine));
    result->predicted_s.push_back(prediction.step_s);
    result->pipeline_s.push_back(prediction.pipeline_s);
    result->reduce_s.push_back(prediction.reduce_s);
    result->update_s.push_back(prediction.update_s);
    Try(crl_layout_memory(&report, layout, 0));
    result->planned = report.total_bytes;
    crl_layout_destroy(layout);
    crl_settings_destroy(settings);
}

// The times between the ends of steps, without those of the first three.
void Train(Result *result, const Case &c) {
    crl_settings *settings = Load(c);
    std::vector<double> ends;
    crl_run_result run = {};
    crl_run_events events = {};
    events.context = &ends;
    events.stepped = [](void *context, const crl_step_report *) {
        static_cast<std::vector<double> *>(context)->push_back(double(crl_clock_ns()) * 1e-9);
    };
    Try(crl_file_remove((folder + "/run").c_str()));
    Try(crl_train(&run, settings, crl_builtins(), &events));
    for (size_t i = 3; i < ends.size(); i++) {
        result->step_s.push_back(ends[i] - ends[i - 1]);
    }
    result->memory_equal = result->memory_equal && size_t(run.reserved_bytes) == result->planned;
    crl_settings_destroy(settings);
}

void RunAll(std::vector<Result> *results, const std::vector<Case> &chosen) {
    std::map<std::pair<int, int>, Costs> costs; // by blocks and ranks
    for (const Case &c : chosen) {
        const std::pair<int, int> key = {c.blocks, c.pipeline * c.data};
        if (costs.find(key) == costs.end()) {
            costs[key] = Measure(c, key.second);
        }
    }
    for (size_t i = 0; i < chosen.size(); i++) {
        const Case &c = chosen[i];
        Predict(&(*results)[i], c, costs[{c.blocks, c.pipeline * c.data}]);
        Train(&(*results)[i], c);
        fprintf(stderr, "  %s %s M %d: predicted %.1f ms, measured %.1f ms\n", c.schedule,
                c.recompute, c.micro_batches, (*results)[i].predicted_s.back() * 1e3,
                Median((*results)[i].step_s) * 1e3);
    }
    for (auto &[key, one] : costs) {
        crl_profile_destroy(one.profile);
    }
}

void Print(const std::vector<Case> &chosen, const std::vector<Result> &results) {
    std::vector<double> errors;
    printf("| blocks | P x D | schedule | M | recompute | cut | predicted ms (sums, update) | "
           "measured ms | error | memory |\n|---|---|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < chosen.size(); i++) {
        const Case &c = chosen[i];
        const Result &r = results[i];
        const double predicted = Median(r.predicted_s), measured = Median(r.step_s);
        errors.push_back(std::fabs(predicted / measured - 1));
        printf(
            "| %d | %d x %d | %s%s%s | %d | %s | %s | %.1f (%.1f, %.1f) | %.1f | %+.1f %% | %s |\n",
            c.blocks, c.pipeline, c.data, c.schedule, c.virtual_stages > 1 ? " x" : "",
            c.virtual_stages > 1 ? std::to_string(c.virtual_stages).c_str() : "", c.micro_batches,
            c.recompute, c.cut[0] ? c.cut : "balance", predicted * 1e3, Median(r.reduce_s) * 1e3,
            Median(r.update_s) * 1e3, measured * 1e3, 100 * (predicted / measured - 1),
            r.memory_equal ? "equal" : "DIFFERS");
    }
    std::sort(errors.begin(), errors.end());
    size_t within = 0;
    for (double error : errors) {
        within += error <= 0.1;
    }
    printf("\n%zu layouts: median error %.1f %%, largest %.1f %%, %zu within 10 %%\n",
           errors.size(), 100 * errors[errors.size() / 2], 100 * errors.back(), within);
}

} // namespace

int main(int argc, char **argv) {
    char name[] = "/tmp/carole-reality-XXXXXX";
    repeats = argc > 1 ? std::max(1, atoi(argv[1])) : repeats;
    steps = argc > 2 ? std::max(5, atoi(argv[2])) : steps;
    folder = mkdtemp(name) ? name : ".";
    WriteTokens();
    std::vector<Case> chosen;
    for (const Case &c : cases) {
        const bool wanted = argc <= 3 || strstr(c.schedule, argv[3]);
        if (wanted && Known(c.schedule) && c.pipeline * c.data <= crl_cpu_count()) {
            chosen.push_back(c);
        }
    }
    std::vector<Result> results(chosen.size());
    for (int r = 0; r < repeats && !chosen.empty(); r++) {
        fprintf(stderr, "round %d of %d\n", r + 1, repeats);
        RunAll(&results, chosen);
    }
    if (!chosen.empty()) {
        Print(chosen, results);
    }
    return crl_file_remove(folder.c_str()) == CRL_STATUS_OK ? 0 : 1;
}
