/* SPDX-License-Identifier: Apache-2.0 */
/* A directory of the test's own, removed at the end, and whole files as strings. In memory where
 * the system has such a place: hundreds of small synced files would wait for the disk. */
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

class Scratch {
  public:
    Scratch() {
        const std::string place = access("/dev/shm", W_OK) == 0
                                      ? "/dev/shm"
                                      : std::filesystem::temp_directory_path().string();
        std::string name = place + "/carole-test-XXXXXX";
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
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}

inline void write_text(const std::string &path, const std::string &text) {
    std::ofstream(path, std::ios::binary) << text;
}
