/* SPDX-License-Identifier: Apache-2.0 */
/* Every rule is shown to fail on a bad example and to let a good one pass. */
#include <gtest/gtest.h>

#include "tests/lint/rules.h"
#include "tests/lint/tree.h"

namespace lint {
namespace {

Source source(const std::string &path, const std::string &text) {
    return {path, text};
}

std::string including(const std::string &path, const std::string &header) {
    return joined(check_includes(source(path, "\n#include \"" + header + "\"\n")));
}

TEST(LintRules, IncludesGoDownward) {
    EXPECT_EQ(including("layers/linear.c", "engine/ir/layer.h"), "");
    EXPECT_EQ(including("layers/linear.c", "layers/infer_internal.h"), "");
    EXPECT_EQ(including("cli/train.c", "engine/run/trainer.h"), "");
    EXPECT_EQ(including("tests/run/x_test.cc", "cli/builtins.h"), "");
    EXPECT_EQ(including("engine/run/executor.c", "layers/linear.h"),
              "engine/run/executor.c:2: engine/run/ includes 'layers/linear.h'\n");
    EXPECT_NE(including("schedules/1f1b.c", "partition/chain_internal.h"), "") << "siblings";
    EXPECT_NE(including("schedules/1f1b.c", "engine/run/trainer.h"), "");
    EXPECT_NE(including("schedules/1f1b.c", "engine/comm/comm.h"), "");
    EXPECT_NE(including("models/gpt.c", "engine/ir/graph.h"), "");
    EXPECT_NE(including("engine/base/alloc.c", "engine/tensor/tensor.h"), "");
    EXPECT_NE(including("engine/ir/graph.c", "engine/comm/comm.h"), "");
    EXPECT_NE(including("engine/ir/graph.c", "engine/kernels/matmul.h"), "");
    EXPECT_NE(including("engine/tensor/tensor.c", "engine/device/device.h"), "");
    EXPECT_NE(including("engine/run/settings.c", "cli/builtins.h"), "");
    EXPECT_NE(including("engine/carole.h", "engine/ir/graph.h"), "");
}

TEST(LintRules, IncludesAreFromTheRootAndNotInternalToOthers) {
    EXPECT_NE(including("layers/linear.c", "infer_internal.h"), "");
    EXPECT_NE(including("layers/linear.c", "../engine/ir/layer.h"), "");
    EXPECT_NE(including("layers/linear.c", "engine/ir/graph_internal.h"), "");
    EXPECT_NE(including("cli/train.c", "engine/run/executor_internal.h"), "");
    EXPECT_EQ(including("engine/run/data/u16.c", "engine/run/data/token_files_internal.h"), "");
}

TEST(LintRules, ForeignHeadersStayInTheirFiles) {
    const auto check = [](const char *path, const char *header) {
        return joined(
            check_foreign_headers(source(path, std::string("#include <") + header + ">")));
    };
    EXPECT_EQ(check("engine/kernels/cpu/matmul.c", "oneapi/dnnl/dnnl.h"), "");
    EXPECT_EQ(check("engine/comm/mpi_control.c", "mpi.h"), "");
    EXPECT_EQ(check("engine/device/cuda.c", "cuda_runtime.h"), "");
    EXPECT_NE(check("layers/linear.c", "oneapi/dnnl/dnnl.h"), "");
    EXPECT_NE(check("engine/kernels/matmul.h", "dnnl.h"), "");
    EXPECT_NE(check("engine/comm/comm.c", "mpi.h"), "");
    EXPECT_NE(check("engine/run/executor.c", "cuda_runtime.h"), "");
    EXPECT_NE(check("engine/comm/mpi.c", "nccl.h"), "");
    EXPECT_NE(check("engine/comm/mpi.c", "gloo/context.h"), "");
    EXPECT_NE(check("cli/info.c", "yaml.h"), "");
}

TEST(LintRules, FeatureSwitchesStandInTables) {
    const char text[] = "int a;\n#if CRL_WITH_MPI\n#endif\n";
    EXPECT_EQ(joined(check_conditionals(source("cli/transports.def", text))), "");
    EXPECT_NE(joined(check_conditionals(source("engine/comm/comm.c", text))), "");
    EXPECT_NE(joined(check_conditionals(source("cli/info.c", "# ifdef CRL_WITH_CUDA\n"))), "");
    EXPECT_NE(joined(check_conditionals(
                  source("cli/info.c", "#elif defined(X) && defined(CRL_WITH_CUDA)\n"))),
              "");
    EXPECT_EQ(joined(check_conditionals(source("cli/info.c", "/*\n#if CRL_WITH_MPI */\n"))), "");
}

TEST(LintRules, FilesBeginWithTheLicense) {
    const std::string tag = "SPDX-License-Identifier: Apache-2.0";
    EXPECT_EQ(joined(check_license_line(source("a.c", "/* " + tag + " */\nint a;\n"))), "");
    EXPECT_EQ(joined(check_license_line(source("a.cc", "// " + tag + "\n"))), "");
    EXPECT_EQ(joined(check_license_line(source("check", "#!/bin/sh\n# " + tag + "\n"))), "");
    EXPECT_NE(joined(check_license_line(source("a.c", "int a;\n/* " + tag + " */\n"))), "");
    EXPECT_NE(joined(check_license_line(source("a.c", ""))), "");
}

TEST(LintRules, FilesStaySmall) {
    const auto lines = [](int n) {
        std::string text;
        for (int i = 0; i < n; ++i) {
            text += "x\n";
        }
        return text;
    };
    EXPECT_EQ(joined(check_size(source("engine/a.c", lines(500)))), "");
    EXPECT_EQ(joined(check_size(source("engine/base/a.c", lines(501)))),
              "engine/base/a.c: is 501 lines long, expected at most 500\n");
    EXPECT_EQ(joined(check_size(source("engine/base/a.h", lines(150)))), "");
    EXPECT_NE(joined(check_size(source("engine/base/a.h", lines(151)))), "");
    EXPECT_EQ(joined(check_size(source("tests/run/a.h", lines(151)))), "");
}

TEST(LintRules, TheLibraryKeepsQuiet) {
    const auto check = [](const char *path, const char *text) {
        return joined(check_calls(source(path, text)));
    };
    EXPECT_NE(check("engine/run/a.c", "  printf(\"x\");\n"), "");
    EXPECT_NE(check("engine/run/a.c", "  fprintf(stderr, \"x\");\n"), "");
    EXPECT_NE(check("layers/a.c", "if (bad) exit (1);\n"), "");
    EXPECT_NE(check("partition/a.c", "const char *home = getenv(\"HOME\");\n"), "");
    EXPECT_NE(check("engine/run/a.c", "FILE *out = stdout;\n"), "");
    EXPECT_EQ(check("cli/a.c", "printf(\"x\");\n"), "");
    EXPECT_EQ(
        check("engine/run/a.c", "/* never exit() */ // printf(\nsnprintf(t, 2, \"exit(\");\n"), "");
    EXPECT_EQ(
        check("engine/run/a.c", "fprintf(out, \"\\\"stderr\"); crl_loop_exit(a); t->abort(e);\n"),
        "");
}

TEST(LintRules, NoStrayWords) {
    const auto check = [](const std::string &text) {
        return joined(check_words(source("a.c", text)));
    };
    EXPECT_NE(check("/* TO"
                    "DO: later */\n"),
              "");
    EXPECT_NE(check("// FIX"
                    "ME\n"),
              "");
    EXPECT_NE(check("open(\"/ho"
                    "me/me/data\");\n"),
              "");
    EXPECT_NE(check("# see /wo"
                    "rk/notes\n"),
              "");
    EXPECT_NE(check("written by an assis"
                    "tant\n"),
              "");
    EXPECT_EQ(check("/* mkstemp(\"a-XXXXXX\"), network/work/all */\n"), "");
}

TEST(LintRules, NothingWritableIsShared) {
    const auto check = [](const std::string &line) {
        return joined(check_mutable("a.c", "Symbols from a.o:\n\nName Value Class\n\n" + line));
    };
    EXPECT_EQ(check("count     |00| b |OBJECT|04|     |.bss\n"),
              "a.c: 'count' can be written to (.bss)\n");
    EXPECT_NE(check("table     |00| D |OBJECT|04|     |.data\n"), "");
    EXPECT_NE(check("table     |00| d |OBJECT|04|     |.data.rel.local\n"), "");
    EXPECT_NE(check("old       |00| C |OBJECT|04|     |*COM*\n"), "");
    EXPECT_EQ(check("record    |00| b |   TLS|04|     |.tbss\n"), "");
    EXPECT_EQ(check("names     |00| d |OBJECT|04|     |.data.rel.ro.local\n"), "");
    EXPECT_EQ(check("pi        |00| r |OBJECT|04|     |.rodata\n"), "");
    EXPECT_EQ(check("main      |00| T |  FUNC|04|     |.text\n"), "");
}

TEST(LintRules, ExportedNamesCarryThePrefix) {
    EXPECT_EQ(joined(check_prefix("a.c", "\na.o:\ncrl_a D 0 8\n")), "");
    EXPECT_EQ(joined(check_prefix("a.c", "helper T 0 8\ncrl_a D 0 8\n")),
              "a.c: exports 'helper', expected crl_...\n");
}

TEST(LintRules, PluginsExportOneSymbol) {
    const char good[] = "crl_schedule_1f1b D 0 40\n";
    EXPECT_EQ(joined(check_plugin("1f1b.c", good, "schedule", "1f1b")), "");
    EXPECT_NE(joined(check_plugin("gpipe.c", good, "schedule", "gpipe")), "");
    EXPECT_NE(
        joined(check_plugin("1f1b.c", std::string(good) + "crl_more T 0 1\n", "schedule", "1f1b")),
        "");
    EXPECT_NE(joined(check_plugin("1f1b.c", "", "schedule", "1f1b")), "");
}

TEST(LintRules, ReadsDefFiles) {
    const char text[] = "/* CRL_LAYER(no) */\nCRL_LAYER(linear)\n#if X\nCRL_LAYER(add)\n#endif\n";
    EXPECT_EQ(names_of_def(text), std::vector<std::string>({"linear", "add"}));
}

TEST(LintRules, CodeOnlyKeepsLines) {
    EXPECT_EQ(code_only("a /* b\n c */ d // e\nf \"g\\\"h\" 'i' j"),
              "a     \n      d     \nf \"    \" ' ' j");
}

} // namespace
} // namespace lint
