// SPDX-License-Identifier: Apache-2.0
// A stage's places, played through: every write destroys what it overlaps, every read must find
// what it is for, and an action touches only the blocks that say so. Random graphs, stages and
// modes.
#include "engine/base/alloc.h"
#include "engine/run/stage_layout.h"
#include "tests/ir/reads_model.h"

#include <gtest/gtest.h>

#include <map>

namespace {

// The memory of one micro-batch: what stands in which bytes of which block.
class Memory {
  public:
    explicit Memory(const crl_stage_layout *layout) : layout_(layout) {}

    // Workspaces do not outlive an action, blocks live from the first that touches them.
    void Begin(crl_action_kind kind) {
        kind_ = kind;
        cells_[CRL_BLOCK_WORKSPACE].clear();
    }
    void Write(crl_place place, size_t bytes, const std::string &what) {
        auto &cells = Cells(place, bytes, what);
        for (auto cell = cells.begin(); cell != cells.end();) {
            const bool apart = cell->first + cell->second.bytes <= place.offset_bytes ||
                               place.offset_bytes + bytes <= cell->first;
            cell = apart ? std::next(cell) : cells.erase(cell);
        }
        cells[place.offset_bytes] = {bytes, what};
    }
    void Read(crl_place place, size_t bytes, const std::string &what) {
        auto &cells = Cells(place, bytes, what);
        const auto cell = cells.find(place.offset_bytes);
        EXPECT_TRUE(cell != cells.end() && cell->second.what == what) << what << " is lost";
    }

  private:
    struct Cell {
        size_t bytes;
        std::string what;
    };
    std::map<size_t, Cell> &Cells(crl_place place, size_t bytes, const std::string &what) {
        const bool forward = kind_ == CRL_ACTION_FORWARD;
        if (place.block == CRL_BLOCK_WORKSPACE) {
            EXPECT_LE(place.offset_bytes + bytes,
                      forward ? layout_->forward_bytes : layout_->backward_bytes);
        } else {
            EXPECT_GE(place.block, 0) << what;
            EXPECT_LE(place.offset_bytes + bytes, layout_->block[place.block].bytes);
            EXPECT_TRUE(layout_->block[place.block].touched_by >> kind_ & 1u) << what;
        }
        return cells_[place.block];
    }
    const crl_stage_layout *layout_;
    crl_action_kind kind_ = CRL_ACTION_FORWARD;
    std::map<int, std::map<size_t, Cell>> cells_;
};

// Does what the executor does, with names in place of numbers.
class Player {
  public:
    Player(const crl_plan *plan, int stage, const crl_stage_layout *layout)
        : plan_(plan), graph_(plan->graph), stage_(stage), layout_(layout), memory_(layout) {}

    void Play(bool split) {
        Receive(false);
        memory_.Begin(CRL_ACTION_FORWARD);
        for (int n = layout_->first; n < layout_->last; n++) {
            Forward(n, layout_->value, layout_->save);
        }
        Backward(split ? CRL_ACTION_INPUT : CRL_ACTION_BACKWARD);
        if (split) {
            Backward(CRL_ACTION_WEIGHT);
        }
    }

