// SPDX-License-Identifier: Apache-2.0
// Recompute: the bits of keeping everything, in less memory, which is still what was planned; and
// what is refused.
#include <gtest/gtest.h>

#include "engine/run/layout.h"
#include "tests/layouts/job.h"

namespace {

using job::Cuts;
using job::Sets;
using job::Train;
using job::Width;

Sets Mode(const std::string &mode) {
    return {{"parallel.recompute", mode}};
}

class Recompute : public testing::Test {
  protected:
    Recompute() : registries_(*crl_builtins()) {}

    Sets Gpt() const { return job::Gpt(scratch_) + Sets{{"train.steps", "2"}}; }

    // Of 8 micro-batches: F of all, then I of each followed by its W, or all W at the end.
    Sets Split(int positions, bool late) const {
        std::string csv;
        for (int p = 0; p < positions; p++) {
            const std::string stage = std::to_string(p);
            std::string row, last;
            for (int m = 0; m < 8; m++) {
                row += stage + "F" + std::to_string(m) + ",";
            }
            for (int m = 0; m < 8; m++) {
                row += stage + "I" + std::to_string(m) + ",";
                (late ? last : row) += stage + "W" + std::to_string(m) + ",";
            }
            row += last;
            csv += row.substr(0, row.size() - 1) + "\n";
        }
        const std::string path =
            scratch_ / ("split" + std::to_string(positions) + std::to_string(late) + ".csv");
        write_text(path, csv);
        return Width(positions, 1) + Sets{{"parallel.schedule", path}};
    }

    // The bits of a run; a run that fails or allocates late is a failure of the test.
    std::string Bits(const Sets &sets) const {
        const job::Outcome outcome = Train(sets, &registries_);
        EXPECT_EQ(outcome.status, CRL_STATUS_OK) << outcome.message << "\nwith " << sets.Text();
        EXPECT_EQ(outcome.result.late_allocations, 0) << "with " << sets.Text();
        EXPECT_EQ(outcome.result.late_primitives, 0) << "with " << sets.Text();
        return outcome.Bits();
    }

    void Same(const Sets &base, const std::vector<Sets> &layouts) const {
        const std::string one = Bits(base);
        for (const Sets &layout : layouts) {
            EXPECT_EQ(Bits(base + layout), one) << "with " << layout.Text();
        }
    }

    crl_memory_report Predict(const Sets &sets, int rank = 0) const {
        const job::Settings settings(sets);
        crl_layout *layout = nullptr;
        crl_memory_report report = {};
        EXPECT_EQ(settings.status(), CRL_STATUS_OK) << crl_error_message();
        EXPECT_EQ(crl_layout_create(&layout, settings.get(), crl_builtins(), nullptr),
                  CRL_STATUS_OK)
            << crl_error_message();
        EXPECT_EQ(crl_layout_memory(&report, layout, rank), CRL_STATUS_OK) << crl_error_message();
        crl_layout_destroy(layout);
        return report;
    }

    std::string Refused(const Sets &sets) const {
        const job::Outcome outcome = Train(sets);
        EXPECT_EQ(outcome.status, CRL_STATUS_INVALID) << sets.Text();
        return outcome.message;
    }

