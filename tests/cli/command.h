// SPDX-License-Identifier: Apache-2.0
// Runs a program as a user would and keeps what it printed. Everything a test writes is in a folder
// of its own that goes with it.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace cli {

inline std::string read_file(const std::filesystem::path &path) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream content;
    content << in.rdbuf();
    return content.str();
}

inline void write_file(const std::filesystem::path &path, const std::string &content) {
    std::ofstream out(path, std::ios::binary);
    out << content;
    ASSERT_TRUE(out.good()) << path;
}

inline std::vector<std::string> lines(const std::string &text) {
    std::vector<std::string> all;
    std::stringstream in(text);
    for (std::string line; std::getline(in, line);)
        all.push_back(line);
    return all;
}

struct Result {
    int code; // of the exit; 128 + n when killed by signal n
    std::string out, err;
};

class Folder {
  public:
    Folder() {
        std::string name = std::filesystem::temp_directory_path() / "carole-cli-XXXXXX";
        EXPECT_NE(mkdtemp(name.data()), nullptr);
        path_ = name;
    }
    ~Folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    Folder(const Folder &) = delete;
    Folder &operator=(const Folder &) = delete;
    std::filesystem::path operator/(const std::string &name) const { return path_ / name; }
    const std::filesystem::path &path() const { return path_; }

  private:
    std::filesystem::path path_;
};

class Command : public ::testing::Test {
  protected:
    // `environment`: "NAME=value" to add, "NAME" to take away.
    Result run(std::vector<std::string> words, const std::vector<std::string> &environment = {}) {
        const auto out = folder / ".out", err = folder / ".err";
        const pid_t child = fork();
        if (child == 0) {
            start(words, environment, out, err);
        }
        int status = 0;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        return {code, read_file(out), read_file(err)};
    }

    Result carole(std::vector<std::string> words,
                  const std::vector<std::string> &environment = {}) {
        words.insert(words.begin(), CRL_BINARY_DIR "/carole");
        return run(words, environment);
    }

    // One line on stderr that has `text`, nothing on stdout.
    static void expect_failure(const Result &result, int code, const std::string &text) {
        EXPECT_EQ(result.code, code) << result.err;
        EXPECT_EQ(lines(result.err).size(), 1u) << result.err;
        EXPECT_EQ(result.err.rfind("carole: ", 0), 0u) << result.err;
        EXPECT_NE(result.err.find(text), std::string::npos) << result.err;
        EXPECT_EQ(result.out, "");
    }

    Folder folder;

  private:
    [[noreturn]] static void start(std::vector<std::string> &words,
                                   const std::vector<std::string> &environment,
                                   const std::filesystem::path &out,
                                   const std::filesystem::path &err) {
        // A test may itself run under mpirun's or ctest's settings: begin without them.
        for (const char *name : {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"})
            unsetenv(name);
        for (const std::string &one : environment) {
            const size_t equals = one.find('=');
            if (equals == std::string::npos)
                unsetenv(one.c_str());
            else
                setenv(one.substr(0, equals).c_str(), one.substr(equals + 1).c_str(), 1);
        }
        if (!freopen(out.c_str(), "w", stdout) || !freopen(err.c_str(), "w", stderr))
            _exit(125);
        std::vector<char *> argv;
        for (std::string &word : words)
            argv.push_back(word.data());
        argv.push_back(nullptr);
        execvp(argv[0], argv.data());
        _exit(126);
    }
};

} // namespace cli
