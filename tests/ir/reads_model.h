// SPDX-License-Identifier: Apache-2.0
// Layers without numbers that differ in what their backward reads, and random graphs of them.
#pragma once

#include <random>

#include "tests/ir/toy_model.h"

namespace reads {

// Layers of (B,8): what their backward reads is all that matters here.
inline crl_status Infer(crl_layer_spec *spec, int inputs) {
    EXPECT_GE(spec->inputs, inputs);
    spec->outputs = 1;
    spec->output[0] = spec->input[0];
    spec->gradient_inputs = (1u << spec->inputs) - 1;
    return CRL_STATUS_OK;
}
// A linear layer: the weight gradient reads the input.
inline crl_status InferMat(crl_layer_spec *spec) {
    spec->weight_needs_inputs = 1;
    spec->params = 1;
    spec->param[0] = {};
    spec->param[0].name = "weight";
    spec->param[0].shape = toy::shape({8, 8});
    return Infer(spec, 1);
}
// A gelu: the input gradient reads the input.
inline crl_status InferAct(crl_layer_spec *spec) {
    spec->input_needs_inputs = 1;
    return Infer(spec, 1);
}
// A relu: the input gradient reads the output.
inline crl_status InferClip(crl_layer_spec *spec) {
    spec->input_needs_outputs = 1;
    return Infer(spec, 1);
}
// A dropout or a residual connection: nothing is read.
inline crl_status InferPass(crl_layer_spec *spec) {
    return Infer(spec, 1);
}
// A norm: both gradients read the input and a number per sample.
inline crl_status InferNorm(crl_layer_spec *spec) {
    spec->input_needs_inputs = spec->weight_needs_inputs = 1;
    spec->input_needs_saves = spec->weight_needs_saves = 1;
    spec->saves = 1;
    spec->save[0] = {CRL_DTYPE_F32, toy::shape({spec->batch})};
    return Infer(spec, 1);
}

constexpr double kValue = 2 * 8 * 4, kSave = 2 * 4; // batch 2

struct Layers {
    std::vector<crl_layer> table;
    std::vector<const void *> registry;

    void Add(const char *name, crl_status (*infer)(crl_layer_spec *), bool cheap) {
        crl_layer layer = {};
        layer.name = name;
        layer.help = "";
        layer.infer = infer;
        layer.cheap = cheap;
        table.push_back(layer);
    }
    Layers() {
        Add("source", toy::infer_source, false);
        table.back().is_input = true;
        Add("loss", toy::infer_loss, false);
        table.back().is_loss = true;
        Add("mat", InferMat, false);
        Add("act", InferAct, true);
        Add("clip", InferClip, true);
        Add("pass", InferPass, true);
        Add("norm", InferNorm, true);
        for (const crl_layer &layer : table) {
            registry.push_back(&layer);
        }
        registry.push_back(nullptr);
    }
};

inline toy::graph_ptr Graph(const std::vector<crl_layer_desc> &layers) {
    static const Layers known;
    toy::model_ptr model = toy::model();
    toy::add(model, toy::desc("source", "x"));
    for (const crl_layer_desc &layer : layers) {
        toy::add(model, layer);
    }
    toy::add(model, toy::desc("loss", "loss"));
    crl_graph *out = nullptr;
    EXPECT_EQ(crl_graph_build(&out, model.get(), known.registry.data(), 2, nullptr), CRL_STATUS_OK)
        << crl_error_message();
    return toy::graph_ptr(out);
}

// A chain in which "pass" nodes also read an earlier node; blocks of 1 to 5 nodes.
inline toy::graph_ptr RandomGraph(std::mt19937 &random) {
    const auto below = [&](size_t n) { return size_t(random() % n); };
    const char *const kind[] = {"mat", "act", "clip", "pass", "norm"};
    const size_t nodes = 2 + below(14), block = 1 + below(5);
    std::vector<std::string> name = {"x"};
    for (size_t n = 0; n < nodes; n++) {
        name.push_back("h" + std::to_string(n / block) + ".n" + std::to_string(n));
    }
    std::vector<crl_layer_desc> layers;
    for (size_t n = 0; n < nodes; n++) {
        layers.push_back(toy::desc(kind[below(5)], name[n + 1].c_str(), {name[n].c_str()}));
        if (std::string(layers.back().type) == "pass") {
            layers.back().input[1] = name[below(n + 1)].c_str();
        }
    }
    return Graph(layers);
}

} // namespace reads
