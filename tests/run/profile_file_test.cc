// SPDX-License-Identifier: Apache-2.0
#include "engine/run/profile_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "engine/base/alloc.h"

namespace {

struct Read {
    explicit Read(const std::string &text)
        : status(crl_profile_file_parse(&list, "p.yaml", text.data(), text.size())) {}
    ~Read() { crl_profile_list_fini(&list); }
    Read(const Read &) = delete;
    const crl_profile_unit &unit(int u) const { return list.item[0]->unit[u]; }
    crl_profile_list list = {};
    crl_status status;
};

std::string Written(const crl_profile_list &list) {
    char *text = nullptr;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    EXPECT_EQ(crl_profile_file_write(list.item, list.count, out), CRL_STATUS_OK);
    fclose(out);
    const std::string copy(text, bytes);
    free(text);
    return copy;
}

std::string Refused(const std::string &text) {
    const Read read(text);
    EXPECT_EQ(read.status, CRL_STATUS_INVALID) << text;
    return read.status ? crl_error_message() : "accepted";
}

const std::string head = "format: 1\nmicro_batch: 4\n";
const std::string small = head + "units:\n  - {name: a, forward: 1ms}\n";

TEST(RunProfileFile, HandWrittenOneMeansWhatTheDocumentSays) {
    const Read read(head + "tokens_per_sample: 64\nsource: by hand\nunits:\n"
                           "  - name: a\n    forward: 1.5ms\n    input: 0.003\n    weight: 20us\n"
                           "    kept: 4KiB\n    parameters: 1MB\n    output: 3\n"
                           "  - name: b\n    forward: 7ns\n    gradient: false\n"
                           "    kept: 10\n    kept_full: 2\n    recompute_full: 5s\n    state: 8\n"
                           "  - name: c\n    inputs: [b, a]\n    forward: 1e-3\n"
                           "  - name: d\n    inputs: a\n    forward: 0\n"
                           "  - name: e\n    inputs: []\n    forward: 0\n");
    ASSERT_EQ(read.status, CRL_STATUS_OK) << crl_error_message();
    const crl_profile *p = read.list.item[0];
    EXPECT_EQ(p->micro_batch, 4);
    EXPECT_EQ(p->tokens_per_sample, 64);
    EXPECT_STREQ(p->source, "by hand");
    ASSERT_EQ(p->units, 5);
    EXPECT_EQ(read.unit(0).forward_s, 0.0015);
    EXPECT_EQ(read.unit(0).input_s, 0.003);
    EXPECT_EQ(read.unit(0).weight_s, 20e-6);
    EXPECT_EQ(read.unit(0).kept_bytes[CRL_RECOMPUTE_NONE], 4096);
    EXPECT_EQ(read.unit(0).kept_bytes[CRL_RECOMPUTE_FULL], 4096);
    EXPECT_EQ(read.unit(0).parameter_bytes, 1e6);
    EXPECT_EQ(read.unit(0).state_bytes, 4e6);
    EXPECT_EQ(read.unit(0).inputs, 0);
    EXPECT_FALSE(read.unit(0).no_gradient);
    EXPECT_EQ(read.unit(1).forward_s, 7e-9);
    EXPECT_TRUE(read.unit(1).no_gradient);
    EXPECT_EQ(read.unit(1).kept_bytes[CRL_RECOMPUTE_SELECTIVE], 10);
    EXPECT_EQ(read.unit(1).kept_bytes[CRL_RECOMPUTE_FULL], 2);
    EXPECT_EQ(read.unit(1).recompute_s[CRL_RECOMPUTE_FULL], 5);
    EXPECT_EQ(read.unit(1).state_bytes, 8);
    ASSERT_EQ(read.unit(1).inputs, 1);
    EXPECT_EQ(read.unit(1).input[0], 0);
    ASSERT_EQ(read.unit(2).inputs, 2);
    EXPECT_EQ(read.unit(2).input[0], 0);
    EXPECT_EQ(read.unit(2).input[1], 1);
    EXPECT_EQ(read.unit(3).input[0], 0);
    EXPECT_EQ(read.unit(4).inputs, 0);
}

TEST(RunProfileFile, RefusalsNameThePlace) {
    const std::string unit = head + "units:\n  - {name: a, forward: 1ms}\n  - {name: b, ";
    EXPECT_EQ(Refused("format: 2\nmicro_batch: 1\nunits: [{name: a, forward: 0}]\n"),
              "p.yaml:1:9: format is 2, expected 1");
    EXPECT_EQ(Refused("micro_batch: 1\nunits: [{name: a, forward: 0}]\n"),
              "p.yaml:1:1: 'format' is missing");
    EXPECT_EQ(Refused("format: 1\nunits: [{name: a, forward: 0}]\n"),
              "p.yaml:1:1: 'micro_batch' is missing");
    EXPECT_EQ(Refused(head), "p.yaml:1:1: 'units' is missing");
    EXPECT_EQ(Refused(head + "units: 3\n"),
              "p.yaml:3:8: units is a text, expected a list of units");
    EXPECT_EQ(Refused(head + "units: []\n"), "p.yaml:3:8: units are 0, expected 1 to 20000");
    EXPECT_EQ(Refused(head + "units: [a]\n"), "p.yaml:3:9: is a text, expected a unit: a mapping");
    EXPECT_EQ(Refused(head + "unit: []\nunits: []\n"),
              "p.yaml:3:1: unknown key 'unit', did you mean 'units'?");
    EXPECT_EQ(Refused(unit + "forwrad: 1}\n"),
              "p.yaml:5:15: unknown key 'forwrad', did you mean 'forward'?");
    EXPECT_EQ(Refused(unit + "kept: 1}\n"), "p.yaml:5:5: 'forward' of unit 'b' is missing");
    EXPECT_EQ(Refused(head + "units: [{forward: 1}]\n"), "p.yaml:3:9: 'name' is missing");
    EXPECT_EQ(Refused(head + "units: [{name: '', forward: 1}]\n"), "p.yaml:3:16: name is empty");
    EXPECT_EQ(Refused(unit + "forward: -1ms}\n"),
              "p.yaml:5:24: forward of unit 'b' is '-1ms', expected a time such as 0.0015, 1.5ms "
              "or 1500us that is not negative");
    EXPECT_EQ(
        Refused(unit + "forward: 1, kept: 3ms}\n"),
        "p.yaml:5:33: kept of unit 'b' is '3ms', expected a size such as 4096, 4KiB or 1.5MB");
    EXPECT_EQ(Refused(unit + "forward: 1, kept: 1e30}\n"),
              "p.yaml:5:33: kept of unit 'b' is '1e30', expected a size such as 4096, 4KiB or "
              "1.5MB, at most 1024 PiB");
    EXPECT_EQ(Refused(unit + "forward: [1]}\n"),
              "p.yaml:5:24: forward is a list, expected a single value");
    EXPECT_EQ(Refused(unit + "forward: 1, inputs: [c]}\n"),
              "p.yaml:5:36: unit 'b' reads 'c', which is no unit before it");
    EXPECT_EQ(Refused(unit + "forward: 1, inputs: b}\n"),
              "p.yaml:5:35: unit 'b' reads 'b', which is itself");
    EXPECT_EQ(Refused(unit + "forward: 1, inputs: [a, a]}\n"),
              "p.yaml:5:39: unit 'b' reads 'a' twice");
    EXPECT_EQ(Refused(unit + "forward: 1, inputs: {a: 1}}\n"),
              "p.yaml:5:35: inputs is a mapping, expected a list of names");
    EXPECT_EQ(Refused(small + "  - {name: a, forward: 1}\n"),
              "p.yaml:5:12: a unit 'a' stands before it already");
    EXPECT_EQ(Refused(unit + "forward: 1, gradient: maybe}\n"),
              "p.yaml:5:37: gradient is 'maybe', expected true or false");
    EXPECT_EQ(Refused("format: 1\nmicro_batch: 0\nunits: [{name: a, forward: 0}]\n"),
              "p.yaml:2:14: micro_batch is '0', expected 1 to 1000000000");
    EXPECT_EQ(Refused(small + "tokens_per_sample: nan\n"),
              "p.yaml:5:20: tokens_per_sample is 'nan', expected a number");
    EXPECT_EQ(Refused("[]"), "p.yaml:1:1: is a list, expected one with profiles");
    EXPECT_EQ(Refused("text"), "p.yaml:1:1: is a text, expected a profile: a mapping");
}

// A later unit cannot be read: profiles are in topological order, so there is no cycle.
TEST(RunProfileFile, ForwardReferencesAreRefused) {
    EXPECT_EQ(Refused(head + "units:\n  - {name: a, forward: 1, inputs: b}\n"
                             "  - {name: b, forward: 1, inputs: a}\n"),
              "p.yaml:4:35: unit 'a' reads 'b', which is not there: it is the first");
}

TEST(RunProfileFile, ListHoldsOneModelInAscendingSizes) {
    const auto item = [](int size, const char *name) {
        return "- format: 1\n  micro_batch: " + std::to_string(size) +
               "\n  units: [{name: " + name + ", forward: 1ms}]\n";
    };
    const Read read(item(1, "a") + item(4, "a"));
    ASSERT_EQ(read.status, CRL_STATUS_OK) << crl_error_message();
    ASSERT_EQ(read.list.count, 2);
    EXPECT_EQ(read.list.item[1]->micro_batch, 4);
    EXPECT_EQ(Refused(item(4, "a") + item(4, "a")),
              "p.yaml:4:3: micro_batch is 4 after 4, expected ascending");
    EXPECT_EQ(Refused(item(1, "a") + item(4, "b")),
              "p.yaml:4:3: unit 0 is 'b', in the profile before it 'a'");
}

// Numbers of all sizes, with branches: written, read, written again.
TEST(RunProfileFile, RoundTripIsExact) {
    uint64_t state = 88172645463325252u;
    const auto random = [&state] { // xorshift
        state ^= state << 13;
        state ^= state >> 7;
        return state ^= state << 17;
    };
    const int units = 200;
    crl_profile_list list = {};
    std::vector<crl_profile *> two(2);
    for (int k = 0; k < 2; k++) {
        ASSERT_EQ(crl_profile_create(&two[k], units), CRL_STATUS_OK);
        two[k]->micro_batch = k + 1;
        two[k]->tokens_per_sample = 1.0 / 3;
        two[k]->source = "a \"quoted\" \\ text:\n# of # two lines";
        for (int u = 0; u < units; u++) {
            std::vector<int> input;
            for (int i = 0; i < u; i++) {
                if (random() % 50 == 0) {
                    input.push_back(i);
                }
            }
            const std::string name =
                u % 3 ? "h" + std::to_string(u) + ".x" : "- odd: " + std::to_string(u);
            ASSERT_EQ(
                crl_profile_name_unit(two[k], u, name.c_str(), int(input.size()), input.data()),
                CRL_STATUS_OK);
            two[k]->unit[u].no_gradient = random() % 2;
            for (const crl_profile_number *n = crl_profile_numbers; n->name; n++) {
                double *at = reinterpret_cast<double *>(reinterpret_cast<char *>(&two[k]->unit[u]) +
                                                        n->offset);
                const double value = double(random() >> 11) * 0x1p-53;
                *at = random() % 4 == 0
                          ? 0
                          : std::ldexp(value, int(random() % 60) - (n->seconds ? 50 : 0));
            }
        }
    }
    list.item = two.data();
    list.count = 2;
    const std::string text = Written(list);
    {
        const Read read(text);
        ASSERT_EQ(read.status, CRL_STATUS_OK) << crl_error_message();
        ASSERT_EQ(read.list.count, 2);
        EXPECT_EQ(Written(read.list), text);
        for (int k = 0; k < 2; k++) {
            EXPECT_STREQ(read.list.item[k]->source, two[k]->source);
            EXPECT_EQ(read.list.item[k]->tokens_per_sample, two[k]->tokens_per_sample);
            for (int u = 0; u < units; u++) {
                const crl_profile_unit *a = &read.list.item[k]->unit[u], *b = &two[k]->unit[u];
                ASSERT_EQ(a->inputs, b->inputs);
                EXPECT_STREQ(a->name, b->name);
                EXPECT_EQ(memcmp(a->input, b->input, sizeof(int) * size_t(a->inputs)), 0);
                EXPECT_EQ(memcmp(&a->forward_s, &b->forward_s,
                                 offsetof(crl_profile_unit, no_gradient) -
                                     offsetof(crl_profile_unit, forward_s)),
                          0)
                    << a->name;
                EXPECT_EQ(a->no_gradient, b->no_gradient);
            }
        }
    }
    crl_profile_destroy(two[0]);
    crl_profile_destroy(two[1]);
}

// docs/profile-format.md: its example is read, and it explains every key.
TEST(RunProfileFile, DocumentIsRight) {
    std::ifstream in(CRL_SOURCE_DIR "/docs/profile-format.md");
    std::stringstream content;
    content << in.rdbuf();
    const std::string text = content.str();
    const size_t begin = text.find("```yaml\n") + 8, end = text.find("```", begin);
    ASSERT_NE(end, std::string::npos);
    const Read read(text.substr(begin, end - begin));
    ASSERT_EQ(read.status, CRL_STATUS_OK) << crl_error_message();
    EXPECT_EQ(read.unit(2).inputs, 2);
    for (const crl_profile_number *n = crl_profile_numbers; n->name; n++) {
        const std::string row =
            std::string("| `") + n->name + "` | " + (n->seconds ? "time" : "size") + " |";
        EXPECT_NE(text.find(row), std::string::npos) << row;
    }
}

TEST(RunProfileFile, MessagesAreOneLineWhateverTheNames) {
    EXPECT_EQ(Refused(head + "units: [{name: a, forward: 1, inputs: [\"x\\ny\"]}]\n"),
              "p.yaml:3:40: unit 'a' reads 'x?y', which is not there: it is the first");
}

TEST(RunProfileFile, EveryAllocationMayFail) {
    const std::string text = head + "units:\n  - {name: a, forward: 1ms}\n  - {name: b, forward: "
                                    "1ms, inputs: [a]}\n";
    for (int n = 1;; n++) {
        crl_alloc_watch watch = {};
        watch.fail_at = n;
        crl_alloc_watch *const before = crl_alloc_attach(&watch);
        crl_profile_list list = {};
        const crl_status status = crl_profile_file_parse(&list, "p.yaml", text.data(), text.size());
        const bool reached = watch.fail_at <= 0;
        crl_profile_list_fini(&list);
        crl_alloc_attach(before);
        EXPECT_EQ(watch.live_bytes, 0) << n;
        EXPECT_EQ(status, reached ? CRL_STATUS_NOMEM : CRL_STATUS_OK) << n;
        if (!reached) {
            EXPECT_GT(n, 5);
            break;
        }
    }
}

TEST(RunProfileFile, MissingFileIsNotFound) {
    crl_profile_list list = {};
    EXPECT_EQ(crl_profile_file_read(&list, "/nonexistent.yaml"), CRL_STATUS_NOT_FOUND);
}

} // namespace
