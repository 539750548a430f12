/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layer's calls on the backend that is linked: every buffer between guard zones and filled with a
 * pattern, pointers only for what the layer declares to read.
 */
#pragma once

#include <memory>
#include <stdexcept>

#include "tests/layers/harness.h"

namespace layer_test {

/* How a layer is run. */
struct Settings {
    int threads = 1;
    bool training = true;         /* also calls backward */
    bool prepare_training = true; /* env.training */
    bool weight_first = false;    /* W before I */
    bool fused = false;           /* backward in place of both */
    bool again = false;           /* forward once more after backward */
    bool accumulate = false;
    uint32_t dx_wanted = ~0u, dy_given = ~0u;
    uint32_t in_place = 0; /* bit i: dx i takes the place of input i */
    bool one_dx = false;   /* all inputs are one tensor: one dx, which all but the first add to */
    float loss_scale = 1;
    crl_call_position at{};
    crl_loss loss{}; /* before forward */
};

/* What a run left behind. */
struct Results {
    std::vector<std::vector<float>> y, save, dx, dw;
    crl_loss loss{};
};

/* The values of a run, rounded to their types; dx and dw are what accumulating runs add to.
 * Integers as bits. */
struct Values {
    std::vector<std::vector<float>> x, w, dy, dx, dw;
};

/* The type calls get a parameter in. */
inline crl_dtype ParamType(const crl_layer_spec &spec, int param) {
    return spec.param[param].f32 ? CRL_DTYPE_F32 : spec.compute;
}

/* A prepared layer with all its buffers. Failures are reported through GoogleTest. */
class Runner {
  public:
    Runner(const Inferred &inferred, const Values &values, const Settings &settings)
        : layer_(*inferred.layer), spec_(inferred.spec), values_(values), settings_(settings),
          kernels_(crl_backend_kernels(backend(), spec_.compute)),
          loss_(stream_, sizeof(crl_loss)) {}
    ~Runner() {
        if (layer_.release != nullptr) {
            layer_.release(state_);
        }
        crl_kernels_set_threads(1);
    }
    Runner(const Runner &) = delete;
    Runner &operator=(const Runner &) = delete;

    /* Runs everything; stops at the first fatal failure. */
    void Run(Results *out) {
        ASSERT_NE(kernels_, nullptr) << "no kernels for " << crl_dtype_name(spec_.compute);
        crl_kernels_set_threads(settings_.threads);
        Prepare();
        Fill();
        Compute(out);
        CheckMemory();
    }

    /* What forward or the wait for it says. */
    crl_status TryForward() {
        Prepare();
        Fill();
        const crl_layer_call call = ForwardCall();
        CRL_TRY(layer_.forward(&call));
        return stream_.Wait();
    }

  private:
    using Buffers = std::vector<std::unique_ptr<Guarded>>;
    using Function = crl_status (*)(const crl_layer_call *);

    void Prepare() {
        size_t bytes[CRL_PHASES] = {0};
        if (layer_.prepare != nullptr) {
            const crl_layer_env env = {Stream::device(), kernels_, stream_.get(),
                                       settings_.prepare_training};
            ASSERT_EQ(layer_.prepare(&spec_, &env, &state_, bytes), CRL_STATUS_OK)
                << crl_error_message();
        }
        for (const size_t phase : bytes) {
            scratch_.push_back(std::make_unique<Guarded>(stream_, phase));
        }
    }

    void Add(Buffers *to, const crl_tensor_spec &spec) {
        to->push_back(std::make_unique<Guarded>(stream_, spec));
    }

    void Fill() {
        for (int i = 0; i < spec_.inputs; ++i) {
            Add(&x_, spec_.input[i]);
            x_[i]->Set(values_.x[i]);
            Add(&dx_, spec_.input[i]);
            if (settings_.accumulate) {
                dx_[i]->Set(values_.dx[i]);
            }
        }
        for (int i = 0; i < spec_.outputs; ++i) {
            Add(&y_, spec_.output[i]);
            Add(&dy_, spec_.output[i]);
            dy_[i]->Set(values_.dy[i]);
        }
        for (int i = 0; i < spec_.params; ++i) {
            Add(&w_, {ParamType(spec_, i), spec_.param[i].shape});
            w_[i]->Set(values_.w[i]);
            Add(&dw_, {CRL_DTYPE_F32, spec_.param[i].shape});
            if (settings_.accumulate) {
                dw_[i]->Set(values_.dw[i]);
            }
        }
        for (int i = 0; i < spec_.saves; ++i) {
            Add(&save_, spec_.save[i]);
        }
        loss_.SetRaw(&settings_.loss, sizeof settings_.loss);
    }

