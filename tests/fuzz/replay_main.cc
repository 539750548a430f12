// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target over every file of the given folders (and over given files), without
// libFuzzer: the corpus is an ordinary test. Refuses to pass when there was nothing to run.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

namespace {

namespace fs = std::filesystem;

bool Collect(const fs::path &path, std::vector<fs::path> *files) {
    std::error_code error;
    if (fs::is_regular_file(path, error)) {
        files->push_back(path);
        return true;
    }
    fs::directory_iterator folder(path, error);
    if (error) {
        std::fprintf(stderr, "%s: cannot be read: %s\n", path.c_str(), error.message().c_str());
        return false;
    }
    for (const fs::directory_entry &entry : folder) {
        if (entry.is_regular_file()) {
            files->push_back(entry.path());
        }
    }
    return true;
}

} // namespace

int main(int argc, char **argv) {
    std::vector<fs::path> files;
    for (int i = 1; i < argc; ++i) {
        if (!Collect(argv[i], &files)) {
            return 1;
        }
    }
    std::sort(files.begin(), files.end());
    for (const fs::path &path : files) {
        std::ifstream in(path, std::ios::binary);
        const std::string text((std::istreambuf_iterator<char>(in)), {});
        if (!in.good() && !in.eof()) {
            std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
            return 1;
        }
        // Said before: after a crash the last line names the input.
        std::printf("%s\n", path.filename().c_str());
        std::fflush(stdout);
        // An exact copy on the heap, so that a sanitizer sees reads beyond the end.
        const std::vector<uint8_t> data(text.begin(), text.end());
        LLVMFuzzerTestOneInput(data.data(), data.size());
    }
    std::printf("%zu inputs replayed\n", files.size());
    return files.empty() ? 1 : 0;
}
