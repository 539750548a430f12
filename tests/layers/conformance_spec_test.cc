/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every layer says of itself: inference, cost, preparation, shards. The registry is the test
 * list: a layer without an example in examples.h fails `EveryLayerHasAnExample`.
 */
#include <sstream>

#include "tests/layers/conformance.h"

namespace layer_test {
namespace {

TEST(LayersConformanceList, EveryLayerHasAnExample) {
    for (const crl_layer *layer : Registry()) {
        bool found = false;
        for (const Example &example : Examples()) {
            found = found || std::string(example.layer) == layer->name;
        }
        EXPECT_TRUE(found) << layer->name << " has no example in tests/layers/examples.h";
    }
}

TEST(LayersConformanceList, EveryTypeHasKernels) {
    for (const crl_dtype dtype : {CRL_DTYPE_F32, CRL_DTYPE_BF16, CRL_DTYPE_F16}) {
        EXPECT_NE(crl_backend_kernels(backend(), dtype), nullptr) << crl_dtype_name(dtype);
    }
}

TEST(LayersConformanceList, TablesAreComplete) {
    for (const crl_layer *layer : Registry()) {
        SCOPED_TRACE(layer->name);
        EXPECT_NE(layer->help, nullptr);
        EXPECT_NE(layer->infer, nullptr);
        EXPECT_NE(layer->forward, nullptr);
        EXPECT_EQ(layer->options == nullptr, layer->options_bytes == 0);
    }
}

/* All that inference fills. */
std::string Describe(const crl_layer_spec &spec) {
    std::ostringstream out;
    for (int i = 0; i < spec.inputs; ++i) {
        out << "input " << Text(spec.input[i]) << "\n";
    }
    for (int i = 0; i < spec.outputs; ++i) {
        out << "output " << Text(spec.output[i]) << "\n";
    }
    for (int i = 0; i < spec.params; ++i) {
        const crl_param_spec &param = spec.param[i];
        out << param.name << " " << Text({ParamType(spec, i), param.shape}) << " " << param.decay
            << " " << param.init << " " << param.init_scale << "\n";
    }
    for (int i = 0; i < spec.saves; ++i) {
        out << "save " << Text(spec.save[i]) << "\n";
    }
    out << spec.input_needs_inputs << " " << spec.input_needs_outputs << " "
        << spec.input_needs_saves << " " << spec.weight_needs_inputs << " "
        << spec.weight_needs_outputs << " " << spec.weight_needs_saves << " "
        << spec.gradient_inputs << "\n";
    for (int phase = 0; phase < CRL_PHASES; ++phase) {
        out << spec.cost.flops[phase] << " flops " << spec.cost.bytes[phase] << " bytes\n";
    }
    return out.str();
}

TEST_P(LayersConformance, InferIsPure) {
    const std::string first = Describe(inferred_->spec);
    crl_layer_spec again = inferred_->spec;
    ASSERT_EQ(inferred_->layer->infer(&again), CRL_STATUS_OK);
    EXPECT_EQ(Describe(again), first);
    EXPECT_EQ(Describe(Infer()->spec), first);
}

TEST_P(LayersConformance, InferFillsTheSpec) {
    const crl_layer &layer = *inferred_->layer;
    const crl_layer_spec &spec = inferred_->spec;
    EXPECT_EQ(spec.outputs == 0, layer.is_loss);
    EXPECT_EQ(spec.params > 0, layer.backward_weight != nullptr);
    EXPECT_EQ(spec.gradient_inputs != 0, layer.backward_input != nullptr);
    EXPECT_EQ(spec.gradient_inputs >> spec.inputs, 0u);
    EXPECT_EQ((spec.input_needs_inputs | spec.weight_needs_inputs) >> spec.inputs, 0u);
    EXPECT_EQ((spec.input_needs_outputs | spec.weight_needs_outputs) >> spec.outputs, 0u);
    EXPECT_EQ((spec.input_needs_saves | spec.weight_needs_saves) >> spec.saves, 0u);
    const uint32_t saves = spec.input_needs_saves | spec.weight_needs_saves;
    EXPECT_EQ(saves, (1u << spec.saves) - 1) << "a save nobody reads";
    for (int i = 0; i < spec.inputs; ++i) {
        if (spec.gradient_inputs >> i & 1) {
            EXPECT_TRUE(IsReal(spec.input[i].dtype)) << Text(spec.input[i]);
        }
    }
    for (int i = 0; i < spec.outputs; ++i) {
        EXPECT_EQ(spec.output[i].shape.size[0], spec.batch);
    }
}

TEST_P(LayersConformance, CostIsPlausible) {
    const crl_layer_spec &spec = inferred_->spec;
    const double *flops = spec.cost.flops, *bytes = spec.cost.bytes;
    for (int phase = 0; phase < CRL_PHASES; ++phase) {
        EXPECT_GE(flops[phase], 0);
        EXPECT_GE(bytes[phase], 0);
    }
    EXPECT_EQ(bytes[CRL_PHASE_FORWARD] > 0, Computes());
    EXPECT_EQ(bytes[CRL_PHASE_INPUT] > 0, spec.gradient_inputs != 0);
    EXPECT_EQ(bytes[CRL_PHASE_WEIGHT] > 0, spec.params > 0);
    EXPECT_TRUE(spec.params > 0 || flops[CRL_PHASE_WEIGHT] == 0);
}

TEST_P(LayersConformance, PrepareSurvivesEveryFailedAllocation) {
    const crl_layer &layer = *inferred_->layer;
    if (layer.prepare == nullptr) {
        return;
    }
    const Stream stream;
    const crl_layer_env env = {Stream::device(), crl_backend_kernels(backend(), GetParam().compute),
                               stream.get(), true};
    void *first = nullptr;
    size_t first_bytes[CRL_PHASES];
    ASSERT_EQ(layer.prepare(&inferred_->spec, &env, &first, first_bytes), CRL_STATUS_OK);
    if (layer.release != nullptr) {
        layer.release(first); /* handles of libraries stay with the stream from here on */
    }
    crl_alloc_watch watch{};
    crl_alloc_watch *before = crl_alloc_attach(&watch);
    crl_status status = CRL_STATUS_NOMEM;
    for (int n = 1; n < 1000 && status != CRL_STATUS_OK; ++n) {
        void *state = nullptr;
        size_t scratch_bytes[CRL_PHASES];
        watch.fail_at = n;
        status = layer.prepare(&inferred_->spec, &env, &state, scratch_bytes);
        watch.fail_at = 0;
        if (status == CRL_STATUS_OK) {
            if (layer.release != nullptr) {
                layer.release(state);
            }
        } else {
            EXPECT_EQ(status, CRL_STATUS_NOMEM) << crl_error_message();
            EXPECT_EQ(state, nullptr) << "output set by a failure";
        }
        ASSERT_EQ(watch.live_bytes.load(), 0) << "leak when allocation " << n << " fails";
    }
    crl_alloc_attach(before);
    EXPECT_EQ(status, CRL_STATUS_OK);
}

TEST_P(LayersConformance, ShardCutsExistingDimensions) {
    const crl_layer &layer = *inferred_->layer;
    const crl_layer_spec &spec = inferred_->spec;
    if (layer.shard == nullptr) {
        return;
    }
    int dimension[CRL_LAYER_MAX_PARAMS] = {-7, -7, -7, -7};
    ASSERT_EQ(layer.shard(&spec, 1, dimension), CRL_STATUS_OK);
    for (int i = 0; i < spec.params; ++i) {
        EXPECT_GE(dimension[i], -1) << spec.param[i].name;
        EXPECT_LT(dimension[i], spec.param[i].shape.dimensions) << spec.param[i].name;
    }
    EXPECT_EQ(layer.shard(&spec, 1 << 20, dimension), CRL_STATUS_INVALID);
}

INSTANTIATE_TEST_SUITE_P(Every, LayersConformance, testing::ValuesIn(Cases()),
                         [](const testing::TestParamInfo<Case> &info) {
                             return std::string(info.param.example->layer) + "_" +
                                    info.param.example->tag + "_" +
                                    crl_dtype_name(info.param.compute);
                         });

} // namespace
} // namespace layer_test
