/* SPDX-License-Identifier: Apache-2.0 */
/* Layers without numbers, for graphs and plans; and builders that fail the test on any error. */
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/plan.h"
#include "engine/ir/program.h"
#include "engine/ir/schedule.h"

namespace toy {

struct dense_options {
    int64_t out;
    double scale;
    bool bias;
};

inline crl_shape shape(std::initializer_list<int64_t> sizes) {
    return crl_shape_make((int)sizes.size(), sizes.begin());
}

/* f32 (B,8) */
inline crl_status infer_source(crl_layer_spec *spec) {
    spec->outputs = 1;
    spec->output[0] = {CRL_DTYPE_F32, shape({spec->batch, 8})};
    return CRL_STATUS_OK;
}

/* i32 (B) */
inline crl_status infer_labels(crl_layer_spec *spec) {
    spec->outputs = 1;
    spec->output[0] = {CRL_DTYPE_I32, shape({spec->batch})};
    return CRL_STATUS_OK;
}

/* (B,in) -> (B,out); weight (out,in), bias (out) */
inline crl_status infer_dense(crl_layer_spec *spec) {
    const auto *options = static_cast<const dense_options *>(spec->options);
    if (spec->inputs != 1 || spec->input[0].shape.dimensions != 2) {
        return CRL_FAIL(INVALID, "dense %s: expected one input of 2 dimensions", spec->node);
    }
    spec->outputs = 1;
    spec->output[0] = {spec->compute, shape({spec->batch, options->out})};
    spec->params = options->bias ? 2 : 1;
    spec->param[0] = {};
    spec->param[0].name = "weight";
    spec->param[0].shape = shape({options->out, spec->input[0].shape.size[1]});
    spec->param[1] = {};
    spec->param[1].name = "bias";
    spec->param[1].shape = shape({options->out});
    spec->gradient_inputs = 1;
    return CRL_STATUS_OK;
}

/* the first input's shape */
inline crl_status infer_join(crl_layer_spec *spec) {
    spec->outputs = 1;
    spec->output[0] = spec->input[0];
    spec->gradient_inputs = (1u << spec->inputs) - 1;
    return CRL_STATUS_OK;
}

/* reads its second input without giving a gradient back */
inline crl_status infer_peek(crl_layer_spec *spec) {
    spec->outputs = 1;
    spec->output[0] = spec->input[0];
    spec->gradient_inputs = 1;
    return CRL_STATUS_OK;
}

inline crl_status infer_split(crl_layer_spec *spec) {
    spec->outputs = 2;
    spec->output[0] = spec->output[1] = spec->input[0];
    spec->gradient_inputs = 1;
    return CRL_STATUS_OK;
}

inline crl_status infer_loss(crl_layer_spec *spec) {
    spec->gradient_inputs = 1;
    return CRL_STATUS_OK;
}

struct layer_set {
    std::vector<crl_option> options;
    std::vector<crl_layer> layers;
    std::vector<const void *> registry;

    void add(const char *name, crl_status (*infer)(crl_layer_spec *), bool input, bool loss) {
        crl_layer layer = {};
        layer.name = name;
        layer.help = "";
        layer.infer = infer;
        layer.is_input = input;
        layer.is_loss = loss;
        layers.push_back(layer);
    }

