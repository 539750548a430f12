// SPDX-License-Identifier: Apache-2.0
// The optimizer step without a barrier (optimizer.validate=after): the numbers of every step, the
// parameters and what is saved are those of validate=before, whether updates are taken back or not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "engine/ir/layer.h"
#include "engine/ir/schedule.h"
#include "tests/layouts/job.h"

extern "C" {
#include "engine/run/run_internal.h"
}

namespace {

using job::Schedule;
using job::Sets;
using job::Width;

// A run with what was reported of every step. `stop_at`: every rank asks for the end in that step.
struct Report {
    crl_status status = CRL_STATUS_OK;
    std::string message;
    crl_run_result result = {};
    std::vector<crl_step_report> step;
    int stop_at = 0;

    // What must be equal, as bits.
    std::string Bits() const {
        std::string text;
        char line[160];
        for (const crl_step_report &s : step) {
            snprintf(line, sizeof line, "%d: %a %a %a %g %g %g%s\n", int(s.step), s.loss,
                     s.gradient_norm, s.learning_rate, s.samples, s.tokens, s.epoch,
                     s.stopping ? " stopping" : "");
            text += line;
        }
        snprintf(line, sizeof line, "%d%s %016llx, evaluated %d: %a %a", int(result.steps),
                 result.stopped ? " stopped" : "",
                 static_cast<unsigned long long>(result.parameter_hash),
                 int(result.evaluation.step), result.evaluation.loss, result.evaluation.accuracy);
        return text + line;
    }
};

thread_local int asked = 0; // a rank is a thread of its own

Report TrainReported(const Sets &sets, const crl_registries *registries, int stop_at = 0) {
    Report run;
    run.stop_at = stop_at;
    crl_error_clear();
    const job::Settings settings(sets, registries);
    crl_run_events events = {};
    events.context = &run;
    events.stepped = [](void *context, const crl_step_report *report) {
        static_cast<Report *>(context)->step.push_back(*report);
    };
    events.stop = [](void *context) { return ++asked == static_cast<Report *>(context)->stop_at; };
    run.status = settings.status() ? settings.status()
                                   : crl_train(&run.result, settings.get(), registries, &events);
    run.message = run.status ? crl_error_message() : "";
    return run;
}

Sets After() {
    return {{"optimizer.validate", "after"}};
}

Sets Clip(double norm) {
    char text[40];
    snprintf(text, sizeof text, "%.17g", norm);
    return {{"optimizer.clip", text}};
}

// All forwards, then all input gradients, then all weight gradients.
crl_status BuildSplit(crl_program **out, const crl_schedule_request *request) {
    crl_program *program = nullptr;
    CRL_TRY(
        crl_program_create(&program, request->positions, request->stages, request->micro_batches));
    for (crl_action_kind kind : {CRL_ACTION_FORWARD, CRL_ACTION_INPUT, CRL_ACTION_WEIGHT}) {
        for (int p = 0; p < request->positions; p++) {
            for (int m = 0; m < request->micro_batches; m++) {
                CRL_TRY(crl_program_append(program, p, kind, p, m));
            }
        }
    }
    *out = program;
    return CRL_STATUS_OK;
}

// A linear layer whose weight gradient is no number in step 5.
const crl_layer *true_linear = nullptr;
crl_status BrokenWeight(const crl_layer_call *call) {
    CRL_TRY(true_linear->backward_weight(call));
    if (call->at.step == 5) {
        call->dw[0][0] = NAN;
    }
    return CRL_STATUS_OK;
}

class LayoutsValidate : public testing::Test {
  protected:
    LayoutsValidate() : registries_(*crl_builtins()) {
        for (const void *const *at = crl_builtins()->schedules; *at; at++) {
            schedules_.push_back(*at);
        }
        split_.name = "split";
        split_.help = "";
        split_.least_virtual = split_.most_virtual = 1;
        split_.build = BuildSplit;
        split_.bubble = [](const crl_schedule_request *) { return 1.0; };
        split_.peak_activations = [](const crl_schedule_request *r, int) {
            return r->micro_batches;
        };
        schedules_.insert(schedules_.end(), {&split_, nullptr});
        registries_.schedules = schedules_.data();
        for (const void *const *at = crl_builtins()->layers; *at; at++) {
            layers_.push_back(*at);
        }
        layers_.push_back(nullptr);
    }

