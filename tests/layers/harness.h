/* SPDX-License-Identifier: Apache-2.0 */
/* One layer under test: found by its name, options from text, shapes from inference. */
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/base/alloc.h"
#include "engine/base/rng.h"
#include "engine/ir/layer.h"
#include "tests/layers/guarded.h"

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
             const std::vector<crl_tensor_spec> &inputs, const Texts &options, int64_t batch = -1,
             crl_dtype compute = CRL_DTYPE_F32)
        : layer(Find(type)), node_(node) {
        spec.compute = compute;
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