    layer_set() {
        crl_option row = {};
        row.name = "out", row.help = "width", row.type = &crl_option_int;
        row.offset = offsetof(dense_options, out), row.min = 1, row.max = 1 << 20;
        options.push_back(row);
        row = {};
        row.name = "scale", row.value = "1", row.help = "factor", row.type = &crl_option_double;
        row.offset = offsetof(dense_options, scale);
        options.push_back(row);
        row = {};
        row.name = "bias", row.value = "false", row.help = "", row.type = &crl_option_bool;
        row.offset = offsetof(dense_options, bias);
        options.push_back(row);
        options.push_back({});
        add("source", infer_source, true, false);
        add("labels", infer_labels, true, false);
        add("dense", infer_dense, false, false);
        add("join", infer_join, false, false);
        add("peek", infer_peek, false, false);
        add("split", infer_split, false, false);
        add("loss", infer_loss, false, true);
        layers[2].options = options.data();
        layers[2].options_bytes = sizeof(dense_options);
        for (const crl_layer &layer : layers) {
            registry.push_back(&layer);
        }
        registry.push_back(nullptr);
    }
    layer_set(const layer_set &) = delete;
};

inline const void *const *registry() {
    static const layer_set set;
    return set.registry.data();
}

struct deleter {
    void operator()(crl_model *item) const { crl_model_destroy(item); }
    void operator()(crl_graph *item) const { crl_graph_destroy(item); }
    void operator()(crl_plan *item) const { crl_plan_destroy(item); }
    void operator()(crl_program *item) const { crl_program_destroy(item); }
};
using model_ptr = std::unique_ptr<crl_model, deleter>;
using graph_ptr = std::unique_ptr<crl_graph, deleter>;
using plan_ptr = std::unique_ptr<crl_plan, deleter>;
using program_ptr = std::unique_ptr<crl_program, deleter>;

inline model_ptr model() {
    crl_model *out = nullptr;
    EXPECT_EQ(crl_model_create(&out), CRL_STATUS_OK);
    return model_ptr(out);
}

inline crl_layer_desc desc(const char *type, const char *name,
                           std::initializer_list<const char *> inputs = {}) {
    crl_layer_desc out = {};
    out.type = type;
    out.name = name;
    int i = 0;
    for (const char *input : inputs) {
        out.input[i++] = input;
    }
    return out;
}

inline crl_layer_desc dense(const char *name, double out,
                            std::initializer_list<const char *> inputs = {}) {
    crl_layer_desc item = desc("dense", name, inputs);
    item.options[0].key = "out";
    item.options[0].number = out;
    return item;
}

inline void add(const model_ptr &model, const crl_layer_desc &layer) {
    ASSERT_EQ(crl_model_add(model.get(), &layer), CRL_STATUS_OK) << crl_error_message();
}

/* NULL when it fails; the message is in the error record. */
inline graph_ptr try_graph(const std::vector<crl_layer_desc> &layers, int64_t batch = 2) {
    model_ptr list = model();
    for (const crl_layer_desc &layer : layers) {
        if (crl_model_add(list.get(), &layer) != CRL_STATUS_OK) {
            return nullptr;
        }
    }
    crl_graph *out = nullptr;
    if (crl_graph_build(&out, list.get(), registry(), batch, nullptr) != CRL_STATUS_OK) {
        return nullptr;
    }
    return graph_ptr(out);
}

inline graph_ptr graph(const std::vector<crl_layer_desc> &layers, int64_t batch = 2) {
    graph_ptr out = try_graph(layers, batch);
    EXPECT_TRUE(out) << crl_error_message();
    return out;
}

/* source, `units` dense layers of which every third also reads the output of the first, loss. */
inline graph_ptr chain(int units) {
    model_ptr list = model();
    add(list, desc("source", "x"));
    for (int i = 0; i < units; i++) {
        const char *name = crl_model_text(list.get(), "d%d", i);
        if (i % 3 == 2) {
            add(list, desc("join", name, {crl_model_text(list.get(), "d%d", i - 1), "d0"}));
        } else {
            add(list, dense(name, 8));
        }
    }
    add(list, desc("loss", "loss"));
    crl_graph *out = nullptr;
    EXPECT_EQ(crl_graph_build(&out, list.get(), registry(), 2, nullptr), CRL_STATUS_OK)
        << crl_error_message();
    return graph_ptr(out);
}

/* `position` empty: stage mod positions. */
inline plan_ptr plan(const graph_ptr &graph, int positions, const std::vector<int> &first,
                     const std::vector<int> &position = {}) {
    crl_plan *out = nullptr;
    const crl_plan_config config = {graph.get(), positions, (int)first.size(), first.data(),
                                    position.empty() ? nullptr : position.data()};
    EXPECT_EQ(crl_plan_create(&out, &config), CRL_STATUS_OK) << crl_error_message();
    return plan_ptr(out);
}

/* One unit of `chain` per stage; the first also holds the source, the last the loss. */
inline plan_ptr even_plan(const graph_ptr &graph, int positions, int stages) {
    std::vector<int> first(1, 0);
    for (int s = 1; s < stages; s++) {
        first.push_back(s + 1);
    }
    return plan(graph, positions, first);
}

inline program_ptr parse(const std::string &text, const char *name = "test") {
    crl_program *out = nullptr;
    EXPECT_EQ(crl_program_parse(&out, name, text.data(), text.size()), CRL_STATUS_OK)
        << crl_error_message();
    return program_ptr(out);
}

inline std::string write(const program_ptr &program, bool messages) {
    char *text = nullptr;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    crl_program_write(program.get(), messages, out);
    fclose(out);
    std::string result(text, bytes);
    free(text);
    return result;
}

} // namespace toy
