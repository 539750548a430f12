/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One layer under test: options from text, shapes from inference, every buffer between guard zones
 * and filled with a pattern, pointers only for what the layer declares to read.
 */
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/base/alloc.h"
#include "engine/base/rng.h"
#include "engine/ir/layer.h"

extern "C" {
#define CRL_LAYER(name) extern const crl_layer crl_layer_##name;
#include "layers/layers.def"
#undef CRL_LAYER
}

namespace layer_test {

inline const std::vector<const crl_layer *> &Registry() {
    static const std::vector<const crl_layer *> all = {
#define CRL_LAYER(name) &crl_layer_##name,
#include "layers/layers.def"
#undef CRL_LAYER
    };
    return all;
}

inline const crl_layer *Find(const std::string &name) {
    for (const crl_layer *layer : Registry()) {
        if (layer->name == name) {
            return layer;
        }
    }
    return nullptr;
}

using Sizes = std::vector<int64_t>;
using Texts = std::map<std::string, std::string>;

inline crl_tensor_spec F32(const Sizes &sizes) {
    return {CRL_DTYPE_F32, crl_shape_make((int)sizes.size(), sizes.data())};
}

inline crl_tensor_spec I32(const Sizes &sizes) {
    return {CRL_DTYPE_I32, crl_shape_make((int)sizes.size(), sizes.data())};
}

inline std::string Text(const crl_tensor_spec &spec) {
    char text[128];
    return crl_tensor_text(&spec, text, sizeof text);
}

/* An inferred layer; `status` and `error` when it is not. */
class Inferred {
  public:
    Inferred(const std::string &type, const std::string &node,
             const std::vector<crl_tensor_spec> &inputs, const Texts &options, int64_t batch = -1)
        : layer(Find(type)), node_(node) {
        if (layer == nullptr) {
            status = CRL_FAIL(NOT_FOUND, "no layer %s", type.c_str());
        } else {
            status = Infer(inputs, options, batch);
        }
        error = status == CRL_STATUS_OK ? "" : crl_error_message();
    }
    ~Inferred() { crl_arena_fini(&arena_); }
    Inferred(const Inferred &) = delete;
    Inferred &operator=(const Inferred &) = delete;

    const crl_layer *layer;
    crl_layer_spec spec{};
    crl_status status;
    std::string error;

  private:
    crl_status Infer(const std::vector<crl_tensor_spec> &inputs, const Texts &texts,
                     int64_t batch) {
        options_.resize(layer->options_bytes / sizeof(uint64_t) + 1);
        if (layer->options != nullptr) {
            CRL_TRY(crl_option_defaults(layer->options, &arena_, options_.data()));
        }
        for (const auto &[key, value] : texts) {
            CRL_TRY(crl_option_set(layer->options, key.c_str(), value.c_str(), &arena_,
                                   options_.data()));
        }
        spec.node = node_.c_str();
        spec.options = options_.data();
        spec.inputs = (int)inputs.size();
        for (size_t i = 0; i < inputs.size(); ++i) {
            spec.input[i] = inputs[i];
        }
        spec.batch = batch;
        if (batch < 0) {
            spec.batch = inputs.empty() ? 1 : inputs[0].shape.size[0];
        }
        return layer->infer(&spec);
    }

    std::string node_;
    std::vector<uint64_t> options_;
    crl_arena arena_{};
};

/* Memory between guard zones, 64-byte aligned, filled with a pattern no layer writes. */
class Guarded {
  public:
    explicit Guarded(size_t bytes) : bytes_(bytes), memory_(bytes / 4 + 3 * kZone, kPattern) {
        const auto address = reinterpret_cast<uintptr_t>(memory_.data() + kZone);
        begin_ = kZone + (64 - address % 64) % 64 / 4;
        CRL_ASSERT(bytes % 4 == 0);
    }
    template <typename T = float> T *data() { return reinterpret_cast<T *>(&memory_[begin_]); }
    size_t bytes() const { return bytes_; }
    bool GuardsIntact() const {
        for (size_t i = 0; i < memory_.size(); ++i) {
            const bool inside = i >= begin_ && i < begin_ + bytes_ / 4;
            if (!inside && memory_[i] != kPattern) {
                return false;
            }
        }
        return true;
    }
    bool FullyWritten() const {
        for (size_t i = begin_; i < begin_ + bytes_ / 4; ++i) {
            if (memory_[i] == kPattern) {
                return false;
            }
        }
        return true;
    }
    std::vector<float> Floats() const {
        std::vector<float> out(bytes_ / 4);
        std::memcpy(out.data(), &memory_[begin_], bytes_);
        return out;
    }
    void Set(const std::vector<float> &values) {
        ASSERT_EQ(values.size() * 4, bytes_);
        std::memcpy(&memory_[begin_], values.data(), bytes_);
    }

