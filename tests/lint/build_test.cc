/* SPDX-License-Identifier: Apache-2.0 */
/* What compilers and nm say: headers stand alone, plug-ins export one symbol, nothing is shared. */
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>

#include "tests/lint/rules.h"
#include "tests/lint/tree.h"

namespace lint {
namespace {

/* What the compiler says to a file that includes `header` alone; "" when it is content. */
std::string compile_alone(const std::string &header, const std::string &language) {
    const bool c = language == "c";
    const std::string compiler =
        c ? CRL_C_COMPILER " -std=gnu11 -Wstrict-prototypes" : CRL_CXX_COMPILER " -std=gnu++17";
    const Output output =
        run_command("printf '#include \"" + header + "\"\\nextern int nothing;\\n' | " + compiler +
                    " -Wall -Wextra -Werror -D_GNU_SOURCE -I'" CRL_SOURCE_DIR "' " CRL_INCLUDES
                    " -fsyntax-only -x " +
                    language + " -");
    return output.code == 0 ? "" : header + " as " + language + ":\n" + output.text;
}

TEST(LintBuild, AHeaderThatNeedsAnotherIsFound) {
    const std::string path = std::string(CRL_BINARY_DIR) + "/lint_needs_another.h";
    FILE *out = fopen(path.c_str(), "w");
    ASSERT_NE(out, nullptr);
    fputs("#pragma once\nint64_t crl_x(size_t bytes);\n", out);
    fclose(out);
    EXPECT_NE(compile_alone(path, "c"), "");
    EXPECT_NE(compile_alone(path, "c++"), "");
    remove(path.c_str());
}

TEST(LintBuild, EveryHeaderCompilesAlone) {
    std::vector<std::string> headers;
    for (const Source &file : read_tree({".h"})) {
        const bool other = file.path.rfind("tests/", 0) == 0 || file.path.rfind("docs/", 0) == 0 ||
                           file.path.find("cuda") != std::string::npos || // need what may not be
                           file.path.find("nccl") != std::string::npos || // there
                           (CRL_HAS_MPI == 0 && file.path.rfind("engine/comm/mpi", 0) == 0);
        if (!other) {
            headers.push_back(file.path);
        }
    }
    ASSERT_GT(headers.size(), 20u);
    std::atomic<size_t> next{0};
    std::mutex lock;
    std::string problems;
    const auto work = [&] {
        for (size_t i; (i = next++) < 2 * headers.size();) {
            const std::string found = compile_alone(headers[i / 2], i % 2 ? "c++" : "c");
            const std::lock_guard<std::mutex> hold(lock);
            problems += found;
        }
    };
    std::thread other(work);
    work();
    other.join();
    EXPECT_TRUE(problems.empty()) << problems;
}

/* Sanitizers and coverage add symbols of their own. */
class LintObjects : public ::testing::Test {
  protected:
    void SetUp() override {
        if (CRL_INSTRUMENTED) {
            GTEST_SKIP() << "instrumented objects carry other symbols";
        }
        objects_ = product_objects();
        ASSERT_GT(objects_.size(), 20u);
    }
    /* What nm says, by source; one run for all, a program start for each would take seconds. */
    std::map<std::string, std::string> nm(const std::string &flags) {
        std::string command = CRL_NM " " + flags;
        std::map<std::string, std::string> source_of, text;
        for (const Object &object : objects_) {
            command += " '" + object.path + "'";
            source_of[object.path + ":"] = object.source;
            source_of["Symbols from " + object.path + ":"] = object.source;
            text[object.source];
        }
        const Output output = run_command(command);
        EXPECT_EQ(output.code, 0) << output.text;
        std::string *part = nullptr;
        std::istringstream in(output.text);
        for (std::string line; std::getline(in, line);) {
            if (source_of.count(line)) {
                part = &text[source_of[line]];
            } else if (part) {
                *part += line + "\n";
            }
        }
        return text;
    }
    std::vector<Object> objects_;
};

TEST_F(LintObjects, AreRead) {
    EXPECT_NE(nm("-f sysv --defined-only")["engine/base/status.c"].find("crl_error_get"),
              std::string::npos);
}

TEST_F(LintObjects, NothingWritableIsShared) {
    std::string problems;
    for (const auto &[source, text] : nm("-f sysv --defined-only")) {
        problems += joined(check_mutable(source, text));
    }
    EXPECT_TRUE(problems.empty()) << problems;
}

TEST_F(LintObjects, ExportedNamesCarryThePrefix) {
    std::string problems;
    for (const auto &[source, text] : nm("-g --defined-only -f posix")) {
        problems += joined(check_prefix(source, text));
    }
    EXPECT_TRUE(problems.empty()) << problems;
}

struct Plugins {
    const char *kind, *folder, *def;
};
const Plugins plugins[] = {
    {"layer", "layers/", "layers/layers.def"},
    {"schedule", "schedules/", "schedules/schedules.def"},
    {"partitioner", "partition/", "partition/partitioners.def"},
    {"optimizer", "engine/run/optimizers/", "engine/run/optimizers.def"},
    {"dataset", "engine/run/data/", "engine/run/datasets.def"},
    {"tokenizer", "engine/run/tokenizers/", "engine/run/tokenizers.def"},
    {"model", "models/", "models/models.def"},
};

TEST_F(LintObjects, PluginsExportOneSymbol) {
    const std::map<std::string, std::string> symbols = nm("-g --defined-only -f posix");
    std::string problems;
    size_t checked = 0;
    for (const Source &def : read_tree({".def"})) {
        for (const Plugins &kind : plugins) {
            if (def.path != kind.def) {
                continue;
            }
            for (const std::string &name : names_of_def(def.text)) {
                const std::string source = kind.folder + name + ".c";
                ++checked;
                const auto found = symbols.find(source);
                problems += found == symbols.end()
                                ? source + ": is not there, but " + def.path + " names it\n"
                                : joined(check_plugin(source, found->second, kind.kind, name));
            }
        }
    }
    EXPECT_TRUE(problems.empty()) << problems;
    EXPECT_GT(checked, 20u);
}

} // namespace
} // namespace lint
