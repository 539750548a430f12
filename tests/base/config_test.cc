// SPDX-License-Identifier: Apache-2.0
#include "engine/base/config.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/base/alloc.h"
#include "engine/base/file.h"

namespace {

struct Parallel {
    int64_t pipeline, data;
    int schedule;
    crl_text_list stages;
};
struct Data {
    const char *train;
    int64_t bucket;
    bool shuffle;
    double rate;
};
struct Model {
    const char *type;
};
struct Gpt {
    int64_t layers;
    const char *tokens;
};
struct Mlp {
    int64_t width;
};

const char *const kSchedules[] = {"gpipe", "1f1b", nullptr};
const crl_option kEnd = {nullptr, nullptr, nullptr, nullptr, 0, 0, 0, nullptr};
const crl_option kParallel[] = {
    {"pipeline", "1", "stages", &crl_option_int, offsetof(Parallel, pipeline), 1, 64, nullptr},
    {"data", "1", "replicas", &crl_option_int, offsetof(Parallel, data), 1, 0, nullptr},
    {"schedule", "1f1b", "order", &crl_option_choice, offsetof(Parallel, schedule), 0, 0,
     kSchedules},
    {"stages", "", "cuts", &crl_option_list, offsetof(Parallel, stages), 0, 0, nullptr},
    kEnd};
const crl_option kData[] = {
    {"train", nullptr, "training | tokens", &crl_option_text, offsetof(Data, train), 0, 0, nullptr},
    {"bucket", "25MiB", "bytes", &crl_option_bytes, offsetof(Data, bucket), 0, 0, nullptr},
    {"shuffle", "true", "order", &crl_option_bool, offsetof(Data, shuffle), 0, 0, nullptr},
    {"rate", "0.1", "rate", &crl_option_double, offsetof(Data, rate), 0, 0, nullptr},
    kEnd};
const crl_option kModel[] = {
    {"type", "mlp", "which", &crl_option_text, offsetof(Model, type), 0, 0, nullptr}, kEnd};
const crl_option kGpt[] = {
    {"layers", "4", "blocks", &crl_option_int, offsetof(Gpt, layers), 1, 0, nullptr},
    {"tokens", nullptr, "vocabulary", &crl_option_text, offsetof(Gpt, tokens), 0, 0, nullptr},
    kEnd};
const crl_option kMlp[] = {
    {"width", "32", "neurons", &crl_option_int, offsetof(Mlp, width), 1, 0, nullptr}, kEnd};

class BaseConfig : public ::testing::Test {
  protected:
    void TearDown() override { crl_config_fini(&source); }

    static crl_status Select(void *context, const char *value, crl_arena *,
                             const crl_option **table, void **options) {
        auto *self = static_cast<BaseConfig *>(context);
        const bool gpt = std::string(value) == "gpt";
        if (!gpt && std::string(value) != "mlp") {
            return CRL_FAIL(NOT_FOUND, "unknown model '%s' (choices: gpt, mlp)", value);
        }
        *table = gpt ? kGpt : kMlp;
        *options = gpt ? static_cast<void *>(&self->gpt) : &self->mlp;
        return CRL_STATUS_OK;
    }

    // "" or the message.
    std::string Parse(const std::string &text, const std::vector<const char *> &sets = {}) {
        crl_config_fini(&source);
        status = crl_config_parse(&source, sections, "c.yaml", text.data(), text.size(),
                                  sets.data(), int(sets.size()));
        return status == CRL_STATUS_OK ? "" : crl_error_message();
    }
    // The same for a text to which the required keys are added in front: one line.
    std::string More(const std::string &text, const std::vector<const char *> &sets = {}) {
        return Parse("data: {train: t.bin}\n" + text, sets);
    }
    std::string Where(const char *key) {
        char text[128];
        return crl_config_where(&source, key, text, sizeof text);
    }