  private:
    static constexpr size_t kZone = 64;
    static constexpr uint32_t kPattern = 0x7fb5a5a5u; /* a signalling NaN */
    size_t bytes_, begin_;
    std::vector<uint32_t> memory_;
};

inline size_t Bytes(const crl_tensor_spec &spec) {
    return (size_t)crl_shape_elements(&spec.shape) * crl_dtype_bytes(spec.dtype);
}

/* How a layer is run. */
struct Settings {
    int threads = 1;
    bool training = true;         /* also calls backward */
    bool prepare_training = true; /* env.training */
    bool weight_first = false;    /* W before I */
    bool fused = false;           /* backward in place of both */
    bool accumulate = false;
    uint32_t dx_wanted = ~0u;
    crl_call_position at{};
    crl_loss loss{}; /* before forward */
};

/* What a run left behind. */
struct Results {
    std::vector<std::vector<float>> y, save, dx, dw;
    crl_loss loss{};
};

/* The values of a run; dx and dw are what accumulating runs add to. Integers as bits. */
struct Values {
    std::vector<std::vector<float>> x, w, dy, dx, dw;
};

/* A prepared layer with all its buffers. Failures are reported through GoogleTest. */
class Runner {
  public:
    Runner(const Inferred &inferred, const Values &values, const Settings &settings)
        : layer_(*inferred.layer), spec_(inferred.spec), values_(values), settings_(settings) {}
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
        crl_kernels_set_threads(settings_.threads);
        Prepare();
        Fill();
        crl_alloc_watch watch{};
        crl_alloc_watch *before = crl_alloc_attach(&watch);
        const int64_t primitives = crl_kernels_primitives_created();
        Compute(out);
        EXPECT_EQ(crl_kernels_primitives_created(), primitives) << "primitives after prepare";
        EXPECT_EQ(watch.allocations.load(), 0) << "allocations after prepare";
        crl_alloc_attach(before);
        CheckMemory();
    }

  private:
    using Buffers = std::vector<std::unique_ptr<Guarded>>;

    void Prepare() {
        size_t bytes[CRL_PHASES] = {0};
        if (layer_.prepare != nullptr) {
            const crl_layer_env env = {&crl_device_cpu, &crl_kernels_cpu, nullptr,
                                       settings_.prepare_training};
            ASSERT_EQ(layer_.prepare(&spec_, &env, &state_, bytes), CRL_STATUS_OK)
                << crl_error_message();
        }
        for (const size_t phase : bytes) {
            scratch_.push_back(std::make_unique<Guarded>((phase + 3) / 4 * 4));
        }
    }

