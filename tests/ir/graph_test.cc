/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/ir/toy_model.h"

#include "engine/base/alloc.h"
#include "tests/base/comma_locale.h"

using toy::dense;
using toy::desc;

namespace {

std::string failure(const std::vector<crl_layer_desc> &layers) {
    toy::graph_ptr graph = toy::try_graph(layers);
    EXPECT_FALSE(graph);
    EXPECT_EQ(crl_error_get()->status, CRL_STATUS_INVALID);
    return crl_error_message();
}

} // namespace

TEST(IrGraph, LinksNodesValuesAndParameters) {
    crl_layer_desc wide = dense("b", 8);
    wide.options[1].key = "bias";
    wide.options[1].number = 1;
    toy::graph_ptr graph =
        toy::graph({desc("source", "x"), desc("labels", "y"), dense("a", 8, {"x"}), wide,
                    desc("join", "sum", {"a", "b"}), desc("loss", "loss", {"sum", "y"})},
                   5);
    ASSERT_TRUE(graph);
    EXPECT_EQ(graph->nodes, 6);
    EXPECT_EQ(graph->values, 5);
    EXPECT_EQ(graph->params, 3);
    EXPECT_EQ(graph->loss_node, 5);
    EXPECT_EQ(graph->batch, 5);
    EXPECT_EQ(crl_graph_find(graph.get(), "sum"), 4);
    EXPECT_EQ(crl_graph_find(graph.get(), "summ"), -1);
    EXPECT_EQ(crl_graph_param_elements(graph.get()), 64 + 64 + 8);
    const crl_value *a = &graph->value[2];
    EXPECT_STREQ(a->name, "a");
    EXPECT_EQ(a->bytes, 5u * 8 * 4);
    ASSERT_EQ(a->consumers, 2);
    EXPECT_EQ(a->consumer[0].node, 3);
    EXPECT_EQ(a->consumer[0].slot, 0);
    EXPECT_EQ(a->consumer[1].node, 4);
    EXPECT_EQ(a->consumer[1].slot, 0);
    EXPECT_TRUE(graph->value[0].from_input);
    EXPECT_FALSE(graph->value[0].has_gradient);
    EXPECT_FALSE(graph->value[1].has_gradient);
    EXPECT_TRUE(a->has_gradient);
    EXPECT_STREQ(graph->param[2].name, "b.bias");
    EXPECT_EQ(graph->node[3].param[1], 2);
}

TEST(IrGraph, GradientNeedsAParameterUpstream) {
    toy::graph_ptr graph = toy::graph({desc("source", "x"), desc("join", "j"), dense("a", 8),
                                       desc("join", "k", {"j", "a"}), desc("loss", "loss")});
    ASSERT_TRUE(graph);
    EXPECT_FALSE(graph->value[1].has_gradient);
    EXPECT_TRUE(graph->value[2].has_gradient);
    EXPECT_TRUE(graph->value[3].has_gradient);
}

TEST(IrGraph, OutputsAreNamedByNumber) {
    toy::graph_ptr graph =
        toy::graph({desc("source", "x"), dense("a", 8), desc("split", "s"),
                    desc("join", "j", {"s:1", "s:0", "s"}), desc("loss", "loss")});
    ASSERT_TRUE(graph);
    EXPECT_STREQ(graph->value[3].name, "s:1");
    EXPECT_EQ(graph->node[3].input[0], 3);
    EXPECT_EQ(graph->node[3].input[1], 2);
    EXPECT_EQ(graph->node[3].input[2], 2);
    EXPECT_EQ(graph->value[2].consumers, 2);
}

TEST(IrGraph, TiesParametersOfEqualShape) {
    crl_layer_desc head = dense("head", 8), third = dense("third", 8);
    head.tie[0] = {"weight", "a.weight"};
    third.tie[0] = {"weight", "head.weight"};
    toy::graph_ptr graph =
        toy::graph({desc("source", "x"), dense("a", 8), head, third, desc("loss", "loss")});
    ASSERT_TRUE(graph);
    ASSERT_EQ(graph->params, 1);
    ASSERT_EQ(graph->param[0].uses, 3);
    EXPECT_STREQ(graph->param[0].name, "a.weight");
    for (int u = 0; u < 3; u++) {
        EXPECT_EQ(graph->param[0].use[u].node, u + 1);
        EXPECT_EQ(graph->param[0].use[u].slot, 0);
        EXPECT_EQ(graph->node[u + 1].use[0], u);
    }
    EXPECT_EQ(crl_graph_param_elements(graph.get()), 64);
}

