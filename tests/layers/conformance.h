/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every example of every registered layer in every type that the tested backend computes in. Values
 * are rounded to their types first and then taken as exact, so that a tolerance covers the
 * roundings of the layer alone.
 */
#pragma once

#include "tests/layers/examples.h"

namespace layer_test {

inline constexpr uint64_t kSeed = 20240229;

inline std::vector<float> Draw(uint32_t stream, int64_t count) {
    std::vector<float> out((size_t)count);
    const crl_rng rng = {kSeed, CRL_RNG_TEST, stream, 0, 0};
    crl_rng_fill_normal(&rng, out.data(), count, 0, 1);
    return out;
}

inline std::vector<float> DrawIntegers(uint32_t stream, int64_t count, int64_t below) {
    std::vector<float> out;
    const crl_rng rng = {kSeed, CRL_RNG_TEST, stream, 0, 0};
    for (int64_t i = 0; i < count; ++i) {
        out.push_back(
            IntegerBits((int32_t)((double)crl_rng_uniform(&rng, (uint64_t)i) * (double)below)));
    }
    return out;
}

inline int64_t Elements(const crl_tensor_spec &spec) {
    return crl_shape_elements(&spec.shape);
}

inline Values DrawValues(const Example &example, const crl_layer_spec &spec) {
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

inline void PrintTo(const Case &value, std::ostream *out) {
    *out << value.example->layer << " " << value.example->tag << " in "
         << crl_dtype_name(value.compute);
}

/* All examples in all types that the backend has kernels for. */
inline std::vector<Case> Cases() {
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
inline std::vector<crl_tensor_spec> InputsOf(const Example &example, crl_dtype compute) {
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

} // namespace layer_test
