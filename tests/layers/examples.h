/* SPDX-License-Identifier: Apache-2.0 */
/* What every layer is tried with: shapes, options, and its forward pass in double. */
#pragma once

#include <ostream>

#include "tests/layers/reference.h"

namespace layer_test {

using Reference = void (*)(Numbers *);

struct Example {
    const char *layer;
    const char *tag;
    std::vector<crl_tensor_spec> inputs;
    Texts options;
    Reference reference;
    int64_t integers_below = 0; /* limit of i32 inputs */
    int64_t padding = 0;        /* samples at the end that do not count */
    int64_t batch = -1;         /* of layers without inputs */
    bool large = false;         /* worth several threads; few elements are differentiated */
};

inline void PrintTo(const Example &example, std::ostream *out) {
    *out << example.layer << " " << example.tag;
}

inline const std::vector<Example> &Examples() {
    static const std::vector<Example> all = {
        {"input", "image", {}, {{"dims", "28,28"}}, nullptr, 0, 0, 3},
        {"linear", "rows", {F32({5, 7})}, {{"out", "9"}}, ReferenceLinear},
        {"linear", "sequence", {F32({2, 17, 33})}, {{"out", "70"}}, ReferenceLinear},
        {"linear", "nobias", {F32({3, 4, 8})}, {{"out", "5"}, {"bias", "false"}}, ReferenceLinear},
        {"linear", "wide", {F32({2, 40, 48})}, {{"out", "300"}}, ReferenceLinear, 0, 0, -1, true},
        {"linear", "one", {F32({1, 1})}, {{"out", "1"}}, ReferenceLinear},
        {"embedding",
         "tokens",
         {I32({3, 5})},
         {{"vocabulary", "11"}, {"channels", "6"}},
         ReferenceEmbedding,
         11},
        {"embedding",
         "positions",
         {I32({2, 9})},
         {{"vocabulary", "13"}, {"channels", "20"}, {"positions", "true"}, {"context", "12"}},
         ReferenceEmbedding,
         13},
        {"layernorm", "rows", {F32({6, 5})}, {}, ReferenceLayernorm},
        {"layernorm", "sequence", {F32({3, 30, 37})}, {{"epsilon", "1e-3"}}, ReferenceLayernorm},
        {"gelu", "erf", {F32({3, 50})}, {}, ReferenceGelu},
        {"gelu", "tanh", {F32({4, 5, 67})}, {{"approximation", "tanh"}}, ReferenceGelu},
        {"relu", "rows", {F32({5, 77})}, {}, ReferenceRelu},
        {"attention", "short", {F32({2, 5, 3 * 12})}, {{"heads", "3"}}, ReferenceAttention},
        {"attention", "long", {F32({1, 70, 3 * 16})}, {{"heads", "2"}}, ReferenceAttention},
        {"attention", "onehead", {F32({2, 33, 3 * 7})}, {{"heads", "1"}}, ReferenceAttention},
        {"attention",
         "bidirectional",
         {F32({2, 19, 3 * 8})},
         {{"heads", "2"}, {"causal", "false"}},
         ReferenceAttention},
        {"attention", "token", {F32({3, 1, 3 * 4})}, {{"heads", "2"}}, ReferenceAttention},
        {"add", "sequence", {F32({2, 5, 33}), F32({2, 5, 33})}, {}, ReferenceAdd},
        {"scale", "sequence", {F32({2, 31, 33})}, {}, ReferenceScale},
        {"dropout", "default", {F32({4, 6, 35})}, {}, ReferenceDropout},
        {"dropout", "half", {F32({3, 129})}, {{"p", "0.5"}}, ReferenceDropout},
        {"dropout", "none", {F32({3, 10})}, {{"p", "0"}}, ReferenceDropout},
        {"flatten", "image", {F32({3, 4, 5, 2})}, {}, ReferenceFlatten},
        {"flatten", "samples", {F32({6})}, {}, ReferenceFlatten},
        {"softmax_cross_entropy", "rows", {F32({5, 10}), I32({5})}, {}, ReferenceCrossEntropy, 10},
        {"softmax_cross_entropy",
         "sequence",
         {F32({3, 7, 37}), I32({3, 7})},
         {{"ignore_index", "4"}},
         ReferenceCrossEntropy,
         37,
         1},
        {"softmax_cross_entropy",
         "weights",
         {F32({4, 6, 5}), I32({4, 6}), F32({4, 6})},
         {{"label_weights", "1,0.5,2,0,1.25"}},
         ReferenceCrossEntropy,
         5,
         2},
        {"softmax_cross_entropy",
         "padding",
         {F32({4, 9}), I32({4})},
         {},
         ReferenceCrossEntropy,
         9,
         4},
        {"mse", "rows", {F32({4, 33}), F32({4, 33})}, {}, ReferenceMse},
        {"mse", "padding", {F32({5, 3, 7}), F32({5, 3, 7})}, {}, ReferenceMse, 0, 2},
        {"linear", "large", {F32({2, 128, 96})}, {{"out", "448"}}, ReferenceLinear, 0, 0, -1, true},
        {"embedding",
         "large",
         {I32({8, 64})},
         {{"vocabulary", "300"}, {"channels", "64"}, {"positions", "true"}},
         ReferenceEmbedding,
         300,
         0,
         -1,
         true},
        {"layernorm", "large", {F32({4, 64, 96})}, {}, ReferenceLayernorm, 0, 0, -1, true},
        {"gelu", "large", {F32({3, 8192})}, {}, ReferenceGelu, 0, 0, -1, true},
        {"relu", "large", {F32({3, 8192})}, {}, ReferenceRelu, 0, 0, -1, true},
        {"attention",
         "large",
         {F32({2, 150, 3 * 32})},
         {{"heads", "2"}},
         ReferenceAttention,
         0,
         0,
         -1,
         true},
        {"add", "large", {F32({3, 8192}), F32({3, 8192})}, {}, ReferenceAdd, 0, 0, -1, true},
        {"scale", "large", {F32({3, 8192})}, {}, ReferenceScale, 0, 0, -1, true},
        {"dropout", "large", {F32({3, 8192})}, {}, ReferenceDropout, 0, 0, -1, true},
        {"flatten", "large", {F32({3, 2, 4096})}, {}, ReferenceFlatten, 0, 0, -1, true},
        {"softmax_cross_entropy",
         "large",
         {F32({4, 32, 300}), I32({4, 32})},
         {},
         ReferenceCrossEntropy,
         300,
         1,
         -1,
         true},
        {"mse", "large", {F32({3, 8192}), F32({3, 8192})}, {}, ReferenceMse, 0, 1, -1, true},
    };
    return all;
}

} // namespace layer_test
