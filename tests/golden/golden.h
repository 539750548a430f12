// SPDX-License-Identifier: Apache-2.0
// A golden case as make_golden.py wrote it: tensors by name and the facts beside them.
#pragma once

#include <gtest/gtest.h>
#include <jansson.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "engine/run/safetensors.h"

namespace golden {

class Case {
  public:
    explicit Case(const std::string &name) {
        const std::string path = CRL_SOURCE_DIR "/tests/golden/" + name;
        EXPECT_EQ(crl_safetensors_open(&file_, (path + ".safetensors").c_str()), CRL_STATUS_OK)
            << crl_error_message();
        json_error_t error;
        facts_ = json_load_file((path + ".json").c_str(), 0, &error);
        EXPECT_NE(facts_, nullptr) << error.text;
    }
    ~Case() {
        crl_safetensors_close(file_);
        json_decref(facts_);
    }
    Case(const Case &) = delete;
    Case &operator=(const Case &) = delete;

    // The bytes of a tensor; 4 to an element.
    template <typename T> std::vector<T> Read(const std::string &name) const {
        const crl_safetensors_item *item = crl_safetensors_find(file_, name.c_str());
        EXPECT_NE(item, nullptr) << "golden file has no " << name;
        std::vector<T> values(item ? item->bytes / sizeof(T) : 0);
        if (item) {
            EXPECT_EQ(crl_safetensors_read(file_, item, values.data()), CRL_STATUS_OK);
        }
        return values;
    }
    // How many tensors have names that begin with `prefix`.
    int Count(const std::string &prefix) const {
        int count = 0;
        for (int i = 0; i < crl_safetensors_count(file_); i++) {
            count +=
                std::string(crl_safetensors_item_at(file_, i)->name).rfind(prefix, 0) == 0 ? 1 : 0;
        }
        return count;
    }
    const json_t *facts() const { return facts_; }
    double Number(const char *key) const { return json_number_value(json_object_get(facts_, key)); }
    const json_t *Optimizer(const std::string &kind) const {
        return json_object_get(json_object_get(facts_, "optimizers"), kind.c_str());
    }

  private:
    crl_safetensors *file_ = nullptr;
    json_t *facts_ = nullptr;
};

inline std::vector<std::string> Texts(const json_t *array) {
    std::vector<std::string> texts;
    for (size_t i = 0; i < json_array_size(array); i++) {
        texts.emplace_back(json_string_value(json_array_get(array, i)));
    }
    return texts;
}

// ||a - b|| / ||b||, in double.
inline double Distance(const float *a, const std::vector<float> &b) {
    double difference = 0, size = 0;
    for (size_t i = 0; i < b.size(); i++) {
        difference += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
        size += double(b[i]) * b[i];
    }
    return std::sqrt(difference) / std::sqrt(size);
}

} // namespace golden