TEST(IrGraph, RefusesBadTies) {
    crl_layer_desc head = dense("head", 4);
    head.tie[0] = {"weight", "a.weight"};
    EXPECT_EQ(failure({desc("source", "x"), dense("a", 8), head, desc("loss", "loss")}),
              "node head: weight is f32(4,8), expected f32(8,8) of the tied a.weight");
    head = dense("head", 8);
    head.tie[0] = {"weight", "a.wieght"};
    EXPECT_EQ(failure({desc("source", "x"), dense("a", 8), head, desc("loss", "loss")}),
              "node head: weight is tied to 'a.wieght', which is no parameter of an earlier node, "
              "did you mean 'a.weight'?");
    head.tie[0] = {"wait", "a.weight"};
    EXPECT_EQ(failure({desc("source", "x"), dense("a", 8), head, desc("loss", "loss")}),
              "node head: tied parameter 'wait' is none of dense's");
}

TEST(IrGraph, RefusesUnknownNamesAndSuggests) {
    EXPECT_EQ(failure({desc("source", "x"), desc("dens", "a")}).rfind("node a: unknown layer", 0),
              0u);
    EXPECT_NE(std::string(crl_error_message()).find("'dense'"), std::string::npos);
    crl_layer_desc layer = dense("a", 8);
    layer.options[1].key = "scael";
    EXPECT_EQ(failure({desc("source", "x"), layer}),
              "node a: dense has no option 'scael', did you mean 'scale'?");
    EXPECT_EQ(failure({desc("source", "images"), dense("a", 8, {"image"})}),
              "node a: input 'image' is no earlier node, did you mean 'images'?");
    crl_layer_desc join = desc("join", "j");
    join.options[0].key = "out";
    EXPECT_EQ(failure({desc("source", "x"), join}),
              "node j: option 'out' given, but join has no options");
}

TEST(IrGraph, RefusesBadOptions) {
    EXPECT_NE(failure({desc("source", "x"), dense("a", 0)}).find("node a: out"), std::string::npos);
    EXPECT_NE(failure({desc("source", "x"), dense("a", 2.5)}).find("2.5"), std::string::npos);
    EXPECT_EQ(failure({desc("source", "x"), desc("dense", "a")}),
              "node a: option 'out' of dense is missing (width)");
    crl_layer_desc twice = dense("a", 8);
    twice.options[1] = twice.options[0];
    EXPECT_EQ(failure({desc("source", "x"), twice}), "node a: option 'out' is given twice");
}

TEST(IrGraph, ParsesTextAndNumberOptionsAlike) {
    crl_layer_desc layer = dense("a", 8);
    layer.options[0] = {"out", 0, "12"};
    layer.options[1] = {"scale", 0.1, nullptr};
    toy::graph_ptr graph = toy::graph({desc("source", "x"), layer, desc("loss", "loss")});
    ASSERT_TRUE(graph);
    const auto *options = static_cast<const toy::dense_options *>(graph->node[1].spec.options);
    EXPECT_EQ(options->out, 12);
    EXPECT_EQ(options->scale, 0.1);
    EXPECT_FALSE(options->bias);
}

TEST(IrGraph, NumberOptionsDoNotDependOnTheLocale) {
    const comma_locale locale;
    if (!locale.active) {
        GTEST_SKIP() << "no locale with a decimal comma can be made here";
    }
    crl_layer_desc layer = dense("a", 8);
    layer.options[1] = {"scale", 0.1, nullptr};
    toy::graph_ptr graph = toy::graph({desc("source", "x"), layer, desc("loss", "loss")});
    ASSERT_TRUE(graph);
    const auto *options = static_cast<const toy::dense_options *>(graph->node[1].spec.options);
    EXPECT_EQ(options->out, 8);
    EXPECT_EQ(options->scale, 0.1);
}

