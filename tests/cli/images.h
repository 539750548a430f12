// SPDX-License-Identifier: Apache-2.0
// A small data set in IDX files, learnable, made without any download: class k is a bright bar.
#pragma once

#include <random>
#include <string>

#include "tests/cli/command.h"

namespace cli {

inline void append_u32(std::string &out, uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8)
        out += (char)(value >> shift);
}

// `count` images of 28 x 28 and their labels, as <prefix>-images and <prefix>-labels.
inline void write_images(const Folder &folder, const std::string &prefix, int count) {
    std::string images, labels;
    append_u32(images, 0x00000803);
    append_u32(images, (uint32_t)count);
    append_u32(images, 28);
    append_u32(images, 28);
    append_u32(labels, 0x00000801);
    append_u32(labels, (uint32_t)count);
    std::minstd_rand random(7);
    for (int i = 0; i < count; i++) {
        const int label = i % 10;
        for (int y = 0; y < 28; y++)
            for (int x = 0; x < 28; x++)
                images += (char)((x / 3 == label ? 180 : 20) + (int)(random() % 40));
        labels += (char)label;
    }
    write_file(folder / (prefix + "-images"), images);
    write_file(folder / (prefix + "-labels"), labels);
}

// A config for them; `more` is appended to the section `parallel`.
inline std::string write_config(const Folder &folder, const std::string &model,
                                const std::string &more = "") {
    const std::string root = folder.path();
    const auto file = folder / "config.yaml";
    write_file(file, model + "data:\n  train: [" + root + "/train-images, " + root +
                         "/train-labels]\n  validation: [" + root + "/test-images, " + root +
                         "/test-labels]\nparallel:\n  pipeline: 2\n" + more +
                         "numerics:\n  lanes: 4\n"
                         "train:\n  steps: 6\n  global_batch: 32\n  micro_batch: 4\n"
                         "  checkpoint_every: 3\noptimizer:\n  learning_rate: 0.003\n"
                         "run:\n  threads: 1\n  directory: " +
                         root + "/run\n");
    return file;
}

} // namespace cli