  private:
    size_t SaveBytes(int n, int s) const {
        size_t bytes = 0;
        EXPECT_EQ(crl_tensor_bytes(&bytes, &graph_->node[n].spec.save[s], ""), CRL_STATUS_OK);
        return bytes;
    }
    crl_place Save(const crl_place *save, int n, int s) const {
        return save[(n - layout_->first) * CRL_LAYER_MAX_SAVED + s];
    }
    void ReadValue(const crl_place *place, int v) {
        if (!graph_->value[v].from_input) {
            memory_.Read(place[v], graph_->value[v].bytes, graph_->value[v].name);
        }
    }
    // Messages of other stages: values before forward, gradients before backward.
    void Receive(bool gradient) {
        for (int e = 0; e < plan_->edges; e++) {
            const crl_edge &edge = plan_->edge[e];
            const crl_value &v = graph_->value[edge.value];
            if (!gradient && edge.to == stage_) {
                memory_.Write(layout_->value[edge.value], v.bytes, v.name);
            } else if (gradient && edge.from == stage_ && edge.gradient) {
                memory_.Write(layout_->gradient[edge.value], v.bytes, std::string("d") + v.name);
            }
        }
    }
    void Forward(int n, const crl_place *value, const crl_place *save) {
        const crl_node &node = graph_->node[n];
        for (int i = 0; i < node.spec.inputs; i++) {
            ReadValue(value, node.input[i]);
        }
        for (int o = 0; o < node.spec.outputs && !node.layer->is_input; o++) {
            const crl_value &v = graph_->value[node.output[o]];
            memory_.Write(value[node.output[o]], v.bytes, v.name);
        }
        for (int s = 0; s < node.spec.saves; s++) {
            memory_.Write(Save(save, n, s), SaveBytes(n, s), std::string(node.name) + "#save");
        }
    }
    void Backward(crl_action_kind kind) {
        memory_.Begin(kind);
        if (kind != CRL_ACTION_WEIGHT) {
            Receive(true);
        }
        for (int end = layout_->last, begin; end > layout_->first; end = begin) {
            begin = layout_->recompute->block[end - 1];
            for (int n = begin; n < end && kind != CRL_ACTION_WEIGHT; n++) {
                if (layout_->recompute->again[n]) {
                    Forward(n, layout_->backward_value, layout_->backward_save);
                }
            }
            for (int n = end - 1; n >= begin; n--) {
                BackwardOf(n, kind);
            }
        }
    }
    void BackwardOf(int n, crl_action_kind kind) {
        const crl_node &node = graph_->node[n];
        const crl_layer_spec &spec = node.spec;
        const bool input = kind != CRL_ACTION_WEIGHT, weight = kind != CRL_ACTION_INPUT;
        const auto read = [&](uint32_t by_input, uint32_t by_weight, int slot) {
            return ((input ? by_input : 0) | (weight ? by_weight : 0)) >> slot & 1u;
        };
        for (int i = 0; i < spec.inputs; i++) {
            if (read(spec.input_needs_inputs, spec.weight_needs_inputs, i)) {
                ReadValue(layout_->backward_value, node.input[i]);
            }
        }
        for (int o = 0; o < spec.outputs; o++) {
            const crl_place dy = layout_->gradient[node.output[o]];
            const crl_value &v = graph_->value[node.output[o]];
            if (read(spec.input_needs_outputs, spec.weight_needs_outputs, o)) {
                ReadValue(layout_->backward_value, node.output[o]);
            }
            if (dy.block != CRL_BLOCK_NONE && (input || spec.params > 0)) {
                memory_.Read(dy, v.bytes, std::string("d") + v.name);
            }
        }
        for (int s = 0; s < spec.saves; s++) {
            if (read(spec.input_needs_saves, spec.weight_needs_saves, s)) {
                memory_.Read(Save(layout_->backward_save, n, s), SaveBytes(n, s),
                             std::string(node.name) + "#save");
            }
        }
        for (int i = 0; i < spec.inputs && input; i++) {
            AddGradient(n, i);
        }
    }
    void AddGradient(int n, int slot) {
        const int value = graph_->node[n].input[slot];
        const crl_value &v = graph_->value[value];
        if (!crl_graph_slot_has_gradient(graph_, n, slot)) {
            return;
        }
        if (layout_->accumulate[(n - layout_->first) * CRL_LAYER_MAX_INPUTS + slot]) {
            memory_.Read(layout_->gradient[value], v.bytes, std::string("d") + v.name);
        }
        memory_.Write(layout_->gradient[value], v.bytes, std::string("d") + v.name);
    }

    const crl_plan *plan_;
    const crl_graph *graph_;
    int stage_;
    const crl_stage_layout *layout_;
    Memory memory_;
};

TEST(RunStageLayoutReplay, EveryReadFindsWhatItIsFor) {
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    int again = 0;
    for (int round = 0; round < 400 && !testing::Test::HasFailure(); round++) {
        const toy::graph_ptr graph = reads::RandomGraph(random);
        std::vector<int> first = {0};
        for (int n = 1; n < graph->nodes; n++) {
            if (random() % 5 == 0) {
                first.push_back(n);
            }
        }
        const toy::plan_ptr plan = toy::plan(graph, int(first.size()), first);
        ASSERT_EQ(crl_alloc(&plan->recompute, size_t(graph->nodes), 1), CRL_STATUS_OK);
        for (int n = 0; n < graph->nodes; n++) {
            plan->recompute[n] = (unsigned char)(round % 4 < 3 ? round % 4 : random() % 3);
        }
        for (int s = 0; s < plan->stages; s++) {
            for (const bool split : {false, true}) {
                crl_stage_layout *layout = nullptr;
                ASSERT_EQ(crl_stage_layout_create(&layout, plan.get(), s, true, split),
                          CRL_STATUS_OK);
                Player(plan.get(), s, layout).Play(split);
                for (int n = layout->first; n < layout->last; n++) {
                    again += layout->recompute->again[n];
                }
                crl_stage_layout_destroy(layout);
            }
        }
    }
    EXPECT_GT(again, 100);
}

} // namespace
