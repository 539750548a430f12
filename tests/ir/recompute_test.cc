// SPDX-License-Identifier: Apache-2.0
// What backward makes again: blocks, modes, marks, and what is kept for them.
#include "engine/ir/recompute.h"

#include <random>
#include <set>

#include "engine/base/alloc.h"
#include "tests/ir/reads_model.h"

namespace {

using reads::Graph;
using reads::kSave;
using reads::kValue;

// Two blocks like those of a transformer's MLP, between two layers of their own.
toy::graph_ptr Blocks() {
    using toy::desc;
    return Graph({desc("mat", "in"), desc("norm", "h0.norm"), desc("mat", "h0.fc"),
                  desc("act", "h0.act"), desc("mat", "h0.proj"), desc("pass", "h0.drop"),
                  desc("pass", "h0.sum", {"h0.drop", "in"}), desc("norm", "h1.norm"),
                  desc("mat", "h1.fc"), desc("act", "h1.act"), desc("mat", "h1.proj"),
                  desc("pass", "h1.drop"), desc("pass", "h1.sum", {"h1.drop", "h0.sum"}),
                  desc("norm", "norm"), desc("mat", "out")});
}

struct Deleter {
    void operator()(crl_recompute *item) const { crl_recompute_destroy(item); }
};
using Marks = std::unique_ptr<crl_recompute, Deleter>;

Marks Mark(const toy::graph_ptr &graph, const std::vector<unsigned char> &mode, int first = 0,
           int last = -1) {
    crl_recompute *out = nullptr;
    EXPECT_EQ(crl_recompute_create(&out, graph.get(), first, last < 0 ? graph->nodes : last,
                                   mode.empty() ? nullptr : mode.data()),
              CRL_STATUS_OK);
    return Marks(out);
}

std::vector<unsigned char> All(const toy::graph_ptr &graph, int mode) {
    return std::vector<unsigned char>(size_t(graph->nodes), (unsigned char)mode);
}

std::set<std::string> Again(const toy::graph_ptr &graph, const Marks &marks) {
    std::set<std::string> names;
    for (int n = 0; n < graph->nodes; n++) {
        if (marks->again[n]) {
            names.insert(graph->node[n].name);
        }
    }
    return names;
}

std::set<std::string> Kept(const toy::graph_ptr &graph, const Marks &marks) {
    std::set<std::string> names;
    for (int v = 0; v < graph->values; v++) {
        if (crl_recompute_keeps(marks.get(), v)) {
            names.insert(graph->value[v].name);
        }
    }
    return names;
}

using Names = std::set<std::string>;

TEST(IrRecompute, NothingIsMadeAgainUnasked) {
    const toy::graph_ptr graph = Blocks();
    for (const auto &mode : {std::vector<unsigned char>{}, All(graph, CRL_RECOMPUTE_NONE)}) {
        const Marks marks = Mark(graph, mode);
        EXPECT_EQ(Again(graph, marks), Names{});
        EXPECT_EQ(Kept(graph, marks), (Names{"in", "h0.norm", "h0.fc", "h0.act", "h0.sum",
                                             "h1.norm", "h1.fc", "h1.act", "h1.sum", "norm"}));
        EXPECT_EQ(crl_recompute_kept_bytes(marks.get(), 0, graph->nodes), 10 * kValue + 3 * kSave);
    }
}

// From I until W: what the matrices and norms read, the gradients of the matrices' results, and the
// norms' saves.
TEST(IrRecompute, HoldsWhatTheWeightHalfReads) {
    const toy::graph_ptr graph = Blocks();
    const Marks whole = Mark(graph, {});
    EXPECT_EQ(crl_recompute_held_bytes(whole.get(), 0, graph->nodes), (8 + 6) * kValue + 3 * kSave);
    const int first = crl_graph_find(graph.get(), "h1.norm");
    const int last = crl_graph_find(graph.get(), "norm");
    for (int mode :
         {CRL_RECOMPUTE_NONE, CRL_RECOMPUTE_FULL}) { // made again, it is held all the same
        const Marks block = Mark(graph, All(graph, mode), first, last);
        EXPECT_EQ(crl_recompute_held_bytes(block.get(), first, last), (2 + 2) * kValue + kSave);
        EXPECT_EQ(crl_recompute_held_bytes(block.get(), 0, last), (3 + 2) * kValue + kSave)
            << "with what it receives";
    }
}

TEST(IrRecompute, FullKeepsTheInputsOfBlocks) {
    const toy::graph_ptr graph = Blocks();
    const Marks marks = Mark(graph, All(graph, CRL_RECOMPUTE_FULL));
    EXPECT_EQ(Again(graph, marks),
              (Names{"h0.norm", "h0.fc", "h0.act", "h1.norm", "h1.fc", "h1.act"}));
    EXPECT_EQ(Kept(graph, marks), (Names{"in", "h0.sum", "h1.sum", "norm"}));
    EXPECT_EQ(crl_recompute_kept_bytes(marks.get(), 0, graph->nodes), 4 * kValue + kSave);
}

TEST(IrRecompute, SelectiveTakesWhatIsCheap) {
    const toy::graph_ptr graph = Blocks();
    const Marks marks = Mark(graph, All(graph, CRL_RECOMPUTE_SELECTIVE));
    EXPECT_EQ(Again(graph, marks), (Names{"h0.norm", "h0.act", "h1.norm", "h1.act"}));
    EXPECT_EQ(Kept(graph, marks), (Names{"in", "h0.fc", "h0.sum", "h1.fc", "h1.sum", "norm"}));
}

// Making it again would need as much in its place; through a chain of cheap ones it does not.
TEST(IrRecompute, SelectiveDoesNotTradeBytesForBytes) {
    using toy::desc;
    const toy::graph_ptr bad = Graph(
        {desc("mat", "a.fc"), desc("clip", "a.clip"), desc("mat", "a.fc2"), desc("pass", "a.drop"),
         desc("pass", "a.sum", {"a.drop", "a.fc"}), desc("mat", "a.fc3"), desc("mat", "b")});
    EXPECT_EQ(Again(bad, Mark(bad, All(bad, CRL_RECOMPUTE_SELECTIVE))), Names{});
    const toy::graph_ptr good =
        Graph({desc("mat", "a.fc"), desc("act", "a.act"), desc("pass", "a.drop"),
               desc("mat", "a.fc2"), desc("mat", "b")});
    const Marks marks = Mark(good, All(good, CRL_RECOMPUTE_SELECTIVE));
    EXPECT_EQ(Again(good, marks), (Names{"a.act", "a.drop"}));
    EXPECT_EQ(Kept(good, marks), (Names{"a.fc", "a.fc2"}));
}

TEST(IrRecompute, OfABlockOfOneNothingIsMadeAgain) {
    using toy::desc;
    const toy::graph_ptr graph =
        Graph({desc("mat", "fc"), desc("clip", "clip"), desc("pass", "drop"), desc("mat", "b.fc")});
    EXPECT_EQ(Again(graph, Mark(graph, All(graph, CRL_RECOMPUTE_FULL))), Names{});
}

TEST(IrRecompute, WhatAnotherBlockReadsIsKept) {
    using toy::desc;
    const toy::graph_ptr graph = Graph(
        {desc("norm", "a.norm"), desc("act", "a.act"), desc("mat", "a.fc"), desc("norm", "b.norm"),
         desc("pass", "b.sum", {"b.norm", "a.act"}), desc("mat", "b.fc"), desc("mat", "c")});
    const Marks marks = Mark(graph, All(graph, CRL_RECOMPUTE_FULL));
    EXPECT_EQ(Again(graph, marks), (Names{"a.norm", "b.norm", "b.sum"}));
    EXPECT_EQ(Kept(graph, marks), (Names{"a.act", "a.fc", "b.fc"}));
}

TEST(IrRecompute, BlocksEndAtCuts) {
    const toy::graph_ptr graph = Blocks();
    const int cut = crl_graph_find(graph.get(), "h0.act");
    const auto full = All(graph, CRL_RECOMPUTE_FULL);
    const Marks first = Mark(graph, full, 0, cut), second = Mark(graph, full, cut);
    EXPECT_EQ(Again(graph, first), Names{"h0.norm"}); // h0.fc is read by the other stage alone
    EXPECT_EQ(Kept(graph, first), Names{"in"});
    EXPECT_EQ(Again(graph, second), (Names{"h0.act", "h1.norm", "h1.fc", "h1.act"}));
    EXPECT_EQ(Kept(graph, second), (Names{"h0.fc", "h0.sum", "h1.sum", "norm"}));
    EXPECT_EQ(crl_recompute_kept_bytes(second.get(), 0, cut), kValue); // received
    EXPECT_EQ(crl_recompute_kept_bytes(second.get(), cut, graph->nodes), 3 * kValue + kSave);
}

// On random graphs, for every stage: all that backward and making again read is kept, or made again
// in the same block from such things; and selective never keeps more than none.
TEST(IrRecompute, EverythingReadIsThere) {
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto below = [&](int n) { return int(random() % unsigned(n)); };
    for (int round = 0; round < 200; round++) {
        const toy::graph_ptr graph = reads::RandomGraph(random);
        std::vector<unsigned char> mode;
        for (int n = 0; n < graph->nodes; n++) {
            mode.push_back((unsigned char)below(CRL_RECOMPUTES));
        }
        const int first = below(graph->nodes), last = first + 1 + below(graph->nodes - first);
        const Marks marks = Mark(graph, mode, first, last);
        const auto there = [&](int reader, int v) {
            const int p = graph->value[v].producer;
            EXPECT_TRUE(graph->value[v].from_input || marks->reads[v]);
            return graph->value[v].from_input || crl_recompute_keeps(marks.get(), v) ||
                   (marks->again[p] && marks->block[p] == marks->block[reader]);
        };
        for (int n = first; n < last; n++) {
            const crl_node *node = &graph->node[n];
            for (int i = 0; i < node->spec.inputs; i++) {
                const bool read =
                    marks->again[n] ||
                    ((node->spec.input_needs_inputs | node->spec.weight_needs_inputs) >> i & 1u);
                EXPECT_TRUE(!read || there(n, node->input[i])) << node->name;
            }
            EXPECT_TRUE(!(node->spec.input_needs_outputs & 1u) || there(n, node->output[0]));
        }
        const Marks none = Mark(graph, {}, first, last);
        const Marks cheap = Mark(graph, All(graph, CRL_RECOMPUTE_SELECTIVE), first, last);
        EXPECT_LE(crl_recompute_kept_bytes(cheap.get(), 0, graph->nodes),
                  crl_recompute_kept_bytes(none.get(), 0, graph->nodes));
    }
}

struct List {
    explicit List(std::vector<const char *> texts) : item(std::move(texts)) {
        list = {int(item.size()), item.data()};
    }
    std::vector<const char *> item;
    crl_text_list list;
};

// The modes as digits, by node; stages begin at x, h0.norm and h1.norm.
std::string Modes(const std::vector<const char *> &texts) {
    const toy::graph_ptr graph = Blocks();
    const int first[] = {0, crl_graph_find(graph.get(), "h0.norm"),
                         crl_graph_find(graph.get(), "h1.norm")};
    auto mode = All(graph, CRL_RECOMPUTES);
    const List list(texts);
    if (crl_recompute_modes(mode.data(), graph.get(), 3, first, &list.list) != CRL_STATUS_OK) {
        return crl_error_message();
    }
    std::string text;
    for (const unsigned char m : mode) {
        text += char('0' + m);
    }
    return text;
}

TEST(IrRecompute, ListsGiveModes) {
    EXPECT_EQ(Modes({}), "00000000000000000");
    EXPECT_EQ(Modes({"none"}), "00000000000000000");
    EXPECT_EQ(Modes({"full"}), "22222222222222222");
    EXPECT_EQ(Modes({"none", "selective", "full"}), "00111111222222222");
    EXPECT_EQ(Modes({"h0=full"}), "00222222000000000");
    EXPECT_EQ(Modes({"selective", "h1=full", "h1.act=none", "out=none"}), "11111111220222101");
    EXPECT_EQ(Modes({"h1.act=full", "h1=none"}), "00000000000000000");
}

TEST(IrRecompute, BadListsAreRefused) {
    EXPECT_EQ(Modes({"Full"}),
              "unknown mode 'Full', did you mean 'full'? (choices: none, selective, full)");
    EXPECT_EQ(Modes({"full", "none"}), "2 modes, expected 1 or one for each of 3 stages");
    EXPECT_EQ(Modes({"h2=full"}), "no layer or block 'h2', did you mean 'h0'?");
    EXPECT_EQ(Modes({"h=full"}).substr(0, 21), "no layer or block 'h'");
    EXPECT_EQ(Modes({"=full"}), "no layer or block ''");
    EXPECT_EQ(Modes({"h0=full", "full"}), "'full' after 'h0=full', expected modes before names");
    const std::string longer = std::string(1000, 'a') + "=full";
    EXPECT_EQ(Modes({longer.c_str()}).substr(0, 19), "no layer or block '");
}

TEST(IrRecompute, SurvivesEveryFailingAllocation) {
    const toy::graph_ptr graph = Blocks();
    const int first[] = {0};
    const List list({"h9=full"});
    auto mode = All(graph, CRL_RECOMPUTE_FULL);
    crl_alloc_watch watch = {};
    crl_alloc_watch *const before = crl_alloc_attach(&watch);
    for (int64_t at = 1;; at++) {
        watch.fail_at = at;
        crl_recompute *out = nullptr;
        const crl_status status =
            crl_recompute_create(&out, graph.get(), 0, graph->nodes, mode.data());
        const crl_status listed =
            crl_recompute_modes(mode.data(), graph.get(), 1, first, &list.list);
        crl_recompute_destroy(out);
        EXPECT_EQ(watch.live_bytes, 0);
        if (status == CRL_STATUS_OK && listed == CRL_STATUS_INVALID) {
            break;
        }
        EXPECT_TRUE(status == CRL_STATUS_NOMEM || listed == CRL_STATUS_NOMEM);
    }
    crl_alloc_attach(before);
}

} // namespace
