/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forward passes in double, one per layer type, written for clarity. Their finite differences are
 * what the layers' gradients are held to.
 */
#pragma once

#include "tests/layers/runner.h"

namespace layer_test {

/* Inputs (integers as numbers) and parameters of a forward pass; outputs or the loss come out. */
struct Numbers {
    const crl_layer_spec *spec;
    const Texts *options;
    crl_call_position at;
    std::vector<std::vector<double>> x, w, y;
    crl_loss loss{};

    int64_t Last(int input) const {
        const crl_shape &shape = spec->input[input].shape;
        return shape.size[shape.dimensions - 1];
    }
    int64_t Rows(int input) const { return (int64_t)x[input].size() / Last(input); }
    double Option(const std::string &name, double otherwise) const {
        const auto found = options->find(name);
        return found == options->end() ? otherwise : std::stod(found->second);
    }
    std::string Choice(const std::string &name, const std::string &otherwise) const {
        const auto found = options->find(name);
        return found == options->end() ? otherwise : found->second;
    }
};

inline double Gelu(double x, bool tanh) {
    return tanh ? x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)))
                : x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
}

inline double Activate(const std::string &activation, double x) {
    if (activation == "relu") {
        return x > 0 ? x : 0;
    }
    return activation == "none" ? x : Gelu(x, activation == "gelu_tanh");
}

/* f(x w^T + b); b NULL: 0 */
inline std::vector<double> Dense(const std::vector<double> &x, const std::vector<double> &w,
                                 const std::vector<double> *b, int64_t in,
                                 const std::string &activation) {
    const int64_t rows = (int64_t)x.size() / in, out = (int64_t)w.size() / in;
    std::vector<double> y(rows * out);
    for (int64_t r = 0; r < rows; ++r) {
        for (int64_t o = 0; o < out; ++o) {
            double sum = b != nullptr ? (*b)[o] : 0;
            for (int64_t i = 0; i < in; ++i) {
                sum += x[r * in + i] * w[o * in + i];
            }
            y[r * out + o] = Activate(activation, sum);
        }
    }
    return y;
}

inline void ReferenceLinear(Numbers *n) {
    n->y[0] = Dense(n->x[0], n->w[0], n->w.size() == 2 ? &n->w[1] : nullptr, n->Last(0),
                    n->Choice("activation", "none"));
}

inline void ReferenceMlp(Numbers *n) {
    const bool bias = n->w.size() == 4;
    const std::vector<double> h = Dense(n->x[0], n->w[0], bias ? &n->w[1] : nullptr, n->Last(0),
                                        n->Choice("activation", "gelu"));
    n->y[0] = Dense(h, n->w[bias ? 2 : 1], bias ? &n->w[3] : nullptr,
                    (int64_t)n->Option("hidden", 0), "none");
}

inline void ReferenceEmbedding(Numbers *n) {
    const int64_t channels = n->spec->param[0].shape.size[1];
    const int64_t tokens = (int64_t)n->x[0].size(), per_sample = tokens / n->spec->batch;
    n->y[0].assign(tokens * channels, 0);
    for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t c = 0; c < channels; ++c) {
            n->y[0][t * channels + c] =
                n->w[0][(int64_t)n->x[0][t] * channels + c] +
                (n->w.size() == 2 ? n->w[1][t % per_sample * channels + c] : 0);
        }
    }
}

inline std::vector<double> Normalise(const Numbers &n, const std::vector<double> &x) {
    const int64_t channels = n.Last(0), rows = n.Rows(0);
    std::vector<double> y(x.size());
    for (int64_t r = 0; r < rows; ++r) {
        const double *row = &x[r * channels];
        double mean = 0, variance = 0;
        for (int64_t c = 0; c < channels; ++c) {
            mean += row[c] / (double)channels;
        }
        for (int64_t c = 0; c < channels; ++c) {
            variance += (row[c] - mean) * (row[c] - mean) / (double)channels;
        }
        const double rstd = 1 / std::sqrt(variance + n.Option("epsilon", 1e-5));
        for (int64_t c = 0; c < channels; ++c) {
            y[r * channels + c] = (row[c] - mean) * rstd * n.w[0][c] + n.w[1][c];
        }
    }
    return y;
}

inline void ReferenceLayernorm(Numbers *n) {
    n->y[0] = Normalise(*n, n->x[0]);
}

inline void ReferenceAddLayernorm(Numbers *n) {
    n->y[0] = n->x[0];
    for (size_t i = 0; i < n->x[0].size(); ++i) {
        n->y[0][i] += n->x[1][i];
    }
    n->y[1] = Normalise(*n, n->y[0]);
}

inline void ReferenceRmsnorm(Numbers *n) {
    const int64_t channels = n->Last(0), rows = n->Rows(0);
    n->y[0].assign(rows * channels, 0);
    for (int64_t r = 0; r < rows; ++r) {
        const double *x = &n->x[0][r * channels];
        double squares = 0;
        for (int64_t c = 0; c < channels; ++c) {
            squares += x[c] * x[c] / (double)channels;
        }
        for (int64_t c = 0; c < channels; ++c) {
            n->y[0][r * channels + c] =
                x[c] / std::sqrt(squares + n->Option("epsilon", 1e-5)) * n->w[0][c];
        }
    }
}

inline void ReferenceSwiglu(Numbers *n) {
    const int64_t channels = n->Last(0) / 2, rows = n->Rows(0);
    n->y[0].assign(rows * channels, 0);
    for (int64_t r = 0; r < rows; ++r) {
        const double *u = &n->x[0][r * 2 * channels], *v = u + channels;
        for (int64_t c = 0; c < channels; ++c) {
            n->y[0][r * channels + c] = u[c] / (1 + std::exp(-u[c])) * v[c];
        }
    }
}