    crl_status status = CRL_STATUS_OK;
    crl_config_source source{};
    Parallel parallel{};
    Data data{};
    Model model{};
    Gpt gpt{};
    Mlp mlp{};
    crl_config_section sections[4] = {
        {"parallel", "Layout.", kParallel, &parallel, nullptr, nullptr, nullptr, nullptr},
        {"data", "Data.", kData, &data, nullptr, nullptr, nullptr, nullptr},
        {"model", "Model.", kModel, &model, "type", Select, this, nullptr},
        {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr}};
};

TEST_F(BaseConfig, ReadsEveryKindOfValue) {
    ASSERT_EQ(Parse("# layout\n"
                    "parallel:\n"
                    "  pipeline: 4\n"
                    "  schedule: gpipe   # all forward first\n"
                    "  stages: [0-3, '4-7', 8-]\n"
                    "data:\n"
                    "  train: \"a b.bin\"\n"
                    "  bucket: 1.5KiB\n"
                    "  shuffle: false\n"
                    "  rate: 3e-4\n"),
              "");
    EXPECT_EQ(parallel.pipeline, 4);
    EXPECT_EQ(parallel.data, 1);
    EXPECT_EQ(parallel.schedule, 0);
    ASSERT_EQ(parallel.stages.count, 3);
    EXPECT_STREQ(parallel.stages.item[1], "4-7");
    EXPECT_STREQ(data.train, "a b.bin");
    EXPECT_EQ(data.bucket, 1536);
    EXPECT_FALSE(data.shuffle);
    EXPECT_EQ(data.rate, 3e-4);
    EXPECT_EQ(mlp.width, 32);
    EXPECT_EQ(Where("parallel.pipeline"), "c.yaml:3:13: parallel.pipeline");
    EXPECT_EQ(Where("parallel.data"), "parallel.data (default)");
    ASSERT_EQ(source.origins, 7);
    EXPECT_STREQ(source.origin[2].text, "0-3,4-7,8-");
}

TEST_F(BaseConfig, EmptyTextsAreFine) {
    for (const char *text : {"", "\n\n", "# nothing\n", "---\n", "---\n...\n", "~\n", "{}"}) {
        EXPECT_EQ(Parse(text, {"data.train=x"}), "") << text;
        EXPECT_EQ(parallel.pipeline, 1);
    }
}

TEST_F(BaseConfig, ReportsEverythingAtOnceByLine) {
    EXPECT_EQ(Parse("parallel:\n"
                    "  pipline: 4\n"
                    "  data: 2x\n"
                    "  data: 3\n"
                    "  schedule: 1f2b\n"
                    "dta:\n"
                    "  train: x\n"
                    "data:\n"
                    "  shuffle: yes\n"
                    "  rate: .nan\n"
                    "  zebra: 1\n"),
              "c.yaml:2:3: unknown key 'pipline' in 'parallel', did you mean 'pipeline'?\n"
              "c.yaml:3:9: parallel.data is '2x', expected an integer\n"
              "c.yaml:4:3: duplicate key 'data' in 'parallel', first given at c.yaml:3:3\n"
              "c.yaml:5:13: parallel.schedule is '1f2b', expected gpipe or 1f1b\n"
              "c.yaml:6:1: unknown section 'dta', did you mean 'data'?\n"
              "c.yaml:8:1: missing key 'data.train'\n"
              "c.yaml:9:12: data.shuffle is 'yes', expected true or false\n"
              "c.yaml:10:9: data.rate is '.nan', expected a number\n"
              "c.yaml:11:3: unknown key 'zebra' in 'data' (keys: train, bucket, shuffle, rate)");
    EXPECT_EQ(status, CRL_STATUS_INVALID);
    EXPECT_EQ(source.origins, 0);
}

TEST_F(BaseConfig, RefusesWhatYamlHasBeyondPlainValues) {
    EXPECT_EQ(More("parallel:\n  pipeline: &a 4\n  data: *a\n"),
              "c.yaml:3:13: anchor '&a' is not accepted\n"
              "c.yaml:4:9: alias '*a' is not accepted");
    EXPECT_EQ(More("parallel:\n  pipeline: !!int 4\n"),
              "c.yaml:3:13: tag 'tag:yaml.org,2002:int' is not accepted");
    EXPECT_EQ(More("--- {}\n").rfind("c.yaml:2:1: a second document", 0), 0u)
        << crl_error_message();
    EXPECT_EQ(
        More("parallel:\n  <<: 4\n"),
        "c.yaml:3:3: unknown key '<<' in 'parallel' (keys: pipeline, data, schedule, stages)");
    EXPECT_EQ(More("parallel: {? [a, b] : 1, pipeline: 0}\n"),
              "c.yaml:2:14: key is a list, expected a name\n"
              "c.yaml:2:36: parallel.pipeline is '0', expected 1 to 64");
}

TEST_F(BaseConfig, RefusesWrongShapes) {
    EXPECT_EQ(Parse("[1, 2]"), "c.yaml:1:1: document is a list, expected sections\n"
                               "c.yaml:1:1: missing key 'data.train'");
    EXPECT_EQ(Parse("data", {"data.train=x"}),
              "c.yaml:1:1: document is a single value, expected sections");
    EXPECT_EQ(More("parallel: 4\n"),
              "c.yaml:2:11: 'parallel' is a single value, expected a section of keys");
    EXPECT_EQ(More("parallel: [[4]]\n"),
              "c.yaml:2:11: 'parallel' is a list, expected a section of keys");
    EXPECT_EQ(More("parallel:\n  pipeline: {a: {b: 1}}\n  data: -1\n"),
              "c.yaml:3:13: 'parallel.pipeline' is a mapping, expected a value or a list\n"
              "c.yaml:4:9: parallel.data is '-1', expected at least 1");
    EXPECT_EQ(More("parallel:\n  pipeline: [4]\n"),
              "c.yaml:3:13: parallel.pipeline is a list, expected a single value");
    EXPECT_EQ(More("parallel:\n  stages: [a, [b], {c: d}, '', 'e,f', ' g', ~]\n"),
              "c.yaml:3:15: list item of 'parallel.stages' is not a single value\n"
              "c.yaml:3:20: list item of 'parallel.stages' is not a single value\n"
              "c.yaml:3:28: list item of 'parallel.stages' is empty\n"
              "c.yaml:3:32: list item of 'parallel.stages' has a comma\n"
              "c.yaml:3:39: list item of 'parallel.stages' has outer spaces\n"
              "c.yaml:3:45: list item of 'parallel.stages' is empty");
}

TEST_F(BaseConfig, RefusesNullValues) {
    EXPECT_EQ(Parse("parallel:\ndata:\n  train:\n  rate: ~\n  bucket: null\n"),
              "c.yaml:1:1: section 'parallel' has no keys\n"
              "c.yaml:3:3: key 'data.train' has no value\n"
              "c.yaml:4:3: key 'data.rate' has no value\n"
              "c.yaml:5:3: key 'data.bucket' has no value");
    EXPECT_EQ(Parse("data: {train: ''}"), "");
    EXPECT_STREQ(data.train, "");
}

TEST_F(BaseConfig, NamesTheFirstOfTwoSections) {
    EXPECT_EQ(More("data:\n  rate: 1\n  train: u.bin\n"),
              "c.yaml:2:1: duplicate section 'data', first given at c.yaml:1:1\n"
              "c.yaml:4:3: duplicate key 'train' in 'data', first given at c.yaml:1:8");
}

TEST_F(BaseConfig, BrokenYamlHasAPlace) {
    EXPECT_EQ(Parse("data:\n  train: [a\n").rfind("c.yaml:3:1: ", 0), 0u);
    EXPECT_EQ(Parse("data:\n\ttrain: a\n").rfind("c.yaml:2:1: ", 0), 0u);
    EXPECT_EQ(Parse("data:\n  train: \xff\n").rfind("c.yaml:2:10: ", 0), 0u) << crl_error_message();
    EXPECT_EQ(Parse(std::string("data:\n  train: a\0b\n", 19)).rfind("c.yaml:2:11: ", 0), 0u)
        << crl_error_message();
    EXPECT_EQ(Parse("data:\n  train: \"a\\0b\"\n"), "c.yaml:2:10: text has a zero character");
    for (const char *bad : {"{", "a: b: c", "'", "data: |x", "%YAML 3.0\n--- {}", "a:\n- b\nc"}) {
        const std::string message = Parse(bad);
        EXPECT_EQ(message.rfind("c.yaml:", 0), 0u) << bad << ": " << message;
        EXPECT_EQ(message.find("missing"), std::string::npos) << bad << ": " << message;
    }
}

TEST_F(BaseConfig, SetOverridesTheFile) {
    ASSERT_EQ(Parse("data: {train: a}\nparallel: {pipeline: 2}\n",
                    {"parallel.pipeline=4", "parallel.data=2", "parallel.pipeline=8",
                     "parallel.stages=a,b", "data.train=x=y"}),
              "");
    EXPECT_EQ(parallel.pipeline, 8);
    EXPECT_EQ(parallel.data, 2);
    EXPECT_EQ(parallel.stages.count, 2);
    EXPECT_STREQ(data.train, "x=y");
    EXPECT_EQ(Where("parallel.pipeline"), "--set:3:1: parallel.pipeline");
    EXPECT_EQ(source.origins, 4);
}

TEST_F(BaseConfig, AWordStandsForTheKeyOfItsSection) {
    sections[0].word = "schedule";
    EXPECT_EQ(More("parallel: gpipe\n"), "");
    EXPECT_EQ(parallel.schedule, 0);
    EXPECT_EQ(Where("parallel.schedule"), "c.yaml:2:11: parallel.schedule");
    EXPECT_EQ(More("parallel: gpipe\n", {"parallel=1f1b", "parallel.data=2"}), "");
    EXPECT_EQ(parallel.schedule, 1);
    EXPECT_EQ(parallel.data, 2);
    EXPECT_EQ(More("parallel: other\n"),
              "c.yaml:2:11: parallel.schedule is 'other', expected gpipe or 1f1b");
    EXPECT_EQ(More("parallel: ''\n"),
              "c.yaml:2:11: parallel.schedule is '', expected gpipe or 1f1b");
    EXPECT_EQ(More("", {"data=x", "=1"}), "--set:1:1: 'data=x' is not of the form "
                                          "section.key=value\n"
                                          "--set:2:1: '=1' is not of the form section.key=value");
}

TEST_F(BaseConfig, SetIsChecked) {
    EXPECT_EQ(Parse("paralel: {}\n",
                    {"parallel.pipeline", "pipeline=4", "paralel.data=1", "parallel.dat=1",
                     "parallel.data=x", ".a=1", "a.=1", "=", "data.train="}),
              "c.yaml:1:1: unknown section 'paralel', did you mean 'parallel'?\n"
              "--set:1:1: 'parallel.pipeline' is not of the form section.key=value\n"
              "--set:2:1: 'pipeline=4' is not of the form section.key=value\n"
              "--set:3:1: unknown section 'paralel', did you mean 'parallel'?\n"
              "--set:4:1: unknown key 'dat' in 'parallel', did you mean 'data'?\n"
              "--set:5:1: parallel.data is 'x', expected an integer\n"
              "--set:6:1: '.a=1' is not of the form section.key=value\n"
              "--set:7:1: 'a.=1' is not of the form section.key=value\n"
              "--set:8:1: '=' is not of the form section.key=value");
}

TEST_F(BaseConfig, TheSelectorChoosesTheTable) {
    ASSERT_EQ(More("model: {layers: 12, tokens: bpe, type: gpt}\n"), "");
    EXPECT_STREQ(model.type, "gpt");
    EXPECT_EQ(gpt.layers, 12);
    ASSERT_EQ(More("model: {width: 7}\n"), "");
    EXPECT_EQ(mlp.width, 7);
    ASSERT_EQ(More("model: {width: 9}\n", {"model.type=mlp"}), "");
    EXPECT_EQ(More("model: {type: gpt, width: 7}\n"),
              "c.yaml:2:1: missing key 'model.tokens'\n"
              "c.yaml:2:20: unknown key 'width' in 'model' (keys: type, layers, tokens)");
    EXPECT_EQ(More("model: {type: gpt, layer: 7}\n", {"model.tokens=x"}),
              "c.yaml:2:20: unknown key 'layer' in 'model', did you mean 'layers'?");
    EXPECT_EQ(More("model: {width: 7}\n", {"model.type=gpt", "model.type=mlp"}), "");
    EXPECT_EQ(More("model: {type: gtp, layer: 7}\nparallel: {data: x}\n"),
              "c.yaml:2:15: model.type: unknown model 'gtp' (choices: gpt, mlp)\n"
              "c.yaml:3:18: parallel.data is 'x', expected an integer");
}

TEST_F(BaseConfig, LimitsHoldAndSayHowMuchIsLeftOut) {
    EXPECT_EQ(Parse(std::string((1 << 20) + 1, '#')),
              "c.yaml: is 1048577 bytes long, expected at most 1048576");
    EXPECT_EQ(Parse(std::string(1000, '[')).rfind("c.yaml:1:", 0), 0u);
    std::string many = "data:\n  train: x\nparallel:\n";
    for (int i = 0; i < 60000; ++i) {
        many += "  k" + std::to_string(i) + ": 1\n";
    }
    const std::string message = Parse(many);
    EXPECT_EQ(message.rfind("c.yaml:4:3: unknown key 'k0' in 'parallel'", 0), 0u);
    EXPECT_EQ(message.substr(message.size() - 6), " more)");
    EXPECT_LT(message.size(), size_t(CRL_ERROR_MESSAGE_BYTES));
    EXPECT_NE(Parse("data: {train: x}\nparallel: {" + std::string(900000, 'k') + ": 1}\n"), "");
    EXPECT_EQ(Parse("data: {train: " + std::string(1000000, 'k') + "}\n"), "");
}

TEST_F(BaseConfig, AFailureLeavesWhatWasLoaded) {
    ASSERT_EQ(More(""), "");
    crl_config_source before = source, other{};
    Data kept = data;
    EXPECT_EQ(crl_config_parse(&source, sections, "d.yaml", "x: 1", 4, nullptr, 0),
              CRL_STATUS_INVALID);
    EXPECT_EQ(source.origin, before.origin);
    EXPECT_STREQ(kept.train, "t.bin");
    (void)other;
}

TEST_F(BaseConfig, LoadsFilesOrNone) {
    char folder[] = "/tmp/crl_config_XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    const std::string path = std::string(folder) + "/c.yaml";
    ASSERT_EQ(crl_file_write_atomic(path.c_str(), "data: {train: q}\n", 17), CRL_STATUS_OK);
    const char *set = "data.rate=2", *train = "data.train=z";
    ASSERT_EQ(crl_config_load(&source, sections, path.c_str(), &set, 1), CRL_STATUS_OK);
    EXPECT_STREQ(data.train, "q");
    EXPECT_EQ(Where("data.train"), path + ":1:15: data.train");
    crl_config_fini(&source);
    ASSERT_EQ(crl_config_load(&source, sections, nullptr, &train, 1), CRL_STATUS_OK);
    crl_config_fini(&source);
    EXPECT_EQ(crl_config_load(&source, sections, nullptr, nullptr, 0), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "config: missing key 'data.train'");
    EXPECT_EQ(crl_config_load(&source, sections, "/nonexistent.yaml", nullptr, 0),
              CRL_STATUS_NOT_FOUND);
    EXPECT_EQ(crl_file_remove(folder), CRL_STATUS_OK);
}

TEST_F(BaseConfig, EveryFailingAllocationIsReported) {
    const std::string text =
        "data: {train: a}\nparallel:\n  stages: [a, b]\n  data: 2\nmodel: {type: gpt, tokens: b}\n";
    const std::string broken = text + "x: 1\ny: {}\n";
    crl_alloc_watch watch{};
    crl_alloc_attach(&watch);
    for (const std::string *input : {&text, &broken}) {
        int n = 1;
        for (;; ++n) {
            watch.fail_at = n;
            Parse(*input, {"parallel.data=3"});
            if (watch.fail_at != 0) {
                break; // there were fewer allocations than n
            }
            ASSERT_EQ(status, CRL_STATUS_NOMEM) << n;
        }
        watch.fail_at = 0;
        EXPECT_GT(n, 4);
        EXPECT_EQ(status, input == &text ? CRL_STATUS_OK : CRL_STATUS_INVALID);
        crl_config_fini(&source);
        EXPECT_EQ(watch.live_bytes, 0);
    }
    crl_alloc_attach(nullptr);
}

TEST_F(BaseConfig, ReferenceListsEveryKey) {
    char *text = nullptr;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    crl_config_reference(sections, out);
    fclose(out);
    const std::string reference = text;
    free(text);
    EXPECT_EQ(
        reference.rfind(
            "## `parallel`\n\nLayout.\n\n| key | value | default | meaning |\n|---|---|---|---|\n"
            "| `pipeline` | integer, 1 to 64 | `1` | stages |\n",
            0),
        0u)
        << reference;
    EXPECT_NE(reference.find("| `schedule` | `gpipe`, `1f1b` | `1f1b` | order |\n"),
              std::string::npos);
    EXPECT_NE(reference.find("| `train` | text | *required* | training \\| tokens |\n"),
              std::string::npos);
    EXPECT_NE(reference.find("\nFurther keys depend on `model.type`.\n"), std::string::npos);
}

} // namespace