    /* Nothing may be allocated or created any more, and all work has to succeed. */
    void Call(Function function, const crl_layer_call &call) {
        crl_alloc_watch watch{};
        crl_alloc_watch *before = crl_alloc_attach(&watch);
        const int64_t primitives = crl_kernels_primitives_created();
        const crl_status status = function(&call);
        crl_alloc_attach(before);
        EXPECT_EQ(crl_kernels_primitives_created(), primitives) << "primitives after prepare";
        EXPECT_EQ(watch.allocations.load(), 0) << "allocations after prepare";
        ASSERT_EQ(status, CRL_STATUS_OK) << crl_error_message();
        ASSERT_EQ(stream_.Wait(), CRL_STATUS_OK) << crl_error_message();
    }

    crl_layer_call BeginCall(int phase) {
        crl_layer_call call{};
        call.spec = &spec_;
        call.state = state_;
        call.kernels = kernels_;
        call.stream = stream_.get();
        call.loss_scale = settings_.loss_scale;
        call.at = settings_.at;
        call.scratch = scratch_[phase]->data();
        for (int i = 0; i < spec_.params; ++i) {
            call.w[i] = w_[i]->data();
        }
        return call;
    }

    crl_layer_call ForwardCall() {
        crl_layer_call call = BeginCall(CRL_PHASE_FORWARD);
        for (int i = 0; i < spec_.inputs; ++i) {
            call.x[i] = x_[i]->data();
        }
        for (int i = 0; i < spec_.outputs; ++i) {
            call.y[i] = y_[i]->data();
        }
        for (int i = 0; i < spec_.saves; ++i) {
            call.save[i] = save_[i]->data();
        }
        call.loss = layer_.is_loss ? loss_.data<crl_loss>() : nullptr;
        return call;
    }

    void Forward(Results *out) {
        Call(layer_.forward, ForwardCall());
        for (auto &buffer : y_) {
            EXPECT_TRUE(buffer->FullyWritten()) << "output";
            out->y.push_back(buffer->Floats());
        }
        for (auto &buffer : save_) {
            EXPECT_TRUE(buffer->FullyWritten()) << "saved tensor";
            out->save.push_back(buffer->Floats());
        }
        std::memcpy(&out->loss, loss_.Raw().data(), sizeof out->loss);
    }

    crl_layer_call BackwardCall(int phase, bool both) {
        crl_layer_call call = BeginCall(phase);
        const bool input = phase == CRL_PHASE_INPUT || both;
        const bool weight = phase == CRL_PHASE_WEIGHT || both;
        const auto needs = [&](uint32_t of_input, uint32_t of_weight) {
            return (input ? of_input : 0) | (weight ? of_weight : 0);
        };
        const uint32_t inputs = needs(spec_.input_needs_inputs, spec_.weight_needs_inputs);
        const uint32_t outputs = needs(spec_.input_needs_outputs, spec_.weight_needs_outputs);
        const uint32_t saves = needs(spec_.input_needs_saves, spec_.weight_needs_saves);
        for (int i = 0; i < spec_.inputs; ++i) {
            call.x[i] = inputs >> i & 1 ? x_[i]->data() : nullptr;
            const bool wanted = input && spec_.gradient_inputs & settings_.dx_wanted & (1u << i);
            Guarded *dx =
                settings_.in_place >> i & 1 ? x_[i].get() : dx_[settings_.one_dx ? 0 : i].get();
            call.dx[i] = wanted ? dx->data() : nullptr;
            call.dx_accumulate[i] = settings_.accumulate || (settings_.one_dx && i > 0);
        }
        for (int i = 0; i < spec_.outputs; ++i) {
            call.y[i] = outputs >> i & 1 ? y_[i]->data() : nullptr;
            call.dy[i] = settings_.dy_given >> i & 1 ? dy_[i]->data() : nullptr;
        }
        for (int i = 0; i < spec_.saves; ++i) {
            call.save[i] = saves >> i & 1 ? save_[i]->data() : nullptr;
        }
        for (int i = 0; i < spec_.params; ++i) {
            call.dw[i] = weight ? dw_[i]->data<float>() : nullptr;
        }
        call.dw_accumulate = settings_.accumulate;
        return call;
    }