inline void ReferenceGelu(Numbers *n) {
    n->y[0].clear();
    for (const double x : n->x[0]) {
        n->y[0].push_back(Gelu(x, n->Choice("approximation", "erf") == "tanh"));
    }
}

inline void ReferenceRelu(Numbers *n) {
    n->y[0].clear();
    for (const double x : n->x[0]) {
        n->y[0].push_back(x > 0 ? x : 0);
    }
}

/* One query of one head: softmax of the scores with the keys it sees, times their values. */
inline void AttendOne(Numbers *n, int64_t b, int64_t query, int64_t head) {
    const crl_shape &shape = n->spec->input[0].shape;
    const int64_t t = shape.size[1], packed = shape.size[2], channels = packed / 3;
    const int64_t heads = (int64_t)n->Option("heads", 1), size = channels / heads;
    const double *qkv = &n->x[0][b * t * packed];
    const int64_t seen = n->Choice("causal", "true") == "true" ? query + 1 : t;
    std::vector<double> weight(seen);
    double total = 0;
    for (int64_t key = 0; key < seen; ++key) {
        double score = 0;
        for (int64_t d = 0; d < size; ++d) {
            score += qkv[query * packed + head * size + d] *
                     qkv[key * packed + channels + head * size + d];
        }
        weight[key] = std::exp(score / std::sqrt((double)size));
        total += weight[key];
    }
    for (int64_t d = 0; d < size; ++d) {
        double sum = 0;
        for (int64_t key = 0; key < seen; ++key) {
            sum += weight[key] / total * qkv[key * packed + 2 * channels + head * size + d];
        }
        n->y[0][(b * t + query) * channels + head * size + d] = sum;
    }
}

inline void ReferenceAttention(Numbers *n) {
    const crl_shape &shape = n->spec->input[0].shape;
    n->y[0].assign(n->x[0].size() / 3, 0);
    for (int64_t b = 0; b < shape.size[0]; ++b) {
        for (int64_t query = 0; query < shape.size[1]; ++query) {
            for (int64_t head = 0; head < (int64_t)n->Option("heads", 1); ++head) {
                AttendOne(n, b, query, head);
            }
        }
    }
}

inline void ReferenceAdd(Numbers *n) {
    n->y[0] = n->x[0];
    for (size_t i = 0; i < n->x[0].size(); ++i) {
        n->y[0][i] += n->x[1][i];
    }
}

inline void ReferenceScale(Numbers *n) {
    n->y[0] = n->x[0];
    for (double &y : n->y[0]) {
        y *= n->w[0][0];
    }
}

inline void ReferenceDropout(Numbers *n) {
    const int64_t per_sample = (int64_t)n->x[0].size() / n->spec->batch;
    const double p = n->Option("p", 0.1);
    n->y[0] = n->x[0];
    for (int64_t i = 0; i < (int64_t)n->y[0].size() && n->at.training; ++i) {
        crl_rng rng{};
        rng.seed = n->at.seed;
        rng.purpose = CRL_RNG_DROPOUT;
        rng.layer = n->at.node;
        rng.step = n->at.step;
        rng.sample = (uint32_t)(n->at.first_sample + i / per_sample);
        const bool kept = crl_rng_uniform(&rng, (uint64_t)(i % per_sample)) >= p;
        n->y[0][i] = kept ? n->y[0][i] / (1 - p) : 0;
    }
}

/* flatten, cast */
inline void ReferenceSame(Numbers *n) {
    n->y[0] = n->x[0];
}

inline std::vector<double> ParseList(const std::string &text) {
    std::vector<double> out;
    for (size_t at = 0; at < text.size();
         at = text.find(',', at) == std::string::npos ? text.size() : text.find(',', at) + 1) {
        out.push_back(std::stod(text.substr(at)));
    }
    return out;
}

inline void ReferenceCrossEntropy(Numbers *n) {
    const int64_t classes = n->Last(0), rows = n->Rows(0);
    const std::vector<double> label_weight = ParseList(n->Choice("label_weights", ""));
    n->loss = {};
    for (int64_t r = 0; r < rows / n->spec->batch * n->at.valid_samples; ++r) {
        const double *logits = &n->x[0][r * classes];
        const auto target = (int64_t)n->x[1][r];
        if (target == (int64_t)n->Option("ignore_index", -100)) {
            continue;
        }
        double total = 0;
        bool largest = true;
        for (int64_t v = 0; v < classes; ++v) {
            total += std::exp(logits[v]);
            largest = largest && (logits[v] <= logits[target]);
        }
        const double weight =
            (label_weight.empty() ? 1 : label_weight[target]) * (n->x.size() == 3 ? n->x[2][r] : 1);
        n->loss.sum += weight * (std::log(total) - logits[target]);
        n->loss.weight += weight;
        n->loss.correct += largest;
        n->loss.rows += 1;
    }
}

inline void ReferenceMse(Numbers *n) {
    n->loss = {};
    const auto valid = (int64_t)n->x[0].size() / n->spec->batch * n->at.valid_samples;
    for (int64_t i = 0; i < valid; ++i) {
        n->loss.sum += (n->x[0][i] - n->x[1][i]) * (n->x[0][i] - n->x[1][i]);
        n->loss.weight += 1;
    }
}

} // namespace layer_test