TEST(IrGraph, RefusesBadStructure) {
    EXPECT_EQ(failure({desc("source", "x"), dense("a", 8)}),
              "model: has no loss node, expected one");
    EXPECT_EQ(failure({}), "model: has no loss node, expected one");
    EXPECT_EQ(failure({desc("source", "x"), desc("loss", "l"), desc("loss", "m", {"x"})}),
              "node m: second loss, after l; expected one");
    EXPECT_EQ(failure({desc("source", "x"), dense("a", 8), desc("loss", "l", {"x"})}),
              "node a: output is not used");
    EXPECT_EQ(failure({desc("source", "x"), desc("labels", "y"), desc("loss", "l", {"x"})}),
              "node y: output is not used");
    EXPECT_EQ(failure({desc("source", "x"), desc("split", "s"), desc("loss", "l")}),
              "node s: output 1 is not used");
    EXPECT_EQ(failure({desc("source", "x"), dense("x", 8)}),
              "node x: nodes 0 and 1 have the same name");
    EXPECT_EQ(failure({dense("a", 8)}),
              "node a: names no input, and no node before it has an output");
    EXPECT_EQ(failure({desc("source", "x"), desc("source", "y", {"x"})}),
              "node y: source takes no input, got 'x'");
    EXPECT_EQ(failure({desc("source", "x"), dense("a", 8, {"x:1"})}),
              "node a: input 'x:1' is output 1 of a node with 1");
    EXPECT_EQ(failure({desc("source", "x"), dense("a", 8, {"x:-1"})}),
              "node a: input 'x:-1' does not end in an output number");
    EXPECT_EQ(failure({desc("source", "x"), dense("a:b", 8)}),
              "node a:b: a name may not contain ':'");
    EXPECT_EQ(failure({desc("source", "x"), desc("dense", "")}), "model: layer 1 has no name");
    EXPECT_EQ(failure({desc("source", "x"), desc(nullptr, "a")}), "node a: has no type");
    crl_layer_desc hole = desc("join", "j");
    hole.input[1] = "x";
    EXPECT_EQ(failure({desc("source", "x"), hole}), "node j: input 1 is given, but input 0 is not");
}

TEST(IrGraph, PassesOnWhatALayerSays) {
    EXPECT_EQ(failure({desc("source", "x"), dense("a", 8, {"x", "x"})}),
              "dense a: expected one input of 2 dimensions");
}

TEST(IrGraph, SurvivesEveryFailedAllocation) {
    for (int64_t n = 1;; n++) {
        crl_alloc_watch watch = {};
        crl_alloc_attach(&watch);
        watch.fail_at = n;
        crl_model *model = nullptr;
        crl_graph *graph = nullptr;
        crl_status status = crl_model_create(&model);
        const crl_layer_desc source = desc("source", "x");
        if (status == CRL_STATUS_OK) {
            status = crl_model_add(model, &source);
        }
        for (int i = 0; i < 40 && status == CRL_STATUS_OK; i++) {
            const crl_layer_desc layer = dense(crl_model_text(model, "layer.number.%d", i), 8);
            status = crl_model_add(model, &layer);
        }
        const crl_layer_desc loss = desc("loss", "loss");
        if (status == CRL_STATUS_OK) {
            status = crl_model_add(model, &loss);
        }
        if (status == CRL_STATUS_OK) {
            status = crl_graph_build(&graph, model, toy::registry(), 2, nullptr);
        }
        const bool done = watch.fail_at > 0;
        watch.fail_at = 0;
        if (done) {
            EXPECT_EQ(status, CRL_STATUS_OK) << crl_error_message();
        } else {
            EXPECT_NE(status, CRL_STATUS_OK) << n;
            EXPECT_EQ(graph, nullptr);
        }
        crl_graph_destroy(graph);
        crl_model_destroy(model);
        EXPECT_EQ(watch.live_bytes, 0) << n;
        crl_alloc_attach(nullptr);
        if (done) {
            EXPECT_GT(n, 8);
            break;
        }
    }
}

TEST(IrGraph, PrintsATable) {
    toy::graph_ptr graph = toy::graph({desc("source", "x"), dense("a", 8), desc("loss", "loss")});
    char *text = nullptr;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    crl_graph_print(graph.get(), out);
    fclose(out);
    EXPECT_NE(std::string(text).find("f32(2,8)"), std::string::npos) << text;
    EXPECT_NE(std::string(text).find("3 nodes, 64 parameters"), std::string::npos) << text;
    free(text);
}