    void BackwardInput() {
        if (layer_.backward_input != nullptr) {
            Call(layer_.backward_input, BackwardCall(CRL_PHASE_INPUT, false));
        }
    }

    void BackwardWeight() {
        if (layer_.backward_weight != nullptr) {
            Call(layer_.backward_weight, BackwardCall(CRL_PHASE_WEIGHT, false));
        }
    }

    void Backward() {
        if (settings_.fused) {
            const bool larger =
                scratch_[CRL_PHASE_INPUT]->bytes() > scratch_[CRL_PHASE_WEIGHT]->bytes();
            Call(layer_.backward, BackwardCall(larger ? CRL_PHASE_INPUT : CRL_PHASE_WEIGHT, true));
        } else if (settings_.weight_first) {
            BackwardWeight();
            BackwardInput();
        } else {
            BackwardInput();
            BackwardWeight();
        }
    }

    void Compute(Results *out) {
        Forward(out);
        if (!settings_.training || testing::Test::HasFatalFailure()) {
            return;
        }
        Backward();
        for (int i = 0; i < spec_.inputs; ++i) {
            const bool wanted = spec_.gradient_inputs & settings_.dx_wanted & (1u << i) &&
                                !(settings_.one_dx && i > 0);
            const Guarded &dx = settings_.in_place >> i & 1 ? *x_[i] : *dx_[i];
            EXPECT_TRUE(!wanted || dx.FullyWritten()) << "dx " << i;
            out->dx.push_back(wanted ? dx.Floats() : std::vector<float>());
        }
        for (auto &buffer : dw_) {
            EXPECT_TRUE(buffer->FullyWritten()) << "dw";
            out->dw.push_back(buffer->Floats());
        }
        if (settings_.again) {
            ForwardAgain();
        }
        const char *change = settings_.again ? "forward has other bits" : "backward changed it";
        for (size_t i = 0; i < y_.size(); ++i) {
            EXPECT_TRUE(Same(y_[i]->Floats(), out->y[i])) << "output: " << change;
        }
        for (size_t i = 0; i < save_.size(); ++i) {
            EXPECT_TRUE(Same(save_[i]->Floats(), out->save[i])) << "saved tensor: " << change;
        }
    }

    void ForwardAgain() {
        for (Buffers *all : {&y_, &save_, &scratch_}) {
            for (auto &buffer : *all) {
                buffer->Poison();
            }
        }
        Call(layer_.forward, ForwardCall());
    }

    static bool Same(const std::vector<float> &a, const std::vector<float> &b) {
        return a.size() == b.size() &&
               (a.empty() || std::memcmp(a.data(), b.data(), a.size() * 4) == 0);
    }

    void CheckMemory() {
        for (const Buffers *all : {&x_, &y_, &w_, &save_, &dx_, &dw_, &dy_, &scratch_}) {
            for (const auto &buffer : *all) {
                EXPECT_TRUE(buffer->GuardsIntact()) << "written beyond the end of a buffer";
            }
        }
        EXPECT_TRUE(loss_.GuardsIntact()) << "written beyond the loss";
        for (int i = 0; i < spec_.inputs; ++i) {
            EXPECT_TRUE(settings_.in_place >> i & 1 || Same(x_[i]->Floats(), values_.x[i]))
                << "input changed";
        }
        for (int i = 0; i < spec_.params; ++i) {
            EXPECT_TRUE(Same(w_[i]->Floats(), values_.w[i])) << "parameter changed";
        }
        for (int i = 0; i < spec_.outputs; ++i) {
            EXPECT_TRUE(Same(dy_[i]->Floats(), values_.dy[i])) << "output gradient changed";
        }
    }

    const crl_layer &layer_;
    crl_layer_spec spec_;
    const Values &values_;
    const Settings settings_;
    const crl_kernels *kernels_;
    void *state_ = nullptr;
    const Stream stream_;
    Guarded loss_;
    Buffers x_, y_, w_, save_, dx_, dw_, dy_, scratch_;
};

inline Results Execute(const Inferred &inferred, const Values &values, const Settings &settings) {
    Results results;
    Runner runner(inferred, values, settings);
    runner.Run(&results);
    if (testing::Test::HasFatalFailure()) {
        throw std::runtime_error("the layer failed, there are no results");
    }
    return results;
}

} // namespace layer_test