    static void Add(Buffers *to, const crl_tensor_spec &spec) {
        to->push_back(std::make_unique<Guarded>(Bytes(spec)));
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
            const crl_tensor_spec param = {CRL_DTYPE_F32, spec_.param[i].shape};
            Add(&w_, param);
            w_[i]->Set(values_.w[i]);
            Add(&dw_, param);
            if (settings_.accumulate) {
                dw_[i]->Set(values_.dw[i]);
            }
        }
        for (int i = 0; i < spec_.saves; ++i) {
            Add(&save_, spec_.save[i]);
        }
    }

    crl_layer_call Call(int phase) {
        crl_layer_call call{};
        call.spec = &spec_;
        call.state = state_;
        call.kernels = &crl_kernels_cpu;
        call.loss_scale = 1;
        call.at = settings_.at;
        call.scratch = scratch_[phase]->data();
        for (int i = 0; i < spec_.params; ++i) {
            call.w[i] = w_[i]->data();
        }
        return call;
    }

    void Forward(Results *out) {
        crl_layer_call call = Call(CRL_PHASE_FORWARD);
        for (int i = 0; i < spec_.inputs; ++i) {
            call.x[i] = x_[i]->data();
        }
        for (int i = 0; i < spec_.outputs; ++i) {
            call.y[i] = y_[i]->data();
        }
        for (int i = 0; i < spec_.saves; ++i) {
            call.save[i] = save_[i]->data();
        }
        out->loss = settings_.loss;
        call.loss = layer_.is_loss ? &out->loss : nullptr;
        ASSERT_EQ(layer_.forward(&call), CRL_STATUS_OK) << crl_error_message();
        for (auto &buffer : y_) {
            EXPECT_TRUE(buffer->FullyWritten()) << "output";
            out->y.push_back(buffer->Floats());
        }
        for (auto &buffer : save_) {
            EXPECT_TRUE(buffer->FullyWritten()) << "saved tensor";
            out->save.push_back(buffer->Floats());
        }
    }

    crl_layer_call BackwardCall(int phase, bool both) {
        crl_layer_call call = Call(phase);
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
            call.dx[i] = wanted ? dx_[i]->data() : nullptr;
            call.dx_accumulate[i] = settings_.accumulate;
        }
        for (int i = 0; i < spec_.outputs; ++i) {
            call.y[i] = outputs >> i & 1 ? y_[i]->data() : nullptr;
            call.dy[i] = dy_[i]->data();
        }
        for (int i = 0; i < spec_.saves; ++i) {
            call.save[i] = saves >> i & 1 ? save_[i]->data() : nullptr;
        }
        for (int i = 0; i < spec_.params; ++i) {
            call.dw[i] = weight ? dw_[i]->data() : nullptr;
        }
        call.dw_accumulate = settings_.accumulate;
        return call;
    }

    void BackwardInput() {
        const crl_layer_call call = BackwardCall(CRL_PHASE_INPUT, false);
        if (layer_.backward_input != nullptr) {
            ASSERT_EQ(layer_.backward_input(&call), CRL_STATUS_OK) << crl_error_message();
        }
    }

    void BackwardWeight() {
        const crl_layer_call call = BackwardCall(CRL_PHASE_WEIGHT, false);
        if (layer_.backward_weight != nullptr) {
            ASSERT_EQ(layer_.backward_weight(&call), CRL_STATUS_OK) << crl_error_message();
        }
    }

    void Backward() {
        if (settings_.fused) {
            const bool larger =
                scratch_[CRL_PHASE_INPUT]->bytes() > scratch_[CRL_PHASE_WEIGHT]->bytes();
            const crl_layer_call call =
                BackwardCall(larger ? CRL_PHASE_INPUT : CRL_PHASE_WEIGHT, true);
            ASSERT_EQ(layer_.backward(&call), CRL_STATUS_OK) << crl_error_message();
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
            const bool wanted = spec_.gradient_inputs & settings_.dx_wanted & (1u << i);
            EXPECT_TRUE(!wanted || dx_[i]->FullyWritten()) << "dx " << i;
            out->dx.push_back(wanted ? dx_[i]->Floats() : std::vector<float>());
        }
        for (auto &buffer : dw_) {
            EXPECT_TRUE(buffer->FullyWritten()) << "dw";
            out->dw.push_back(buffer->Floats());
        }
        for (size_t i = 0; i < y_.size(); ++i) {
            EXPECT_TRUE(Same(y_[i]->Floats(), out->y[i])) << "backward changed an output";
        }
        for (size_t i = 0; i < save_.size(); ++i) {
            EXPECT_TRUE(Same(save_[i]->Floats(), out->save[i])) << "backward changed a save";
        }
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
        for (int i = 0; i < spec_.inputs; ++i) {
            EXPECT_TRUE(Same(x_[i]->Floats(), values_.x[i])) << "input changed";
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
    void *state_ = nullptr;
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

/* The message inference fails with; empty when it does not. */
inline std::string InferError(const std::string &type, const std::string &node,
                              const std::vector<crl_tensor_spec> &inputs, const Texts &options = {},
                              int64_t batch = -1) {
    return Inferred(type, node, inputs, options, batch).error;
}

inline float IntegerBits(int32_t value) {
    float bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline int32_t Integer(float bits) {
    int32_t value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline std::vector<float> Integers(const std::vector<int32_t> &values) {
    std::vector<float> out;
    for (const int32_t value : values) {
        out.push_back(IntegerBits(value));
    }
    return out;
}

} // namespace layer_test