    void BreakLinear() {
        for (const void *&entry : layers_) {
            const auto *layer = static_cast<const crl_layer *>(entry);
            if (layer && strcmp(layer->name, "linear") == 0) {
                true_linear = layer;
                broken_ = *layer;
                broken_.backward = nullptr;
                broken_.backward_weight = BrokenWeight;
                entry = &broken_;
            }
        }
        registries_.layers = layers_.data();
    }

    Sets Gpt() const {
        return job::Gpt(scratch_) +
               Sets{{"model.layers", "2"}, {"model.channels", "16"}, {"train.steps", "12"}};
    }

    Report Good(const Sets &sets, int stop_at = 0) const {
        const Report run = TrainReported(sets, &registries_, stop_at);
        EXPECT_EQ(run.status, CRL_STATUS_OK) << run.message << "\nwith " << sets.Text();
        EXPECT_EQ(run.result.late_allocations, 0) << sets.Text();
        EXPECT_EQ(run.result.late_primitives, 0) << sets.Text();
        return run;
    }

    // A norm that some steps exceed and some do not, when gradients are clipped to it.
    double Sometimes(const Sets &sets) const {
        std::vector<double> norms;
        for (const crl_step_report &step : Good(sets + Clip(0)).step) {
            norms.push_back(step.gradient_norm);
        }
        std::sort(norms.begin(), norms.end());
        return norms[norms.size() / 2];
    }

    // Updates that were made too early: of a step above the norm that had no reason to wait.
    static int Rollbacks(const Report &before, double clip, const std::vector<int> &settled) {
        int count = 0;
        bool clipped = false;
        for (const crl_step_report &step : before.step) {
            const bool waits =
                clipped || step.stopping ||
                std::find(settled.begin(), settled.end(), int(step.step)) != settled.end();
            clipped = step.gradient_norm > clip;
            count += clipped && !waits;
        }
        return count;
    }

    void Same(const Report &before, const Sets &sets, int rollbacks) const {
        const Report after = Good(sets + After());
        EXPECT_EQ(after.Bits(), before.Bits()) << sets.Text();
        EXPECT_EQ(after.result.rollbacks, rollbacks) << sets.Text();
    }

    std::vector<Sets> EverySchedule() const {
        std::vector<Sets> all;
        for (const void *schedule : schedules_) {
            if (schedule) {
                all.push_back(Schedule(static_cast<const crl_schedule *>(schedule)->name));
            }
        }
        return all;
    }