    Scratch scratch_;
    crl_registries registries_;
};

TEST_F(Recompute, EveryScheduleGivesTheSameBits) {
    std::vector<Sets> layouts = {Width(1, 1) + Mode("selective"), Width(2, 1) + Mode("full"),
                                 Width(4, 2) + Mode("full")};
    for (const crl_schedule *schedule : job::Schedules()) {
        const Sets name = job::Schedule(schedule->name);
        layouts.push_back(Width(1, 2) + name + Mode("full"));
        layouts.push_back(Width(2, 2) + name + Mode("selective"));
        layouts.push_back(Width(4, 1) + name + Mode("full"));
    }
    Same(Gpt(), layouts);
}

TEST_F(Recompute, SplitBackwardGivesTheSameBits) {
    std::vector<Sets> layouts;
    for (const char *mode : {"selective", "full"}) {
        for (int pipeline : {1, 2, 4}) {
            layouts.push_back(Split(pipeline, false) + Mode(mode));
            layouts.push_back(Split(pipeline, true) + Mode(mode));
        }
    }
    Same(Gpt(), layouts);
}

TEST_F(Recompute, StagesBlocksAndLayersChoose) {
    const Sets cuts = Cuts("[h1.attn.proj]");
    Same(Gpt(), {Width(2, 1) + Mode("[none, full]"), Width(2, 2) + Mode("[full, selective]"),
                 Width(4, 1) + Mode("[selective, h1=full, h3.attn=full, h2.mlp=none]"),
                 Mode("[h0=full, h0.attn.qkv=none, h2.mlp.gelu=selective]"),
                 Width(2, 1) + cuts + Mode("full"), Width(2, 1) + cuts + Mode("selective"),
                 Width(4, 2) + Cuts("[h0.ln1, h2.mlp.gelu, h2.mlp.proj]") + Mode("full")});
}

TEST_F(Recompute, WithoutDropoutAndWithThreadsToo) {
    Same(Gpt() + Sets{{"model.dropout", "0"}}, {Mode("selective"), Width(2, 1) + Mode("full")});
    Same(Gpt(), {Mode("full") + Sets{{"run.threads", "2"}}});
}

// Blocks a to d with skips inside them, between neighbours and over one; a's first sum is read by
// all, one value is added to itself, and every kind of cheap layer is there.
crl_status BuildSkips(crl_model *model, const void *) {
    auto add = [&](const char *type, const char *name, std::vector<const char *> inputs,
                   crl_layer_option option = {}) {
        crl_layer_desc layer = {};
        layer.type = type;
        layer.name = name;
        for (size_t i = 0; i < inputs.size(); i++) {
            layer.input[i] = inputs[i];
        }
        layer.options[0] = option;
        return crl_model_add(model, &layer);
    };
    const crl_layer_option wide = {"out", 12, nullptr}, narrow = {"out", 10, nullptr};
    const crl_layer_option half = {"p", 0.5, nullptr};
    CRL_TRY(add("input", "images", {}, {"dims", 0, "4,4"}));
    crl_layer_desc labels = {};
    labels.type = "input";
    labels.name = "labels";
    labels.options[0] = {"dtype", 0, "i32"};
    labels.options[1] = {"dims", 0, ""};
    CRL_TRY(crl_model_add(model, &labels));
    CRL_TRY(add("flatten", "a.flat", {"images"}));
    CRL_TRY(add("linear", "a.fc", {"a.flat"}, wide));
    CRL_TRY(add("relu", "a.relu", {"a.fc"}));
    CRL_TRY(add("dropout", "a.drop", {"a.relu"}, half));
    CRL_TRY(add("linear", "a.fc2", {"a.drop"}, wide));
    CRL_TRY(add("add", "a.sum", {"a.fc2", "a.relu"}));
    CRL_TRY(add("layernorm", "b.norm", {"a.sum"}));
    CRL_TRY(add("gelu", "b.gelu", {"b.norm"}));
    CRL_TRY(add("dropout", "b.drop", {"b.gelu"}, half));
    CRL_TRY(add("scale", "b.scale", {"b.drop"}));
    CRL_TRY(add("add", "b.twice", {"b.scale", "b.scale"}));
    CRL_TRY(add("linear", "b.fc", {"b.twice"}, wide));
    CRL_TRY(add("add", "b.sum", {"b.fc", "a.sum"}));
    CRL_TRY(add("relu", "c.relu", {"b.sum"}));
    CRL_TRY(add("linear", "c.fc", {"c.relu"}, wide));
    CRL_TRY(add("add", "c.skip", {"c.fc", "b.gelu"}));
    CRL_TRY(add("add", "c.sum", {"c.skip", "a.sum"}));
    CRL_TRY(add("layernorm", "c.norm", {"c.sum"}));
    CRL_TRY(add("dropout", "d.drop", {"c.norm"}, half));
    CRL_TRY(add("linear", "d.fc", {"c.norm"}, wide));
    CRL_TRY(add("add", "d.sum", {"d.fc", "d.drop"}));
    CRL_TRY(add("gelu", "d.gelu", {"d.sum"}));
    CRL_TRY(add("linear", "d.fc2", {"d.gelu"}, wide));
    CRL_TRY(add("linear", "head", {"d.fc2"}, narrow));
    return add("softmax_cross_entropy", "loss", {"head", "labels"});
}

TEST_F(Recompute, SkipsBetweenBlocksGiveTheSameBits) {
    const crl_model_def skips = {"skips", "", nullptr, 0, BuildSkips};
    const void *models[] = {&skips, nullptr};
    registries_.models = models;
    const std::string images = scratch_ / "images.idx", labels = scratch_ / "labels.idx";
    std::string pixels, classes;
    for (int i = 0; i < 40; i++) {
        for (int p = 0; p < 16; p++) {
            pixels += char(i * 37 + p * p * 11);
        }
        classes += char(i % 10);
    }
    write_text(images, data_files::Idx({40, 4, 4}, pixels));
    write_text(labels, data_files::Idx({40}, classes));
    const Sets base = {
        {"model.type", "skips"},      {"data.train", "[" + images + "," + labels + "]"},
        {"train.global_batch", "16"}, {"train.micro_batch", "2"},
        {"train.steps", "3"},         {"numerics.lanes", "4"},
        {"run.threads", "1"},         {"run.directory", scratch_ / "run"}};
    std::vector<Sets> layouts;
    for (const char *mode : {"selective", "full"}) {
        layouts.push_back(Mode(mode));
        for (const char *cut : {"a.relu", "a.drop", "a.sum", "b.norm", "b.gelu", "b.drop",
                                "b.twice", "b.sum", "c.relu", "c.skip", "d.drop", "d.fc", "head"}) {
            layouts.push_back(Width(2, 1) + Cuts(std::string("[") + cut + "]") + Mode(mode));
            layouts.push_back(Split(2, true) + Cuts(std::string("[") + cut + "]") + Mode(mode));
        }
        layouts.push_back(Width(4, 2) + Cuts("[a.sum, b.drop, d.sum]") + Mode(mode));
    }
    Same(base, layouts);
}

// (Where a W comes long after its I, what it reads and I has made again lives as long.)
TEST_F(Recompute, MemoryShrinksAndIsWhatIsReserved) {
    for (const Sets &layout : {Width(1, 1), Width(2, 1), Width(2, 2) + job::Schedule("gpipe"),
                               Width(4, 1), Split(2, false)}) {
        size_t before = SIZE_MAX;
        for (const char *mode : {"none", "selective", "full"}) {
            const Sets sets = Gpt() + layout + Mode(mode);
            const crl_memory_report report = Predict(sets);
            EXPECT_LT(report.activations_bytes, before) << sets.Text();
            before = report.activations_bytes;
            const job::Outcome outcome = Train(sets);
            ASSERT_EQ(outcome.status, CRL_STATUS_OK) << outcome.message;
            EXPECT_EQ(outcome.result.reserved_bytes, int64_t(report.total_bytes)) << sets.Text();
        }
    }
}

// What four more blocks keep of the only micro-batch.
TEST_F(Recompute, AFullBlockKeepsItsInput) {
    const auto activations = [&](const char *layers, const char *mode) {
        return Predict(Gpt() + Mode(mode) +
                       Sets{{"model.layers", layers}, {"train.global_batch", "2"}})
            .activations_bytes;
    };
    const size_t stream_bytes = sizeof(float) * 2 * 16 * 32,
                 heads_bytes = sizeof(float) * 2 * 2 * 16;
    const size_t rows_bytes = sizeof(float) * 2 * 16, more = 4;
    // ln1, qkv (3), attention, res1, ln2, fc (4), gelu (4), and the block's result.
    EXPECT_EQ(activations("8", "none") - activations("4", "none"),
              more * (16 * stream_bytes + heads_bytes + 4 * rows_bytes));
    // Not ln1, ln2, gelu and what their backward saves.
    EXPECT_EQ(activations("8", "selective") - activations("4", "selective"),
              more * (10 * stream_bytes + heads_bytes));
    EXPECT_EQ(activations("8", "full") - activations("4", "full"), more * stream_bytes);
}

TEST_F(Recompute, BadListsSayWhereTheyWereGiven) {
    const auto message = [&](const char *list, int pipeline = 1) {
        const std::string text = Refused(Gpt() + Width(pipeline, 1) + Mode(list));
        const size_t key = text.find(": parallel.recompute: ");
        EXPECT_EQ(text.find("--set:"), 0u) << text;
        EXPECT_NE(key, std::string::npos) << text;
        return key == std::string::npos ? text : text.substr(key + 22);
    };
    EXPECT_EQ(message("ful"),
              "unknown mode 'ful', did you mean 'full'? (choices: none, selective, full)");
    EXPECT_EQ(message("everything"), "unknown mode 'everything' (choices: none, selective, full)");
    EXPECT_EQ(message("h0="), "unknown mode '' (choices: none, selective, full)");
    EXPECT_EQ(message("[none, full]"), "2 modes, expected 1 or one for each of 1 stage");
    EXPECT_EQ(message("[none, full]", 4), "2 modes, expected 1 or one for each of 4 stages");
    EXPECT_EQ(message("[full, h9=none]"), "no layer or block 'h9', did you mean 'h0'?");
    EXPECT_EQ(message("h0.mlp.gelo=full"),
              "no layer or block 'h0.mlp.gelo', did you mean 'h0.mlp.gelu'?");
    EXPECT_EQ(message("zebra=full"), "no layer or block 'zebra'");
    EXPECT_EQ(message("[h0=full, none]"), "'none' after 'h0=full', expected modes before names");
}

// One rank alone has one stage, whatever the list was written for.
TEST_F(Recompute, ModesOfStagesDoNotReachGeneration) {
    const Sets sets = Gpt() + Width(2, 1) + Mode("[full, none]");
    ASSERT_EQ(Train(sets).status, CRL_STATUS_OK);
    const job::Settings settings(sets);
    const int32_t prompt[] = {1, 2, 3};
    int made = 0;
    crl_generate_config config = {};
    config.prompt = prompt;
    config.prompt_count = 3;
    config.count = 2;
    config.context = &made;
    config.token = [](void *count, int32_t) { return ++*static_cast<int *>(count) > 0; };
    const std::string directory = scratch_ / "run";
    config.checkpoint = directory.c_str();
    EXPECT_EQ(crl_generate(settings.get(), crl_builtins(), &config), CRL_STATUS_OK)
        << crl_error_message();
    EXPECT_EQ(made, 2);
}

} // namespace
