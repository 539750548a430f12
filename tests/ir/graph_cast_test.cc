/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/alloc.h"
#include "tests/ir/toy_model.h"

using toy::dense;
using toy::desc;

namespace {

crl_status infer_cast(crl_layer_spec *spec) {
    spec->outputs = 1;
    spec->output[0] = spec->input[0];
    spec->output[0].dtype = spec->input[0].dtype == CRL_DTYPE_F32 ? spec->compute : CRL_DTYPE_F32;
    spec->gradient_inputs = 1;
    return CRL_STATUS_OK;
}

/* The toy layers, a cast, a layer that takes its second input in f32 and one that takes any. */
const void *const *registry() {
    static std::vector<crl_layer> own;
    static std::vector<const void *> all;
    if (all.empty()) {
        for (const void *const *layer = toy::registry(); *layer; layer++) {
            all.push_back(*layer);
        }
        crl_layer layer = {};
        layer.help = "";
        layer.name = "cast", layer.infer = infer_cast, layer.as_is = 1;
        own.push_back(layer);
        layer.name = "weigh", layer.infer = toy::infer_join, layer.as_is = 0;
        layer.f32_inputs = 1u << 1;
        own.push_back(layer);
        layer.name = "take", layer.infer = toy::infer_join, layer.as_is = 1, layer.f32_inputs = 0;
        own.push_back(layer);
        for (const crl_layer &item : own) {
            all.push_back(&item);
        }
        all.push_back(nullptr);
    }
    return all.data();
}

toy::graph_ptr build(const std::vector<crl_layer_desc> &layers, crl_dtype compute,
                     const std::vector<const char *> &f32 = {},
                     const void *const *known = registry()) {
    toy::model_ptr list = toy::model();
    for (const crl_layer_desc &layer : layers) {
        toy::add(list, layer);
    }
    const crl_precision precision = {compute, f32.data(), (int)f32.size()};
    crl_graph *out = nullptr;
    if (crl_graph_build(&out, list.get(), known, 2, &precision) != CRL_STATUS_OK) {
        return nullptr;
    }
    return toy::graph_ptr(out);
}

/* "name:dtype<input,input ..." of all nodes. */
std::string text(const toy::graph_ptr &graph) {
    std::string out;
    for (int n = 0; graph && n < graph->nodes; n++) {
        const crl_node &node = graph->node[n];
        out += node.name;
        out += node.spec.outputs > 0 ? std::string(":") + crl_dtype_name(node.spec.output[0].dtype)
                                     : "";
        for (int i = 0; i < node.spec.inputs; i++) {
            out += (i == 0 ? "<" : ",") + std::string(graph->value[node.input[i]].name);
        }
        out += n + 1 < graph->nodes ? " " : "";
    }
    return graph ? out : crl_error_message();
}

TEST(IrGraphCast, StandsWhereTypesMeet) {
    const std::vector<crl_layer_desc> layers = {desc("source", "x"), dense("a", 8), dense("b", 8),
                                                dense("c", 8), desc("loss", "loss")};
    EXPECT_EQ(text(build(layers, CRL_DTYPE_F32)), "x:f32 a:f32<x b:f32<a c:f32<b loss<c");
    toy::graph_ptr graph = build(layers, CRL_DTYPE_BF16, {"b", "loss"});
    EXPECT_EQ(text(graph), "x:f32 a.cast:bf16<x a:bf16<a.cast b.cast:f32<a b:f32<b.cast "
                           "c.cast:bf16<b c:bf16<c.cast loss.cast:f32<c loss<loss.cast");
    ASSERT_TRUE(graph);
    EXPECT_EQ(graph->node[1].spec.compute, CRL_DTYPE_BF16);
    EXPECT_EQ(graph->node[3].spec.compute, CRL_DTYPE_BF16) << "its kernels are those of bf16";
    EXPECT_EQ(graph->node[4].spec.compute, CRL_DTYPE_F32);
    EXPECT_EQ(graph->params, 3);
    EXPECT_STREQ(graph->param[1].name, "b.weight");
    EXPECT_EQ(graph->value[1].bytes, 2u * 8 * 2);
}

TEST(IrGraphCast, IsSharedByLaterConsumers) {
    EXPECT_EQ(text(build({desc("source", "x"), dense("a", 8), dense("b", 8, {"x"}),
                          desc("join", "j", {"a", "b", "x"}), desc("loss", "loss")},
                         CRL_DTYPE_F16)),
              "x:f32 a.cast:f16<x a:f16<a.cast b:f16<a.cast j:f16<a,b,a.cast loss<j");
}

TEST(IrGraphCast, SeveralOfOneConsumerAreNumbered) {
    crl_layer_desc taken = dense("j.cast2", 8, {"y"});
    EXPECT_EQ(text(build({desc("source", "x"), desc("source", "y"), desc("source", "z"),
                          desc("join", "j", {"x", "y", "x", "z"}), desc("loss", "loss")},
                         CRL_DTYPE_BF16)),
              "x:f32 y:f32 z:f32 j.cast:bf16<x j.cast2:bf16<y j.cast3:bf16<z "
              "j:bf16<j.cast,j.cast2,j.cast,j.cast3 loss<j");
    EXPECT_EQ(text(build({desc("source", "x"), desc("source", "y"), taken,
                          desc("join", "j", {"x", "j.cast2", "y"}), desc("loss", "loss")},
                         CRL_DTYPE_BF16)),
              "x:f32 y:f32 j.cast2.cast:bf16<y j.cast2:bf16<j.cast2.cast j.cast:bf16<x "
              "j:bf16<j.cast,j.cast2,j.cast2.cast loss<j");
}

TEST(IrGraphCast, HeedsWhatALayerTakesAsItIsOrInF32) {
    EXPECT_EQ(text(build({desc("source", "x"), dense("a", 8), desc("weigh", "w", {"a", "x"}),
                          desc("weigh", "v", {"w", "a"}), desc("take", "t"), desc("loss", "loss")},
                         CRL_DTYPE_BF16)),
              "x:f32 a.cast:bf16<x a:bf16<a.cast w:bf16<a,x v.cast:f32<a v:bf16<w,v.cast "
              "t:bf16<v loss<t");
    EXPECT_EQ(text(build({desc("source", "x"), desc("take", "t"), desc("labels", "y"),
                          desc("loss", "loss", {"t", "y"})},
                         CRL_DTYPE_BF16)),
              "x:f32 t:f32<x y:i32 loss.cast:bf16<t loss<loss.cast,y")
        << "integers are never cast";
}

TEST(IrGraphCast, CarriesGradients) {
    toy::graph_ptr graph =
        build({desc("source", "x"), dense("a", 8), dense("b", 8), desc("loss", "loss")},
              CRL_DTYPE_BF16, {"b"});
    ASSERT_TRUE(graph);
    EXPECT_FALSE(graph->value[1].has_gradient) << "the cast of a data field";
    EXPECT_TRUE(graph->value[2].has_gradient) << "bf16 values have gradients";
    EXPECT_TRUE(graph->value[3].has_gradient) << "and their casts too";
}

/* Random draws may not change because some layer computes in another type. */
TEST(IrGraphCast, MovesNoKey) {
    const std::vector<crl_layer_desc> layers = {desc("source", "x"), dense("a", 8), dense("b", 8),
                                                desc("loss", "loss")};
    toy::graph_ptr plain = build(layers, CRL_DTYPE_F32);
    toy::graph_ptr mixed = build(layers, CRL_DTYPE_BF16, {"b"});
    ASSERT_TRUE(plain && mixed);
    for (int n = 0; n < plain->nodes; n++) {
        const crl_node &node = plain->node[n];
        EXPECT_EQ(node.key, (uint32_t)n);
        EXPECT_EQ(mixed->node[crl_graph_find(mixed.get(), node.name)].key, node.key) << node.name;
    }
}

TEST(IrGraphCast, TiesMatterNotForTheType) {
    crl_layer_desc head = dense("head", 8);
    head.tie[0] = {"weight", "a.weight"};
    toy::graph_ptr graph = build({desc("source", "x"), dense("a", 8), head, desc("loss", "loss")},
                                 CRL_DTYPE_BF16, {"head"});
    ASSERT_TRUE(graph) << crl_error_message();
    ASSERT_EQ(graph->params, 1);
    EXPECT_EQ(graph->param[0].use[1].node, crl_graph_find(graph.get(), "head"));
}

TEST(IrGraphCast, PatternsMatchNamesAndTypes) {
    const std::vector<crl_layer_desc> layers = {desc("source", "x"), dense("h0.fc", 8),
                                                dense("h1.fc", 8), desc("loss", "loss")};
    EXPECT_EQ(text(build(layers, CRL_DTYPE_BF16, {"h*.fc", "los?"})),
              "x:f32 h0.fc:f32<x h1.fc:f32<h0.fc loss<h1.fc");
    EXPECT_EQ(text(build(layers, CRL_DTYPE_BF16, {"dense", "loss"})),
              "x:f32 h0.fc:f32<x h1.fc:f32<h0.fc loss<h1.fc");
    EXPECT_FALSE(build(layers, CRL_DTYPE_BF16, {"loss", "h2.*"}));
    EXPECT_STREQ(crl_error_message(), "model: f32 pattern 'h2.*' matches no node's name or type");
    EXPECT_FALSE(build(layers, CRL_DTYPE_I32));
    EXPECT_STREQ(crl_error_message(), "model: computes in i32, expected f32, bf16 or f16");
}

TEST(IrGraphCast, NeedsALayerThatCasts) {
    const std::vector<crl_layer_desc> layers = {desc("source", "x"), dense("a", 8),
                                                desc("loss", "loss")};
    EXPECT_FALSE(build(layers, CRL_DTYPE_BF16, {}, toy::registry()));
    EXPECT_EQ(crl_error_get()->status, CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(),
                 "node a: input 'x' is f32, expected bf16: no layer 'cast' is known");
}

TEST(IrGraphCast, SurvivesEveryFailedAllocation) {
    toy::model_ptr model = toy::model();
    toy::add(model, desc("source", "x"));
    for (int i = 0; i < 40; i++) {
        toy::add(model, dense(crl_model_text(model.get(), "layer.number.%d", i), 8));
    }
    toy::add(model, desc("loss", "loss"));
    const char *f32[] = {"*[13579]"};
    const crl_precision precision = {CRL_DTYPE_BF16, f32, 1};
    crl_status status = CRL_STATUS_NOMEM;
    for (int64_t n = 1; n < 100000 && status != CRL_STATUS_OK; n++) {
        crl_alloc_watch watch = {};
        crl_alloc_watch *before = crl_alloc_attach(&watch);
        crl_graph *graph = nullptr;
        watch.fail_at = n;
        status = crl_graph_build(&graph, model.get(), registry(), 2, &precision);
        watch.fail_at = 0;
        EXPECT_EQ(graph != nullptr, status == CRL_STATUS_OK) << n;
        crl_graph_destroy(graph);
        EXPECT_EQ(watch.live_bytes, 0) << n;
        crl_alloc_attach(before);
    }
    EXPECT_EQ(status, CRL_STATUS_OK);
}

} // namespace
