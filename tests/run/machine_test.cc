// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "engine/run/machine.h"

namespace {

const char small[] = "machine:\n"
                     "  name: small\n"
                     "  nodes: 2\n"
                     "  devices_per_node: 4\n"
                     "  price_per_hour: 1.25\n"
                     "compute:\n"
                     "  memory: 16GiB\n"
                     "  peak_flops_per_s: 1e12\n"
                     "  efficiency: 0.3\n"
                     "  half_flops: 1e6\n"
                     "  memory_bytes_per_s: 1e11\n"
                     "  launch_s: 1e-6\n"
                     "  message_s: 2e-6\n"
                     "within:\n"
                     "  latency_s: 3e-6\n"
                     "  bytes_per_s: 1e10\n"
                     "between:\n"
                     "  latency_s: 4e-6\n"
                     "  bytes_per_s: 1e9\n"
                     "overlap:\n"
                     "  forward: 0.1\n"
                     "  backward: 0.2\n"
                     "  sums: 0.7\n"
                     "  gather: 0.4\n";

std::string written(const crl_machine &machine) {
    char *text = nullptr;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    crl_machine_file_write(&machine, out);
    fclose(out);
    const std::string result(text, bytes);
    free(text);
    return result;
}

std::string refusal(const std::string &text) {
    crl_machine_file file = {};
    EXPECT_EQ(crl_machine_file_parse(&file, "m.yaml", text.c_str(), text.size()),
              CRL_STATUS_INVALID);
    return crl_error_message();
}

} // namespace

TEST(RunMachine, EveryKeyReachesItsNumber) {
    crl_machine_file file = {};
    ASSERT_EQ(crl_machine_file_parse(&file, "m.yaml", small, strlen(small)), CRL_STATUS_OK)
        << crl_error_message();
    const crl_machine &m = file.machine;
    EXPECT_STREQ(m.name, "small");
    EXPECT_EQ(m.nodes, 2);
    EXPECT_EQ(m.devices_per_node, 4);
    EXPECT_EQ(m.price_per_hour, 1.25);
    EXPECT_EQ(m.memory_bytes, 16.0 * 1024 * 1024 * 1024);
    EXPECT_EQ(m.peak_flops_per_s, 1e12);
    EXPECT_EQ(m.efficiency, 0.3);
    EXPECT_EQ(m.half_flops, 1e6);
    EXPECT_EQ(m.memory_bytes_per_s, 1e11);
    EXPECT_EQ(m.launch_s, 1e-6);
    EXPECT_EQ(m.message_s, 2e-6);
    EXPECT_EQ(m.within.latency_s, 3e-6);
    EXPECT_EQ(m.within.bytes_per_s, 1e10);
    EXPECT_EQ(m.between.latency_s, 4e-6);
    EXPECT_EQ(m.between.bytes_per_s, 1e9);
    EXPECT_EQ(m.forward_overlap, 0.1);
    EXPECT_EQ(m.backward_overlap, 0.2);
    EXPECT_EQ(m.sum_overlap, 0.7);
    EXPECT_EQ(m.gather_overlap, 0.4);
    crl_machine_file_fini(&file);
}

TEST(RunMachine, WhatIsWrittenReadsBack) {
    crl_machine_file file = {}, again = {};
    ASSERT_EQ(crl_machine_file_parse(&file, "m.yaml", small, strlen(small)), CRL_STATUS_OK);
    const std::string text = written(file.machine);
    ASSERT_EQ(crl_machine_file_parse(&again, "again.yaml", text.c_str(), text.size()),
              CRL_STATUS_OK)
        << crl_error_message();
    EXPECT_EQ(written(again.machine), text);
    EXPECT_EQ(again.machine.sum_overlap, 0.7);
    EXPECT_EQ(again.machine.memory_bytes, file.machine.memory_bytes);
    crl_machine_file_fini(&file);
    crl_machine_file_fini(&again);
}

TEST(RunMachine, ReadsEveryDescriptionThatComesAlong) {
    int count = 0;
    for (const auto &entry :
         std::filesystem::directory_iterator(CRL_SOURCE_DIR "/configs/machines")) {
        crl_machine_file file = {};
        EXPECT_EQ(crl_machine_file_read(&file, entry.path().c_str(), nullptr, 0), CRL_STATUS_OK)
            << crl_error_message();
        EXPECT_EQ(entry.path().stem(), file.machine.name ? file.machine.name : "");
        crl_machine_file_fini(&file);
        ++count;
    }
    EXPECT_GE(count, 6);
}

TEST(RunMachine, SettingsOverrideTheFile) {
    crl_machine_file file = {};
    const char *const sets[] = {"machine.nodes=3", "within.latency_s=0.5"};
    ASSERT_EQ(
        crl_machine_file_read(&file, CRL_SOURCE_DIR "/configs/machines/cpu-2-cores.yaml", sets, 2),
        CRL_STATUS_OK);
    EXPECT_EQ(file.machine.nodes, 3);
    EXPECT_EQ(file.machine.within.latency_s, 0.5);
    crl_machine_file_fini(&file);
}

TEST(RunMachine, SaysWhereAFileIsWrong) {
    std::string text = small;
    text.replace(text.find("nodes: 2"), 8, "nodes: 0");
    EXPECT_EQ(refusal(text).rfind("m.yaml:3:", 0), 0u) << refusal(text);
    text = small;
    text.replace(text.find("efficiency: 0.3"), 15, "efficiency: 1.3");
    EXPECT_EQ(refusal(text).rfind("m.yaml:9:", 0), 0u) << refusal(text);
    text = small;
    text.replace(text.find("latency_s: 3e-6"), 9, "latencies");
    EXPECT_NE(refusal(text).find("latency_s"), std::string::npos) << refusal(text);
    EXPECT_NE(refusal("machine:\n  name: x\n").find("memory"), std::string::npos);
}

TEST(RunMachine, DocsListEveryKey) {
    char *text = nullptr;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    crl_machine_file_reference(out);
    fclose(out);
    std::ifstream in(CRL_SOURCE_DIR "/docs/machines.md");
    const std::string docs((std::istreambuf_iterator<char>(in)), {});
    EXPECT_NE(docs.find(text), std::string::npos) << "expected in docs/machines.md:\n" << text;
    free(text);
}
