/* SPDX-License-Identifier: Apache-2.0 */
/* A directory of the test's own, removed at the end, and whole files as strings. */
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

class Scratch {
  public:
    Scratch() {
        std::string name = (std::filesystem::temp_directory_path() / "carole-test-XXXXXX").string();
        path_ = mkdtemp(name.data());
    }
    ~Scratch() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;

    std::string operator/(const std::string &name) const { return path_ + "/" + name; }
    const std::string &path() const { return path_; }

  private:
    std::string path_;
};

inline std::string read_text(const std::string &path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void write_text(const std::string &path, const std::string &text) {
    std::ofstream(path, std::ios::binary) << text;
}
