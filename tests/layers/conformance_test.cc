/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What holds for every registered layer in every type that the tested backend computes in. The
 * registry is the test list: a layer without an example in examples.h fails
 * `EveryLayerHasAnExample`. Values are rounded to their types first and then taken as exact, so
 * that a tolerance covers the roundings of the layer alone.
 */
#include <algorithm>
#include <sstream>

#include "tests/layers/examples.h"

namespace layer_test {
namespace {

constexpr uint64_t kSeed = 20240229;

std::vector<float> Draw(uint32_t stream, int64_t count) {
    std::vector<float> out((size_t)count);
    const crl_rng rng = {kSeed, CRL_RNG_TEST, stream, 0, 0};
    crl_rng_fill_normal(&rng, out.data(), count, 0, 1);
    return out;
}

std::vector<float> DrawIntegers(uint32_t stream, int64_t count, int64_t below) {
    std::vector<float> out;
    const crl_rng rng = {kSeed, CRL_RNG_TEST, stream, 0, 0};
    for (int64_t i = 0; i < count; ++i) {
        out.push_back(
            IntegerBits((int32_t)((double)crl_rng_uniform(&rng, (uint64_t)i) * (double)below)));
    }
    return out;
}

int64_t Elements(const crl_tensor_spec &spec) {
    return crl_shape_elements(&spec.shape);
}

Values DrawValues(const Example &example, const crl_layer_spec &spec) {
    enum { X = 0, W = 100, DY = 200, DX = 300, DW = 400 };
    Values out;
    const auto draw = [](int stream, const crl_tensor_spec &of) {
        return Rounded(of.dtype, Draw((uint32_t)stream, Elements(of)));
    };
    for (int i = 0; i < spec.inputs; ++i) {
        out.x.push_back(
            spec.input[i].dtype == CRL_DTYPE_I32
                ? DrawIntegers((uint32_t)(X + i), Elements(spec.input[i]), example.integers_below)
                : draw(X + i, spec.input[i]));
        out.dx.push_back(draw(DX + i, spec.input[i]));
    }
    for (int i = 0; i < spec.params; ++i) {
        out.w.push_back(draw(W + i, {ParamType(spec, i), spec.param[i].shape}));
        out.dw.push_back(draw(DW + i, {CRL_DTYPE_F32, spec.param[i].shape}));
    }
    for (int i = 0; i < spec.outputs; ++i) {
        out.dy.push_back(draw(DY + i, spec.output[i]));
    }
    return out;
}

struct Case {
    const Example *example;
    crl_dtype compute;
};

void PrintTo(const Case &value, std::ostream *out) {
    *out << value.example->layer << " " << value.example->tag << " in "
         << crl_dtype_name(value.compute);
}

/* All examples in all types that the backend has kernels for. */
std::vector<Case> Cases() {
    std::vector<Case> out;
    for (const Example &example : Examples()) {
        for (const crl_dtype dtype : {CRL_DTYPE_F32, CRL_DTYPE_BF16, CRL_DTYPE_F16}) {
            if (crl_backend_kernels(backend(), dtype) != nullptr) {
                out.push_back({&example, dtype});
            }
        }
    }
    return out;
}

/* The inputs of an example as a graph that computes in `compute` would give them. */
std::vector<crl_tensor_spec> InputsOf(const Example &example, crl_dtype compute) {
    const crl_layer *layer = Find(example.layer);
    std::vector<crl_tensor_spec> inputs = example.inputs;
    for (size_t i = 0; layer != nullptr && i < inputs.size(); ++i) {
        const bool f32 = layer->f32_inputs >> i & 1 || (layer->as_is >> i & 1 && !example.typed);
        if (inputs[i].dtype == CRL_DTYPE_F32 && !f32) {
            inputs[i].dtype = compute;
        }
    }
    return inputs;
}

class LayersConformance : public testing::TestWithParam<Case> {
  protected:
    void SetUp() override {
        const Example &example = *GetParam().example;
        inferred_ = Infer();
        ASSERT_EQ(inferred_->status, CRL_STATUS_OK) << inferred_->error;
        if (inferred_->layer->is_input) {
            return;
        }
        values_ = DrawValues(example, inferred_->spec);
        settings_.at = {kSeed, 3, 17, 8, inferred_->spec.batch - example.padding, true};
    }