    Scratch scratch_;
    crl_registries registries_;
    crl_schedule split_ = {};
    crl_layer broken_ = {};
    std::vector<const void *> schedules_, layers_;
};

TEST_F(LayoutsValidate, SameBitsWhenSomeStepsAreClipped) {
    const double clip = Sometimes(Gpt());
    const Report before = Good(Gpt() + Clip(clip));
    const int rollbacks = Rollbacks(before, clip, {12});
    EXPECT_GT(rollbacks, 1);
    for (const Sets &schedule : EverySchedule()) {
        for (int pipeline : {1, 2, 4}) {
            for (int data : {1, 2}) {
                Same(before, Gpt() + Clip(clip) + Width(pipeline, data) + schedule, rollbacks);
            }
        }
    }
}

TEST_F(LayoutsValidate, SameBitsWhenNoneOrAllAreClipped) {
    for (double clip : {0.0, 1e9, 1e-4}) {
        const Sets sets = Gpt() + Clip(clip);
        const Report before = Good(sets);
        for (const Sets &layout : {Width(1, 1), Width(2, 2), Width(4, 1) + Schedule("gpipe")}) {
            Same(before, sets + layout, clip == 1e-4 ? 1 : 0); // the next step waits, and so on
        }
    }
}

TEST_F(LayoutsValidate, IdleReplicasAndUnevenOnes) {
    for (const char *batch : {"2", "6"}) {
        const Sets sets = Gpt() + Sets{{"train.global_batch", batch}};
        const double clip = Sometimes(sets);
        const Report before = Good(sets + Clip(clip));
        for (const Sets &layout : {Width(1, 4), Width(2, 4), Width(2, 3)}) {
            Same(before, sets + Clip(clip) + layout, Rollbacks(before, clip, {12}));
        }
    }
}

TEST_F(LayoutsValidate, WidthsOfStagesAndRecomputing) {
    const Sets sets = Gpt() + Sets{{"train.steps", "8"}};
    const double clip = Sometimes(sets);
    const Report before = Good(sets + Clip(clip));
    for (const Sets &layout : {Sets{{"parallel.replicas", "[3, 1]"}},
                               Sets{{"parallel.replicas", "[1, 2, 1]"}} + Schedule("gpipe"),
                               Width(2, 2) + Sets{{"parallel.recompute", "full"}}}) {
        Same(before, sets + Clip(clip) + layout, Rollbacks(before, clip, {8}));
    }
}

TEST_F(LayoutsValidate, PlannedMemoryIsWhatIsReserved) {
    for (const Sets &layout : {Width(1, 1), Width(2, 2)}) {
        crl_memory_report planned[2] = {};
        for (int i = 0; i < 2; i++) {
            const Sets sets = Gpt() + layout + (i == 0 ? Sets{} : After());
            const job::Settings settings(sets, &registries_);
            crl_layout *made = nullptr;
            ASSERT_EQ(crl_layout_create(&made, settings.get(), &registries_, nullptr),
                      CRL_STATUS_OK);
            EXPECT_EQ(crl_layout_memory(&planned[i], made, 0), CRL_STATUS_OK);
            crl_layout_destroy(made);
            EXPECT_EQ(size_t(Good(sets).result.reserved_bytes), planned[i].total_bytes);
        }
        EXPECT_EQ(planned[1].total_bytes - planned[0].total_bytes,
                  planned[0].weights_bytes + planned[0].optimizer_bytes);
    }
}

TEST_F(LayoutsValidate, MomentumAndNoState) {
    for (const char *momentum : {"0", "0.9"}) {
        Sets sets = Gpt();
        sets.Erase("optimizer.weight_decay");
        sets += {{"optimizer.type", "sgd"}, {"optimizer.momentum", momentum}};
        const double clip = Sometimes(sets);
        const Report before = Good(sets + Clip(clip));
        Same(before, sets + Clip(clip) + Width(2, 2), Rollbacks(before, clip, {12}));
    }
}

TEST_F(LayoutsValidate, EvaluationsAndCheckpointsSeeWhatStands) {
    job::WriteImages(scratch_, 203);
    const Sets sets = job::Mlp(scratch_, scratch_ / "images", scratch_ / "labels") +
                      Sets{{"train.steps", "14"},
                           {"train.evaluate_every", "4"},
                           {"train.checkpoint_every", "6"},
                           {"train.keep", "0"}};
    const double clip = Sometimes(sets);
    const Report before = Good(sets + Clip(clip) + Sets{{"run.directory", scratch_ / "before"}});
    const int rollbacks = Rollbacks(before, clip, {4, 6, 8, 12, 14});
    EXPECT_GT(rollbacks, 0);
    for (const Sets &layout : {Width(1, 1), Width(2, 1), Width(2, 2)}) {
        const std::string directory = scratch_ / "after";
        Same(before, sets + Clip(clip) + layout + Sets{{"run.directory", directory}}, rollbacks);
        for (const char *file : {"/checkpoints/step-00000006/model.safetensors",
                                 "/checkpoints/step-00000012/optimizer.safetensors"}) {
            const std::string saved = read_text(scratch_ / "before" + file);
            EXPECT_GT(saved.size(), 1000u) << file;
            EXPECT_TRUE(read_text(directory + file) == saved) << file << " " << layout.Text();
        }
        std::filesystem::remove_all(directory);
    }
}

TEST_F(LayoutsValidate, StopsAtTheSameStep) {
    const double clip = Sometimes(Gpt());
    for (int step : {1, 5, 6, 12}) {
        const Report before = Good(Gpt() + Clip(clip), step);
        EXPECT_EQ(before.result.steps, step);
        const Report after = Good(Gpt() + Clip(clip) + Width(2, 2) + After(), step);
        EXPECT_EQ(after.Bits(), before.Bits());
        EXPECT_EQ(after.result.rollbacks, Rollbacks(before, clip, {12}));
    }
}

TEST_F(LayoutsValidate, NoNumberEndsTheRunAsBefore) {
    BreakLinear();
    const Sets sets = Gpt() + Sets{{"train.checkpoint_every", "4"}};
    for (const Sets &layout : {Width(1, 1), Width(2, 2), Width(4, 1)}) {
        const Report before = TrainReported(sets + layout, &registries_);
        const std::string saved =
            read_text(scratch_ / "run/checkpoints/step-00000004/model.safetensors");
        std::filesystem::remove_all(scratch_ / "run");
        const Report after = TrainReported(sets + layout + After(), &registries_);
        EXPECT_EQ(before.status, CRL_STATUS_INVALID);
        EXPECT_EQ(before.message, "step 5: gradient norm is nan, expected a finite number");
        EXPECT_EQ(after.status, CRL_STATUS_INVALID);
        EXPECT_EQ(after.message, before.message) << layout.Text();
        EXPECT_EQ(after.step.size(), 4u);
        EXPECT_EQ(after.Bits(), before.Bits()) << layout.Text();
        EXPECT_TRUE(read_text(scratch_ / "run/checkpoints/step-00000004/model.safetensors") ==
                    saved);
        EXPECT_FALSE(std::filesystem::exists(scratch_ / "run/checkpoints/step-00000005"));
        std::filesystem::remove_all(scratch_ / "run");
    }
}

// One rank's weights and state after a step that does not stand: those before it.
crl_status StepUntilNoNumber(void *argument, crl_comm *comm) {
    crl_status status = CRL_STATUS_OK;
    const auto *with =
        static_cast<std::pair<const crl_settings *, const crl_registries *> *>(argument);
    crl_session session = {};
    crl_feed feed = {};
    crl_loader *loader = nullptr;
    std::vector<std::vector<float>> weights; // before each step
    CRL_TRY_OUT(crl_session_open(&session, with->first, with->second, comm, true));
    {
        const crl_params *params = session.rank->params;
        const auto count = size_t(params->weight_elements);
        const crl_feed_range range = {1, true, 2, session.layout->micro_batches, 16, 0, 12};
        CRL_TRY_OUT(crl_feed_open(&feed, with->first, with->second, &with->first->data.train,
                                  session.layout->graph, session.rank->executor));
        CRL_TRY_OUT(crl_feed_loader(&loader, &feed, session.rank, &range));
        for (int step = 1; status == CRL_STATUS_OK && step <= 12; step++) {
            crl_loader_step data;
            const crl_step_request request = {step, 0.01, &data, false, false};
            weights.emplace_back(params->weights, params->weights + count);
            weights.back().insert(weights.back().end(), params->state[0], params->state[0] + count);
            CRL_TRY_OUT(crl_loader_next(loader, &data));
            status = crl_stepper_train(&session.stepper, &request);
        }
        std::vector<float> now(params->weights, params->weights + count);
        now.insert(now.end(), params->state[0], params->state[0] + count);
        EXPECT_GE(weights.size(), 5u);
        EXPECT_TRUE(memcmp(now.data(), weights[4].data(), now.size() * sizeof(float)) == 0);
    }
out:
    crl_loader_destroy(loader);
    crl_feed_close(&feed);
    crl_session_close(&session, status != CRL_STATUS_OK);
    return status;
}

TEST_F(LayoutsValidate, NoNumberLeavesTheWeights) {
    BreakLinear();
    for (const Sets &sets : {Gpt(), Gpt() + After()}) {
        const job::Settings settings(sets, &registries_);
        std::pair<const crl_settings *, const crl_registries *> with{settings.get(), &registries_};
        EXPECT_EQ(crl_session_launch(with.first, with.second, 1, StepUntilNoNumber, &with),
                  CRL_STATUS_INVALID);
    }
}

TEST_F(LayoutsValidate, OverMpi) {
#ifndef CRL_WITH_MPI
    GTEST_SKIP() << "built without MPI";
#endif
    if (job::Shell("command -v mpirun").code != 0) {
        GTEST_SKIP() << "mpirun is not there (Debian: openmpi-bin)";
    }
    const double clip = Sometimes(Gpt());
    const Report before = Good(Gpt() + Clip(clip));
    const int rollbacks = Rollbacks(before, clip, {12});
    char bits[64], taken_back[64];
    snprintf(bits, sizeof bits, "parameter bits %016llx",
             static_cast<unsigned long long>(before.result.parameter_hash));
    snprintf(taken_back, sizeof taken_back, "%d updates were taken back", rollbacks);
    for (const Sets &layout : {Width(2, 2), Width(4, 1) + Schedule("gpipe")}) {
        const std::string command =
            job::MpirunEnvironment() + std::string("timeout 100 ") +
            job::Mpirun(4, "--mca pml ob1 --mca btl self,vader --mca btl_vader_eager_limit 128 "
                           "--mca btl_self_eager_limit 128") +
            job::Command(Gpt() + Clip(clip) + layout + After() +
                             Sets{{"run.directory", scratch_ / "mpi"}},
                         scratch_ / "config.yaml");
        const job::Printed printed = job::Shell(command);
        EXPECT_EQ(printed.code, 0) << printed.text;
        EXPECT_NE(printed.text.find(bits), std::string::npos) << bits << "\n" << printed.text;
        EXPECT_NE(printed.text.find(taken_back), std::string::npos) << printed.text;
        std::filesystem::remove_all(scratch_ / "mpi");
    }
}

} // namespace
