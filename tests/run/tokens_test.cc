// SPDX-License-Identifier: Apache-2.0
// The token formats llmc and u16: windows, shards, and what is refused.
#include <sys/stat.h>

#include "engine/base/alloc.h"
#include "tests/run/data_files.h"

namespace {

using namespace data_files;

TEST(RunTokens, WindowsAreExact) {
    Directory dir;
    const int count = 1000, context = 7;
    Config config({dir.Write("a.bin", Llmc(Counting(count, 64900)))}, context);
    Open data(crl_dataset_llmc, config.get());
    ASSERT_EQ(data.Count(), (count - 1) / context);
    const crl_field *field;
    ASSERT_EQ(crl_dataset_llmc.fields(data.get(), &field), 2);
    EXPECT_STREQ(field[0].name, "tokens");
    EXPECT_STREQ(field[1].name, "targets");
    EXPECT_EQ(field[0].spec.dtype, CRL_DTYPE_I32);
    EXPECT_EQ(field[1].spec.shape.dimensions, 1);
    EXPECT_EQ(field[1].spec.shape.size[0], context);
    for (int64_t i = 0; i < data.Count(); ++i) {
        const auto tokens = data.Read<int32_t>(0, {i}, context);
        const auto targets = data.Read<int32_t>(1, {i}, context);
        for (int64_t t = 0; t < context; ++t) {
            ASSERT_EQ(tokens[t], (64900 + i * context + t) % 65536);
            ASSERT_EQ(targets[t], (64900 + i * context + t + 1) % 65536);
        }
    }
}

TEST(RunTokens, CountAtTheEdges) {
    Directory dir;
    for (int count : {9, 16, 17, 18, 24, 25}) {
        Config config({dir.Write("a.bin", U16(Counting(count)))}, 8);
        Open data(crl_dataset_u16, config.get());
        EXPECT_EQ(data.Count(), (count - 1) / 8) << count;
        EXPECT_EQ(data.Read<int32_t>(1, {data.Count() - 1}, 8)[7], data.Count() * 8);
    }
}

TEST(RunTokens, ShardsFollowOneAnotherAndWindowsStayInside) {
    Directory dir;
    // 3, 0, 1, 0 and 2 samples; the last shard holds 32-bit tokens.
    std::string last = LlmcHeader(20240801, 7, 11);
    for (uint32_t i = 0; i < 11; ++i) {
        last += Little32(100000 + i);
    }
    Config config({dir.Write("0.bin", Llmc(Counting(19, 100))), dir.Write("1.bin", Llmc({1, 2, 3})),
                   dir.Write("2.bin", Llmc(Counting(6, 300))), dir.Write("3.bin", Llmc({9})),
                   dir.Write("4.bin", last)},
                  5);
    Open data(crl_dataset_llmc, config.get());
    ASSERT_EQ(data.Count(), 6);
    const auto tokens = data.Read<int32_t>(0, {5, 0, 3, 2, 4, 1}, 5);
    const std::vector<int> first = {100005, 100, 300, 110, 100000, 105};
    for (size_t i = 0; i < first.size(); ++i) {
        for (int t = 0; t < 5; ++t) {
            EXPECT_EQ(tokens[i * 5 + t], first[i] + t);
        }
    }
    EXPECT_EQ(data.Read<int32_t>(1, {5}, 5)[4], 100010);
}

TEST(RunTokens, ReadsWithoutAllocating) {
    Directory dir;
    Config config({dir.Write("a.bin", Llmc(Counting(100)))}, 4);
    Open data(crl_dataset_llmc, config.get());
    crl_alloc_watch watch{};
    crl_alloc_attach(&watch);
    data.Read<int32_t>(0, {0, 5, 3}, 4);
    crl_alloc_attach(nullptr);
    EXPECT_EQ(watch.allocations, 0);
}

TEST(RunTokens, RefusesSamplesOutsideAndFilesThatChanged) {
    Directory dir;
    const std::string path = dir.Write("a.bin", U16(Counting(100)));
    Config config({path}, 4);
    Open data(crl_dataset_u16, config.get());
    std::vector<int32_t> out(4);
    for (int64_t id : {int64_t{-1}, int64_t{24}}) {
        EXPECT_EQ(crl_dataset_u16.read(data.get(), 0, &id, 1, out.data()), CRL_STATUS_INVALID);
        EXPECT_EQ(std::string(crl_error_message()),
                  path + ": sample " + std::to_string(id) + " asked for, expected 0 to 23");
    }
    ASSERT_EQ(truncate(path.c_str(), 20), 0);
    const int64_t id = 20;
    EXPECT_EQ(crl_dataset_u16.read(data.get(), 0, &id, 1, out.data()), CRL_STATUS_IO);
    EXPECT_EQ(std::string(crl_error_message()), path + ": changed since it was opened");
    std::filesystem::remove(path);
    EXPECT_EQ(crl_dataset_u16.read(data.get(), 0, &id, 1, out.data()), CRL_STATUS_NOT_FOUND);
}

TEST(RunTokens, CheckReportsAndFindsTokensOutsideTheVocabulary) {
    Directory dir;
    std::vector<int> tokens = Counting(200000, 0, 1000);
    tokens[150001] = 5000;
    const std::string path = dir.Write("b.bin", Llmc(tokens));
    Config config({dir.Write("a.bin", Llmc(Counting(10))), path}, 4);
    Open data(crl_dataset_llmc, config.get());
    char report[256] = "";
    ASSERT_EQ(crl_dataset_llmc.check(data.get(), 0, report, sizeof report), CRL_STATUS_OK);
    EXPECT_STREQ(report, "2 files, 200010 tokens, 50001 samples of context 4, largest token 5000");
    EXPECT_EQ(crl_dataset_llmc.check(data.get(), 5001, report, sizeof report), CRL_STATUS_OK);
    EXPECT_EQ(crl_dataset_llmc.check(data.get(), 5000, report, sizeof report), CRL_STATUS_INVALID);
    EXPECT_EQ(std::string(crl_error_message()),
              path + ": token 150001 is 5000, expected below 5000");
}

TEST(RunTokens, OpenSurvivesEveryAllocationFailure) {
    Directory dir;
    Config config({dir.Write("a.bin", Llmc(Counting(20))), dir.Write("b.bin", Llmc(Counting(20)))},
                  4);
    crl_alloc_watch watch{};
    crl_alloc_attach(&watch);
    int64_t n = 0;
    crl_status status = CRL_STATUS_NOMEM;
    while (status != CRL_STATUS_OK) {
        watch.fail_at = ++n;
        crl_dataset *data = nullptr;
        status = crl_dataset_llmc.open(&data, config.get());
        ASSERT_TRUE(status == CRL_STATUS_OK || status == CRL_STATUS_NOMEM);
        ASSERT_EQ(data != nullptr, status == CRL_STATUS_OK);
        crl_dataset_llmc.close(data);
        ASSERT_EQ(watch.live_bytes, 0);
    }
    crl_alloc_attach(nullptr);
    EXPECT_EQ(n, 5); // the data set, its shards, two paths: then none fails
}

struct Broken {
    const char *name;
    const crl_dataset_format *format;
    std::string content;
    crl_status status;
    const char *message; // after "<path>: "
};

void ExpectRefused(const crl_dataset_format &format, const std::string &path, int64_t context,
                   crl_status status, const std::string &message) {
    Config config({path}, context);
    crl_dataset *data = nullptr;
    EXPECT_EQ(format.open(&data, config.get()), status);
    EXPECT_EQ(data, nullptr);
    EXPECT_EQ(std::string(crl_error_message()), message);
}

TEST(RunTokens, RefusesBrokenFiles) {
    const crl_dataset_format *llmc = &crl_dataset_llmc, *u16 = &crl_dataset_u16;
    const std::string good = Llmc(Counting(100));
    const Broken cases[] = {
        {"empty", llmc, "", CRL_STATUS_INVALID, "is empty, expected tokens"},
        {"short header", llmc, good.substr(0, 1023), CRL_STATUS_INVALID,
         "1023 bytes, expected a header of 1024 bytes"},
        {"header only", llmc, good.substr(0, 1024), CRL_STATUS_INVALID,
         "1024 bytes, expected 1224 for the 100 tokens of its header"},
        {"truncated", llmc, good.substr(0, 1223), CRL_STATUS_INVALID,
         "1223 bytes, expected 1224 for the 100 tokens of its header"},
        {"too long", llmc, good + "xx", CRL_STATUS_INVALID,
         "1226 bytes, expected 1224 for the 100 tokens of its header"},
        {"magic", llmc, LlmcHeader(20240521, 1, 9) + U16(Counting(9)), CRL_STATUS_INVALID,
         "magic number is 20240521, expected 20240520 or 20240801"},
        {"big-endian", llmc, std::string("\x01\x34\xd8\x88", 4) + std::string(1100, '\0'),
         CRL_STATUS_INVALID, "magic number is -1999096831, expected 20240520 or 20240801"},
        {"version", llmc, LlmcHeader(20240520, 2, 9) + U16(Counting(9)), CRL_STATUS_INVALID,
         "version is 2, expected 1"},
        {"version of u32", llmc, LlmcHeader(20240801, 1, 9) + std::string(36, '\0'),
         CRL_STATUS_INVALID, "version is 1, expected 7"},
        {"no tokens", llmc, LlmcHeader(20240520, 1, 0), CRL_STATUS_INVALID,
         "header counts 0 tokens, expected at least 1"},
        {"negative count", llmc, LlmcHeader(20240520, 1, 0x80000000u) + U16(Counting(9)),
         CRL_STATUS_INVALID, "header counts -2147483648 tokens, expected at least 1"},
        {"huge count", llmc, LlmcHeader(20240520, 1, 0x7fffffffu) + U16(Counting(9)),
         CRL_STATUS_INVALID,
         "1042 bytes, expected 4294968318 for the 2147483647 tokens of its header"},
        {"u16 as u32", llmc, LlmcHeader(20240801, 7, 10) + U16(Counting(10)), CRL_STATUS_INVALID,
         "1044 bytes, expected 1064 for the 10 tokens of its header"},
        {"too few", llmc, Llmc(Counting(8)), CRL_STATUS_INVALID,
         "8 tokens, expected at least 9 for one sample of context 8"},
        {"empty u16", u16, "", CRL_STATUS_INVALID, "is empty, expected tokens"},
        {"odd u16", u16, "abc", CRL_STATUS_INVALID,
         "3 bytes, expected an even number for u16 tokens"},
        {"few u16", u16, "ab", CRL_STATUS_INVALID,
         "1 tokens, expected at least 9 for one sample of context 8"},
    };
    Directory dir;
    for (const Broken &broken : cases) {
        SCOPED_TRACE(broken.name);
        const std::string path = dir.Write("broken.bin", broken.content);
        ExpectRefused(*broken.format, path, 8, broken.status, path + ": " + broken.message);
    }
}

TEST(RunTokens, RefusesWhatIsNoFile) {
    Directory dir;
    const std::string missing = dir.Path("missing.bin"), folder = dir.Path("folder"),
                      pipe = dir.Path("pipe"), file = dir.Write("file", "x");
    std::filesystem::create_directory(folder);
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    for (const auto *format : {&crl_dataset_llmc, &crl_dataset_u16}) {
        ExpectRefused(*format, missing, 8, CRL_STATUS_NOT_FOUND, missing + ": no such file");
        ExpectRefused(*format, file + "/x", 8, CRL_STATUS_NOT_FOUND, file + "/x: no such file");
        ExpectRefused(*format, folder, 8, CRL_STATUS_INVALID,
                      folder + ": is a directory, expected a regular file");
        ExpectRefused(*format, pipe, 8, CRL_STATUS_INVALID,
                      pipe + ": is a pipe, expected a regular file");
        ExpectRefused(*format, "/dev/zero", 8, CRL_STATUS_INVALID,
                      "/dev/zero: is a character device, expected a regular file");
    }
}

TEST(RunTokens, RefusesUnreadableFiles) {
    if (geteuid() == 0) {
        GTEST_SKIP() << "root may read every file";
    }
    Directory dir;
    const std::string path = dir.Write("a.bin", Llmc(Counting(100)));
    ASSERT_EQ(chmod(path.c_str(), 0), 0);
    ExpectRefused(crl_dataset_llmc, path, 8, CRL_STATUS_IO,
                  path + ": cannot be opened: Permission denied");
}

TEST(RunTokens, RefusesTokensBeyondInt32) {
    Directory dir;
    const std::string path =
        dir.Write("a.bin", LlmcHeader(20240801, 7, 9) + U32({0, 1, 2, 3, 0x80000000u, 5, 6, 7, 8}));
    Config config({path}, 4);
    Open data(crl_dataset_llmc, config.get());
    const int64_t id = 1;
    std::vector<int32_t> out(4);
    EXPECT_EQ(crl_dataset_llmc.read(data.get(), 0, &id, 1, out.data()), CRL_STATUS_INVALID);
    EXPECT_EQ(std::string(crl_error_message()),
              path + ": token 4 is 2147483648, expected at most 2147483647");
}

TEST(RunTokens, RefusesBadConfigs) {
    Directory dir;
    const std::string path = dir.Write("a.bin", U16(Counting(100)));
    ExpectRefused(crl_dataset_u16, path, 0, CRL_STATUS_INVALID,
                  "dataset: context is 0, expected 1 to 2147483647");
    Config none({}, 8);
    crl_dataset *data = nullptr;
    EXPECT_EQ(crl_dataset_u16.open(&data, none.get()), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "dataset: no token files given, expected at least 1");
}

} // namespace