    static std::unique_ptr<Inferred> Infer(crl_dtype compute = GetParam().compute) {
        const Example &example = *GetParam().example;
        return std::make_unique<Inferred>(example.layer, "node", InputsOf(example, compute),
                                          example.options, example.batch, compute);
    }

    /* A tolerance that suffices in f32, with so many roundings of the type. */
    static double Tolerance(double f32, double units) {
        return f32 + units * Unit(GetParam().compute);
    }

    /* Results may also err by roundings of what they are made from, relative to their scale. */
    static void CheckForward(const Results &got, const Numbers &exact) {
        ASSERT_EQ(got.y.size(), exact.y.size());
        for (size_t o = 0; o < got.y.size(); ++o) {
            ASSERT_EQ(got.y[o].size(), exact.y[o].size());
            double squares = 0;
            for (const double y : exact.y[o]) {
                squares += y * y / (double)exact.y[o].size();
            }
            for (size_t i = 0; i < got.y[o].size(); ++i) {
                ASSERT_NEAR((double)got.y[o][i], exact.y[o][i],
                            Tolerance(1e-5, 1) * (1 + std::abs(exact.y[o][i]) + std::sqrt(squares)))
                    << "output " << o << " element " << i << ", seed " << kSeed;
            }
        }
    }

    bool Computes() const { return !inferred_->layer->is_input; }
    Results Run(const Settings &settings) { return Execute(*inferred_, values_, settings); }

    /* The same in double; x and w may then be moved. */
    Numbers Exact() const {
        const crl_layer_spec &spec = inferred_->spec;
        Numbers n{&spec, &GetParam().example->options, settings_.at, {}, {}, {}, {}};
        for (int i = 0; i < spec.inputs; ++i) {
            n.x.emplace_back();
            for (const float x : values_.x[i]) {
                n.x[i].push_back(spec.input[i].dtype == CRL_DTYPE_I32 ? Integer(x) : (double)x);
            }
        }
        for (const auto &w : values_.w) {
            n.w.emplace_back(w.begin(), w.end());
        }
        n.y.resize((size_t)spec.outputs);
        return n;
    }

    /* The number whose gradient backward computes. */
    double Functional(Numbers *n) const {
        GetParam().example->reference(n);
        double sum = n->loss.sum;
        for (size_t o = 0; o < n->y.size(); ++o) {
            for (size_t i = 0; i < n->y[o].size(); ++i) {
                sum += n->y[o][i] * (double)values_.dy[o][i];
            }
        }
        return sum;
    }

    /* Compares `gradient` of *variable (one of n's vectors) with central differences. */
    void CheckGradient(const char *what, Numbers *n, std::vector<double> *variable,
                       const std::vector<float> &gradient) const {
        const size_t most_samples = GetParam().example->large ? 4 : 100;
        const double tolerance = Tolerance(1e-4, 2);
        const size_t stride = 1 + variable->size() / most_samples;
        std::vector<double> expected;
        double squares = 0;
        for (size_t i = 0; i < variable->size(); i += stride) {
            const double x = (*variable)[i], h = 1e-5 * std::max(1.0, std::abs(x));
            (*variable)[i] = x + h;
            const double above = Functional(n);
            (*variable)[i] = x - h;
            const double below = Functional(n);
            (*variable)[i] = x;
            expected.push_back((above - below) / (2 * h));
            squares += expected.back() * expected.back();
        }
        const double scale = std::sqrt(squares / (double)expected.size());
        ASSERT_EQ(gradient.size(), variable->size()) << what;
        for (size_t k = 0; k < expected.size(); ++k) {
            ASSERT_NEAR((double)gradient[k * stride], expected[k],
                        tolerance * (std::abs(expected[k]) + scale) + 1e-8)
                << what << " element " << k * stride << ", seed " << kSeed;
        }
    }

