/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lint/tree.h"

#include <stdio.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace lint {

namespace fs = std::filesystem;

namespace {

bool has_ending(const std::string &name, const std::vector<std::string> &endings) {
    return std::any_of(endings.begin(), endings.end(), [&](const std::string &ending) {
        return name.size() >= ending.size() &&
               name.compare(name.size() - ending.size(), ending.size(), ending) == 0;
    });
}

/* A build folder is known by what CMake leaves there. */
bool is_foreign(const fs::path &folder) {
    const std::string name = folder.filename();
    return name == ".git" || name == "corpus" || name == "runs" || name.rfind("build", 0) == 0 ||
           fs::exists(folder / "CMakeCache.txt");
}

std::string read_file(const fs::path &path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}

} // namespace

std::vector<Source> read_tree(const std::vector<std::string> &endings) {
    std::vector<Source> files;
    const fs::path root = CRL_SOURCE_DIR;
    for (auto it = fs::recursive_directory_iterator(root); it != fs::end(it); ++it) {
        if (it->is_directory() && is_foreign(it->path())) {
            it.disable_recursion_pending();
        } else if (it->is_regular_file() && has_ending(it->path().filename(), endings)) {
            files.push_back({fs::relative(it->path(), root).string(), read_file(it->path())});
        }
    }
    std::sort(files.begin(), files.end(),
              [](const Source &a, const Source &b) { return a.path < b.path; });
    return files;
}

Output run_command(const std::string &command) {
    Output output = {-1, ""};
    FILE *pipe = popen((command + " 2>&1").c_str(), "r");
    if (!pipe) {
        return output;
    }
    char part[4096];
    for (size_t got; (got = fread(part, 1, sizeof part, pipe)) > 0;) {
        output.text.append(part, got);
    }
    const int state = pclose(pipe);
    output.code = WIFEXITED(state) ? WEXITSTATUS(state) : -1;
    return output;
}

std::vector<Object> product_objects() {
    std::vector<Object> objects;
    const fs::path build = fs::path(CRL_BINARY_DIR) / "CMakeFiles";
    for (const auto &folder : fs::directory_iterator(build)) {
        const std::string name = folder.path().filename();
        if (name.rfind("crl_", 0) != 0) {
            continue;
        }
        for (const auto &entry : fs::recursive_directory_iterator(folder.path())) {
            const std::string source = fs::relative(entry.path(), folder.path()).string();
            /* What is left of a source that is gone is no part of the product. */
            if (has_ending(source, {".c.o"}) &&
                fs::exists(fs::path(CRL_SOURCE_DIR) / source.substr(0, source.size() - 2))) {
                objects.push_back({source.substr(0, source.size() - 2), entry.path()});
            }
        }
    }
    std::sort(objects.begin(), objects.end(),
              [](const Object &a, const Object &b) { return a.source < b.source; });
    return objects;
}

std::string joined(const Problems &problems) {
    std::string text;
    for (const std::string &problem : problems) {
        text += problem + "\n";
    }
    return text;
}

} // namespace lint
