/* SPDX-License-Identifier: Apache-2.0 */
/* A built-in model, its options given as text, built into a graph with every registered layer. */
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "engine/base/alloc.h"
#include "engine/ir/graph.h"

extern "C" {
#define CRL_LAYER(name) extern const crl_layer crl_layer_##name;
#include "layers/layers.def"
#undef CRL_LAYER
#define CRL_MODEL(name) extern const crl_model_def crl_model_##name;
#include "models/models.def"
#undef CRL_MODEL
}

namespace model_test {

inline const void *const *Layers() {
    static const void *const all[] = {
#define CRL_LAYER(name) &crl_layer_##name,
#include "layers/layers.def"
#undef CRL_LAYER
        nullptr};
    return all;
}

using Texts = std::map<std::string, std::string>;

class Built {
  public:
    Built(const crl_model_def &def, const Texts &texts, int64_t batch) {
        status = Build(def, texts, batch);
        error = status == CRL_STATUS_OK ? "" : crl_error_message();
    }
    ~Built() {
        crl_graph_destroy(graph);
        crl_model_destroy(model_);
        crl_arena_fini(&arena_);
    }
    Built(const Built &) = delete;
    Built &operator=(const Built &) = delete;

    const crl_node *Node(const std::string &name) const {
        const int index = crl_graph_find(graph, name.c_str());
        return index < 0 ? nullptr : &graph->node[index];
    }
    /* The names of all nodes, with their inputs. */
    std::vector<std::string> Nodes() const {
        std::vector<std::string> out;
        for (int n = 0; n < graph->nodes; ++n) {
            std::string text = graph->node[n].name;
            for (int i = 0; i < graph->node[n].spec.inputs; ++i) {
                text += (i == 0 ? " <- " : ", ");
                text += graph->value[graph->node[n].input[i]].name;
            }
            out.push_back(text);
        }
        return out;
    }
    const crl_param *Param(const std::string &name) const {
        for (int p = 0; p < graph->params; ++p) {
            if (graph->param[p].name == name) {
                return &graph->param[p];
            }
        }
        return nullptr;
    }
    std::string Output(const std::string &node) const {
        char text[128];
        return crl_tensor_text(&Node(node)->spec.output[0], text, sizeof text);
    }

    crl_status status;
    std::string error;
    crl_graph *graph = nullptr;

  private:
    crl_status Build(const crl_model_def &def, const Texts &texts, int64_t batch) {
        options_.resize(def.options_bytes / sizeof(uint64_t) + 1);
        CRL_TRY(crl_option_defaults(def.options, &arena_, options_.data()));
        for (const auto &[key, value] : texts) {
            CRL_TRY(
                crl_option_set(def.options, key.c_str(), value.c_str(), &arena_, options_.data()));
        }
        CRL_TRY(crl_model_create(&model_));
        CRL_TRY(def.build(model_, options_.data()));
        return crl_graph_build(&graph, model_, Layers(), batch, nullptr);
    }

    std::vector<uint64_t> options_;
    crl_arena arena_{};
    crl_model *model_ = nullptr;
};

/* The model is built with the n-th allocation failing, for every n: always NOMEM, never a leak. */
inline void ExpectSurvivesFailedAllocations(const crl_model_def &def, const Texts &texts) {
    crl_alloc_watch watch{};
    crl_alloc_watch *before = crl_alloc_attach(&watch);
    crl_status status = CRL_STATUS_NOMEM;
    for (int n = 1; n < 5000 && status != CRL_STATUS_OK; ++n) {
        watch.fail_at = n;
        {
            const Built built(def, texts, 2);
            status = built.status;
            ASSERT_TRUE(status == CRL_STATUS_OK || status == CRL_STATUS_NOMEM) << built.error;
            watch.fail_at = 0;
        }
        ASSERT_EQ(watch.live_bytes.load(), 0) << "leak when allocation " << n << " fails";
    }
    crl_alloc_attach(before);
    EXPECT_EQ(status, CRL_STATUS_OK);
}

} // namespace model_test