    std::unique_ptr<Inferred> inferred_;
    Values values_;
    Settings settings_;
};

void ExpectSame(const std::vector<std::vector<float>> &a, const std::vector<std::vector<float>> &b,
                const char *what) {
    ASSERT_EQ(a.size(), b.size()) << what;
    for (size_t i = 0; i < a.size(); ++i) {
        ASSERT_EQ(a[i].size(), b[i].size()) << what << " " << i;
        EXPECT_TRUE(a[i].empty() ||
                    std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) == 0)
            << what << " " << i << " has other bits";
    }
}

void ExpectSame(const Results &a, const Results &b) {
    ExpectSame(a.y, b.y, "output");
    ExpectSame(a.save, b.save, "saved tensor");
    ExpectSame(a.dx, b.dx, "input gradient");
    ExpectSame(a.dw, b.dw, "weight gradient");
    EXPECT_EQ(std::memcmp(&a.loss, &b.loss, sizeof a.loss), 0) << "loss has other bits";
}

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

TEST_P(LayersConformance, ForwardMatchesDouble) {
    if (!Computes()) {
        return;
    }
    const Results got = Run(settings_);
    Numbers exact = Exact();
    GetParam().example->reference(&exact);
    CheckForward(got, exact);
    EXPECT_NEAR(got.loss.sum, exact.loss.sum, 1e-5 * (1 + std::abs(exact.loss.sum)));
    EXPECT_NEAR(got.loss.weight, exact.loss.weight, 1e-6 * (1 + std::abs(exact.loss.weight)));
    EXPECT_EQ(got.loss.correct, exact.loss.correct);
    if (exact.loss.rows > 0) {
        EXPECT_EQ(got.loss.rows, exact.loss.rows);
    }
}

/* `f32`, rounded to the type, but where the two computations fall on two sides of a tie. */
void ExpectRounded(const std::vector<float> &got, const std::vector<float> &f32, crl_dtype dtype,
                   const char *what) {
    size_t same = 0;
    ASSERT_EQ(got.size(), f32.size()) << what;
    for (size_t i = 0; i < got.size(); ++i) {
        same += got[i] == Round(dtype, f32[i]);
    }
    EXPECT_GE((double)same, 0.98 * (double)got.size()) << what;
}

/* Arithmetic is f32 in all types, so that nothing is rounded but what is stored. Where a result
 * depends on another stored one, nothing can be said. */
TEST_P(LayersConformance, ResultsAreThoseOfF32RoundedOnce) {
    const crl_layer_spec &spec = inferred_->spec;
    bool keeps_rounded = spec.outputs > 1;
    for (int i = 0; i < spec.saves; ++i) {
        keeps_rounded = keeps_rounded || spec.save[i].dtype != CRL_DTYPE_F32;
    }
    if (!Computes() || keeps_rounded) {
        return;
    }
    const Results got = Run(settings_);
    const Results f32 = Execute(*Infer(CRL_DTYPE_F32), values_, settings_);
    for (int i = 0; i < spec.outputs; ++i) {
        ExpectRounded(got.y[i], f32.y[i], spec.output[i].dtype, "output");
    }
    for (int i = 0; i < spec.inputs && spec.input_needs_outputs == 0; ++i) {
        ExpectRounded(got.dx[i], f32.dx[i], spec.input[i].dtype, "input gradient");
    }
}

TEST_P(LayersConformance, GradientsMatchFiniteDifferences) {
    if (!Computes()) {
        return;
    }
    const Results got = Run(settings_);
    Numbers exact = Exact();
    for (int i = 0; i < inferred_->spec.inputs; ++i) {
        if (inferred_->spec.gradient_inputs >> i & 1) {
            CheckGradient("input", &exact, &exact.x[i], got.dx[i]);
        }
    }
    for (int i = 0; i < inferred_->spec.params; ++i) {
        CheckGradient(inferred_->spec.param[i].name, &exact, &exact.w[i], got.dw[i]);
    }
}

TEST_P(LayersConformance, ForwardMatchesDoubleWhenNotTraining) {
    if (!Computes()) {
        return;
    }
    settings_.at.training = false;
    settings_.training = false;
    settings_.prepare_training = false;
    const Results got = Run(settings_);
    settings_.prepare_training = true;
    ExpectSame(got, Run(settings_));
    Numbers exact = Exact();
    GetParam().example->reference(&exact);
    CheckForward(got, exact);
}

TEST_P(LayersConformance, InputAndWeightGradientsAreIndependent) {
    if (!Computes()) {
        return;
    }
    const Results separate = Run(settings_);
    settings_.weight_first = true;
    ExpectSame(separate, Run(settings_));
    if (inferred_->layer->backward != nullptr) {
        settings_.fused = true;
        ExpectSame(separate, Run(settings_));
    }
}

/* A layer may add its terms one by one to what is there, so a few roundings may differ. */
void ExpectSum(const std::vector<float> &sum, const std::vector<float> &a,
               const std::vector<float> &b, crl_dtype dtype, const char *what) {
    ASSERT_EQ(sum.size(), b.size()) << what;
    for (size_t i = 0; i < sum.size(); ++i) {
        const double largest = std::max({std::abs(sum[i]), std::abs(a[i]), std::abs(b[i])});
        ASSERT_NEAR((double)sum[i], (double)a[i] + (double)b[i],
                    (0x1p-21 + Unit(dtype)) * (largest + 1))
            << what << " element " << i;
    }
}

TEST_P(LayersConformance, AccumulatingAdds) {
    if (!Computes()) {
        return;
    }
    const Results separate = Run(settings_);
    settings_.accumulate = true;
    const Results added = Run(settings_);
    for (int i = 0; i < inferred_->spec.inputs; ++i) {
        if (inferred_->spec.gradient_inputs >> i & 1) {
            ExpectSum(added.dx[i], values_.dx[i], separate.dx[i], inferred_->spec.input[i].dtype,
                      "input gradient");
        }
    }
    for (int i = 0; i < inferred_->spec.params; ++i) {
        ExpectSum(added.dw[i], values_.dw[i], separate.dw[i], CRL_DTYPE_F32, "weight gradient");
    }
}

TEST_P(LayersConformance, UnwantedInputGradientsAreSkipped) {
    if (!Computes()) {
        return;
    }
    const Results all = Run(settings_);
    settings_.dx_wanted = 0;
    const Results none = Run(settings_);
    ExpectSame(all.dw, none.dw, "weight gradient");
    for (int i = 0; i < inferred_->spec.inputs; ++i) {
        settings_.dx_wanted = 1u << i;
        const Results one = Run(settings_);
        EXPECT_EQ(one.dx[i], all.dx[i]);
    }
}

TEST_P(LayersConformance, BitsDoNotDependOnThreads) {
    if (!Computes()) {
        return;
    }
    for (const bool accumulate : {false, true}) {
        settings_.accumulate = accumulate;
        settings_.threads = 1;
        const Results one = Run(settings_);
        for (const int threads : {2, 3}) {
            settings_.threads = threads;
            ExpectSame(one, Run(settings_));
        }
    }
}

/* What backward makes again instead of keeping it. */
TEST_P(LayersConformance, ForwardAgainGivesTheSameBits) {
    if (Computes()) {
        settings_.again = true;
        Run(settings_);
    }
}

TEST_P(LayersConformance, LossScalesItsGradient) {
    if (!inferred_->layer->is_loss) {
        return;
    }
    const Results plain = Run(settings_);
    settings_.loss_scale = 4;
    const Results scaled = Run(settings_);
    EXPECT_EQ(scaled.loss.sum, plain.loss.sum);
    for (size_t i = 0; i < plain.dx[0].size(); ++i) {
        ASSERT_NEAR(scaled.dx[0][i], 4 * plain.dx[0][i],
                    (1e-6 + Unit(GetParam().compute)) * std::abs(scaled.dx[0][i]) + 1e-7)
            << "element " << i;
    }
}

TEST_P(LayersConformance, LossAddsToWhatIsThere) {
    if (!inferred_->layer->is_loss) {
        return;
    }
    const Results alone = Run(settings_);
    settings_.loss = {1.5, 2.25, 3, 4};
    const Results added = Run(settings_);
    EXPECT_EQ(added.loss.sum, 1.5 + alone.loss.sum);
    EXPECT_EQ(added.loss.weight, 2.25 + alone.loss.weight);
    EXPECT_EQ(added.loss.correct, 3 + alone.loss.correct);
    EXPECT_EQ(added.loss.rows, 4 + alone.loss.rows);
}

TEST_P(LayersConformance, PrepareSurvivesEveryFailedAllocation) {
    const crl_layer &layer = *inferred_->layer;
    if (layer.prepare == nullptr) {
        return;
    }
    const Stream stream;
    const crl_layer_env env = {Stream::device(), crl_backend_kernels(backend(), GetParam().compute),
                               stream.get(), true};
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
