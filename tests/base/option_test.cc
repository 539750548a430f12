// SPDX-License-Identifier: Apache-2.0
#include "engine/base/option.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/base/alloc.h"
#include "tests/base/comma_locale.h"

namespace {

struct Options {
    int64_t count;
    double rate;
    bool recompute;
    const char *path;
    int schedule;
    int64_t bucket;
    crl_text_list stages;
    int64_t width;
};

const char *const kSchedules[] = {"gpipe", "1f1b", "interleaved", nullptr};

const crl_option kTable[] = {
    {"count", "4", "how many", &crl_option_int, offsetof(Options, count), 1, 64, nullptr},
    {"rate", "0.1", "rate", &crl_option_double, offsetof(Options, rate), 0, 1, nullptr},
    {"recompute", "false", "again", &crl_option_bool, offsetof(Options, recompute), 0, 0, nullptr},
    {"path", "", "where", &crl_option_text, offsetof(Options, path), 0, 0, nullptr},
    {"schedule", "1f1b", "order", &crl_option_choice, offsetof(Options, schedule), 0, 0,
     kSchedules},
    {"bucket", "25MiB", "size", &crl_option_bytes, offsetof(Options, bucket), 0, 0, nullptr},
    {"stages", "a, b", "parts", &crl_option_list, offsetof(Options, stages), 0, 0, nullptr},
    {"width", nullptr, "wide", &crl_option_int, offsetof(Options, width), 2, 0, nullptr},
    {nullptr, nullptr, nullptr, nullptr, 0, 0, 0, nullptr},
};

class BaseOption : public ::testing::Test {
  protected:
    void TearDown() override { crl_arena_fini(&arena); }
    // "" or the message.
    std::string Set(const char *name, const char *text) {
        return crl_option_set(kTable, name, text, &arena, &options) == CRL_STATUS_OK
                   ? ""
                   : crl_error_message();
    }
    std::string Show(const char *name) {
        const crl_option *option = crl_option_find(kTable, name);
        char text[256];
        option->type->show(option, reinterpret_cast<char *>(&options) + option->offset, text,
                           sizeof text);
        return text;
    }
    crl_arena arena{};
    Options options{};
};

TEST_F(BaseOption, FillsDefaults) {
    ASSERT_EQ(crl_option_defaults(kTable, &arena, &options), CRL_STATUS_OK);
    EXPECT_EQ(options.count, 4);
    EXPECT_EQ(options.rate, 0.1);
    EXPECT_FALSE(options.recompute);
    EXPECT_STREQ(options.path, "");
    EXPECT_EQ(options.schedule, 1);
    EXPECT_EQ(options.bucket, 25 << 20);
    ASSERT_EQ(options.stages.count, 2);
    EXPECT_STREQ(options.stages.item[1], "b");
    EXPECT_EQ(options.width, 0);
}

TEST_F(BaseOption, IntegersAreWholeTexts) {
    EXPECT_EQ(Set("width", "-7"), "width is '-7', expected at least 2");
    EXPECT_EQ(Set("width", "9223372036854775807"), "");
    EXPECT_EQ(options.width, INT64_MAX);
    EXPECT_EQ(Set("width", "9223372036854775808"),
              "width is '9223372036854775808', expected an integer of 64 bits");
    for (const char *bad :
         {"", "2x", "x", "-", "+", "--1", " 1", "1 ", "0x10", "1.0", "1e3", "1_0"}) {
        EXPECT_EQ(Set("count", bad), "count is '" + std::string(bad) + "', expected an integer");
    }
    EXPECT_EQ(Set("count", "65"), "count is '65', expected 1 to 64");
    EXPECT_EQ(Set("count", "64"), "");
    EXPECT_EQ(Show("count"), "64");
}

TEST_F(BaseOption, NumbersAreFiniteDecimals) {
    for (const char *good : {"1", "0.25", ".5", "1.", "1e-3", "2.5E-1", "+0.5", "1e-400"}) {
        EXPECT_EQ(Set("rate", good), "");
        EXPECT_EQ(options.rate, std::strtod(good, nullptr));
    }
    for (const char *bad :
         {"", ".", "nan", "inf", "-inf", "0x1p-3", "1e", "1e+", "0.5x", " 0.5", "1,5"}) {
        EXPECT_EQ(Set("rate", bad), "rate is '" + std::string(bad) + "', expected a number");
    }
    EXPECT_EQ(Set("rate", "1e999"), "rate is '1e999', expected a number that a double can hold");
    EXPECT_EQ(Set("rate", "1.5"), "rate is '1.5', expected 0 to 1");
}

TEST_F(BaseOption, NumbersDoNotDependOnTheLocale) {
    const comma_locale locale;
    if (!locale.active) {
        GTEST_SKIP() << "no locale with a decimal comma can be made here";
    }
    EXPECT_EQ(Set("rate", "0.5"), "");
    EXPECT_EQ(options.rate, 0.5);
    EXPECT_EQ(Show("rate"), "0.5");
}

TEST_F(BaseOption, TruthIsTrueOrFalse) {
    EXPECT_EQ(Set("recompute", "true"), "");
    EXPECT_TRUE(options.recompute);
    for (const char *bad : {"yes", "no", "on", "1", "True", "maybe", ""}) {
        EXPECT_EQ(Set("recompute", bad),
                  "recompute is '" + std::string(bad) + "', expected true or false");
    }
}

TEST_F(BaseOption, ChoicesAreListed) {
    EXPECT_EQ(Set("schedule", "interleaved"), "");
    EXPECT_EQ(options.schedule, 2);
    EXPECT_EQ(Set("schedule", "1f2b"), "schedule is '1f2b', expected gpipe, 1f1b or interleaved");
}

TEST_F(BaseOption, BytesHaveUnits) {
    const std::vector<std::pair<const char *, int64_t>> cases = {
        {"0", 0},           {"4096", 4096},    {"17B", 17},
        {"64KiB", 65536},   {"64 KiB", 65536}, {"1.5GiB", 1610612736},
        {"10MB", 10000000}, {"3KB", 3000},     {"2GB", 2000000000},
        {"0.5KiB", 512},    {"2MiB", 2097152}, {"9223372036854775807", INT64_MAX},
    };
    for (const auto &[text, bytes] : cases) {
        EXPECT_EQ(Set("bucket", text), "") << text;
        EXPECT_EQ(options.bucket, bytes) << text;
    }
    for (const char *bad :
         {"", "KiB", "1.", ".5KiB", "1.2.3", "-1", "1kib", "1KiBs", "1  KiB", "0x1", "1e3"}) {
        EXPECT_EQ(Set("bucket", bad), "bucket is '" + std::string(bad) +
                                          "', expected a size such as 4096, 64KiB or 1.5GiB");
    }
    EXPECT_EQ(Set("bucket", "1.5"), "bucket is '1.5', expected a whole number of bytes");
    EXPECT_EQ(Set("bucket", "1.5B"), "bucket is '1.5B', expected a whole number of bytes");
    EXPECT_EQ(Set("bucket", "2.2MiB"), "");
    EXPECT_EQ(options.bucket, 2306867);
    for (const char *big :
         {"9223372036854775808", "9000000000GiB", "99999999999999999999999999999999"}) {
        EXPECT_NE(Set("bucket", big).find("below 8 EiB"), std::string::npos) << big;
    }
}

TEST_F(BaseOption, ListsMayStandInBrackets) {
    ASSERT_EQ(Set("stages", "[x, y,z]"), "");
    ASSERT_EQ(options.stages.count, 3);
    EXPECT_STREQ(options.stages.item[0], "x");
    EXPECT_STREQ(options.stages.item[2], "z");
    ASSERT_EQ(Set("stages", "[]"), "");
    EXPECT_EQ(options.stages.count, 0);
    EXPECT_NE(Set("stages", "[x,]"), "");
}

TEST_F(BaseOption, ListsAreCommaSeparated) {
    EXPECT_EQ(Set("stages", " 0-13 ,14-"), "");
    ASSERT_EQ(options.stages.count, 2);
    EXPECT_STREQ(options.stages.item[0], "0-13");
    EXPECT_STREQ(options.stages.item[1], "14-");
    EXPECT_EQ(Set("stages", ""), "");
    EXPECT_EQ(options.stages.count, 0);
    for (const char *bad : {",", "a,", ",a", "a,,b", " "}) {
        EXPECT_NE(Set("stages", bad), "") << bad;
    }
}

TEST_F(BaseOption, ShowReadsBackToTheSameValue) {
    const std::vector<std::pair<const char *, const char *>> cases = {
        {"count", "17"},        {"rate", "0.1"},       {"rate", "0.30000000000000004"},
        {"rate", "1e-05"},      {"recompute", "true"}, {"path", "a b"},
        {"schedule", "gpipe"},  {"bucket", "64KiB"},   {"bucket", "0"},
        {"bucket", "10000001"}, {"bucket", "3GiB"},    {"stages", "x,y,z"},
        {"stages", ""},
    };
    for (const auto &[name, text] : cases) {
        ASSERT_EQ(Set(name, text), "");
        EXPECT_EQ(Show(name), text);
    }
}

TEST_F(BaseOption, UnknownNamesSuggest) {
    EXPECT_EQ(Set("shedule", "x"), "unknown option 'shedule', did you mean 'schedule'?");
    EXPECT_EQ(Set("zebra", "x"), "unknown option 'zebra'");
}

TEST_F(BaseOption, MessagesStayOneShortLine) {
    const std::string bad = "1\n\t2" + std::string(5000, 'x');
    const std::string message = Set("count", bad.c_str());
    EXPECT_EQ(message.find('\n'), std::string::npos);
    EXPECT_EQ(message.rfind("count is '1??2xxx", 0), 0u);
    EXPECT_LT(message.size(), 200u);
}

TEST_F(BaseOption, NomemIsNotAUserError) {
    crl_alloc_watch watch{};
    crl_alloc_attach(&watch);
    for (const char *name : {"path", "stages"}) {
        watch.fail_at = 1;
        EXPECT_EQ(crl_option_set(kTable, name, "a,b", &arena, &options), CRL_STATUS_NOMEM);
        crl_arena_fini(&arena);
    }
    crl_alloc_attach(nullptr);
}

TEST_F(BaseOption, NearestName) {
    const char *const names[] = {"pipeline", "data", "schedule", "lanes", "mse"};
    const auto near = [&](const char *name) {
        const char *found = crl_nearest_name(name, names, 5, sizeof names[0]);
        return std::string(found ? found : "");
    };
    EXPECT_EQ(near("pipline"), "pipeline");
    EXPECT_EQ(near("PIPELINE"), "pipeline");
    EXPECT_EQ(near("piplenie"), "pipeline");
    EXPECT_EQ(near("dta"), "data");
    EXPECT_EQ(near("adta"), "data");
    EXPECT_EQ(near("mes"), "mse"); // one swap, where two edits would be too many
    EXPECT_EQ(near("lane"), "lanes");
    EXPECT_EQ(near("x"), "");
    EXPECT_EQ(near(""), "");
    EXPECT_EQ(near("optimizer"), "");
    EXPECT_EQ(near(std::string(1000, 'p').c_str()), "");
}

TEST_F(BaseOption, PrintsEveryRow) {
    char *text = nullptr;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    crl_option_print(kTable, "  model.", out);
    fclose(out);
    const std::string printed = text;
    free(text);
    EXPECT_NE(printed.find("  model.schedule             order (choice: gpipe | 1f1b | "
                           "interleaved, default 1f1b)\n"),
              std::string::npos)
        << printed;
    EXPECT_NE(printed.find("wide (integer, at least 2, required)\n"), std::string::npos);
    EXPECT_NE(printed.find("where (text, default none)\n"), std::string::npos);
}

} // namespace
