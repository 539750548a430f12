/* SPDX-License-Identifier: Apache-2.0 */
/* The safetensors reader and writer against the format's description and a file of its reference
 * implementation (Python package safetensors 0.4, made with numpy.save). */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "engine/base/alloc.h"
#include "engine/run/safetensors.h"
#include "tests/run/scratch.h"

namespace {

std::string file_of(const std::string &header, const std::string &data) {
    std::string prefix;
    for (int i = 0; i < 8; ++i) {
        prefix += static_cast<char>(header.size() >> (8 * i) & 0xff);
    }
    return prefix + header + data;
}

struct Parsed {
    crl_status status;
    std::string message;
};

Parsed parse(const std::string &file) {
    crl_safetensors *opened = nullptr;
    const crl_status status = crl_safetensors_parse(&opened, "x.safetensors", file.data(),
                                                    file.size(), (int64_t)file.size());
    crl_safetensors_close(opened);
    return {status, status == CRL_STATUS_OK ? "" : crl_error_message()};
}

crl_safetensors_item item_of(const char *name, crl_dtype dtype, std::vector<int64_t> size) {
    crl_safetensors_item item = {};
    item.name = name;
    item.spec = {dtype, crl_shape_make((int)size.size(), size.data())};
    return item;
}

const char reference_header[] =
    "{\"__metadata__\":{\"who\":\"\xc3\xa9\",\"format\":\"np\"},"
    "\"a.w\":{\"dtype\":\"I64\",\"shape\":[2,3],\"data_offsets\":[0,48]},"
    "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[48,56]},"
    "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[56,56]},"
    "\"s\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[56,57]}}  ";

std::string reference_file() {
    const int64_t a[] = {0, 1, 2, 3, 4, 5};
    const float b[] = {1.5f, -2.0f};
    return file_of(reference_header, std::string((const char *)a, sizeof a) +
                                         std::string((const char *)b, sizeof b) + "\x07");
}

TEST(RunSafetensors, ReadsAFileOfTheReferenceImplementation) {
    Scratch scratch;
    const std::string path = scratch / "reference.safetensors";
    write_text(path, reference_file());
    crl_safetensors *file = nullptr;
    ASSERT_EQ(crl_safetensors_open(&file, path.c_str()), CRL_STATUS_OK) << crl_error_message();
    ASSERT_EQ(crl_safetensors_count(file), 4);
    EXPECT_STREQ(crl_safetensors_item_at(file, 0)->name, "a.w");
    EXPECT_STREQ(crl_safetensors_metadata(file, "who"), "\xc3\xa9");
    EXPECT_EQ(crl_safetensors_metadata(file, "none"), nullptr);
    EXPECT_EQ(crl_safetensors_find(file, "none"), nullptr);

    const crl_safetensors_item *a = crl_safetensors_find(file, "a.w");
    ASSERT_NE(a, nullptr);
    EXPECT_EQ(a->spec.dtype, CRL_DTYPE_I64);
    EXPECT_EQ(a->bytes, 48u);
    EXPECT_EQ(a->offset_bytes, 280);
    int64_t values[6] = {};
    ASSERT_EQ(crl_safetensors_read(file, a, values), CRL_STATUS_OK);
    EXPECT_EQ(values[5], 5);

    float b[2];
    ASSERT_EQ(crl_safetensors_read(file, crl_safetensors_find(file, "b"), b), CRL_STATUS_OK);
    EXPECT_EQ(b[1], -2.0f);
    unsigned char s = 0;
    ASSERT_EQ(crl_safetensors_read(file, crl_safetensors_find(file, "s"), &s), CRL_STATUS_OK);
    EXPECT_EQ(s, 7);
    EXPECT_EQ(crl_safetensors_find(file, "empty")->bytes, 0u);
    crl_safetensors_close(file);
}

TEST(RunSafetensors, WritesWhatItReads) {
    Scratch scratch;
    const std::string path = scratch / "out.safetensors";
    const crl_safetensors_item item[] = {item_of("z", CRL_DTYPE_F32, {3}),
                                         item_of("a \"quoted\" \xc3\xa9", CRL_DTYPE_U8, {}),
                                         item_of("none", CRL_DTYPE_BF16, {0, 7})};
    const char *metadata[] = {"format", "pt", "seed", "7", nullptr};
    const float z[] = {1, 2, 3};
    const unsigned char one = 9;
    crl_safetensors_writer *writer = nullptr;
    ASSERT_EQ(crl_safetensors_writer_create(&writer, path.c_str(), item, 3, metadata),
              CRL_STATUS_OK)
        << crl_error_message();
    ASSERT_EQ(crl_safetensors_writer_append(writer, z, 4), CRL_STATUS_OK);
    ASSERT_EQ(crl_safetensors_writer_append(writer, z + 1, 8), CRL_STATUS_OK);
    ASSERT_EQ(crl_safetensors_writer_append(writer, &one, 1), CRL_STATUS_OK);
    EXPECT_FALSE(std::filesystem::exists(path)) << "there before it is finished";
    ASSERT_EQ(crl_safetensors_writer_finish(writer), CRL_STATUS_OK) << crl_error_message();
    crl_safetensors_writer_destroy(writer);

    const std::string text = read_text(path);
    EXPECT_EQ((unsigned char)text[0] % 8, 0) << "header is not padded";
    crl_safetensors *file = nullptr;
    ASSERT_EQ(crl_safetensors_open(&file, path.c_str()), CRL_STATUS_OK) << crl_error_message();
    EXPECT_STREQ(crl_safetensors_metadata(file, "seed"), "7");
    float back[3];
    ASSERT_EQ(crl_safetensors_read(file, crl_safetensors_find(file, "z"), back), CRL_STATUS_OK);
    EXPECT_EQ(memcmp(back, z, sizeof z), 0);
    EXPECT_NE(crl_safetensors_find(file, item[1].name), nullptr);
    EXPECT_EQ(crl_safetensors_find(file, "none")->spec.dtype, CRL_DTYPE_BF16);
    crl_safetensors_close(file);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path()), {}), 1);
}

TEST(RunSafetensors, EmptyFileOfNoTensors) {
    Scratch scratch;
    const std::string path = scratch / "out.safetensors";
    crl_safetensors_writer *writer = nullptr;
    ASSERT_EQ(crl_safetensors_writer_create(&writer, path.c_str(), nullptr, 0, nullptr),
              CRL_STATUS_OK);
    ASSERT_EQ(crl_safetensors_writer_finish(writer), CRL_STATUS_OK);
    crl_safetensors_writer_destroy(writer);
    EXPECT_EQ(read_text(path), file_of("{}      ", ""));
    crl_safetensors *file = nullptr;
    ASSERT_EQ(crl_safetensors_open(&file, path.c_str()), CRL_STATUS_OK) << crl_error_message();
    EXPECT_EQ(crl_safetensors_count(file), 0);
    EXPECT_EQ(crl_safetensors_find(file, "a"), nullptr);
    crl_safetensors_close(file);
}

TEST(RunSafetensors, WriterRefusesTooMuchTooLittleAndTwice) {
    Scratch scratch;
    const std::string path = scratch / "out.safetensors";
    const crl_safetensors_item item[] = {item_of("a", CRL_DTYPE_F32, {2}),
                                         item_of("a", CRL_DTYPE_F32, {2})};
    const char data[9] = {};
    crl_safetensors_writer *writer = nullptr;
    ASSERT_EQ(crl_safetensors_writer_create(&writer, path.c_str(), item, 1, nullptr),
              CRL_STATUS_OK);
    EXPECT_EQ(crl_safetensors_writer_append(writer, data, 9), CRL_STATUS_INVALID);
    ASSERT_EQ(crl_safetensors_writer_append(writer, data, 7), CRL_STATUS_OK);
    EXPECT_EQ(crl_safetensors_writer_finish(writer), CRL_STATUS_INVALID);
    crl_safetensors_writer_destroy(writer);
    EXPECT_TRUE(std::filesystem::is_empty(scratch.path())) << "destroy leaves files behind";

    writer = nullptr;
    EXPECT_EQ(crl_safetensors_writer_create(&writer, path.c_str(), item, 2, nullptr),
              CRL_STATUS_INVALID);
    EXPECT_EQ(writer, nullptr);
    const crl_safetensors_item bad = item_of("\xff", CRL_DTYPE_F32, {2});
    EXPECT_EQ(crl_safetensors_writer_create(&writer, path.c_str(), &bad, 1, nullptr),
              CRL_STATUS_INVALID);
    const crl_safetensors_item huge = item_of("h", CRL_DTYPE_F32, {INT64_MAX, 4});
    EXPECT_EQ(crl_safetensors_writer_create(&writer, path.c_str(), &huge, 1, nullptr),
              CRL_STATUS_INVALID);
    EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(RunSafetensors, FullDiskLeavesNothing) {
    Scratch scratch;
    const std::string path = scratch / "out.safetensors";
    write_text(path, "old");
    const crl_safetensors_item item = item_of("a", CRL_DTYPE_F32, {1 << 16});
    const std::vector<char> data(4 << 16);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit before, small;
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 4096;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    crl_safetensors_writer *writer = nullptr;
    const crl_status created =
        crl_safetensors_writer_create(&writer, path.c_str(), &item, 1, nullptr);
    const crl_status written = created == CRL_STATUS_OK
                                   ? crl_safetensors_writer_append(writer, data.data(), data.size())
                                   : created;
    const std::string message = crl_error_message();
    crl_safetensors_writer_destroy(writer);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    EXPECT_EQ(created, CRL_STATUS_OK);
    EXPECT_EQ(written, CRL_STATUS_IO);
    EXPECT_NE(message.find("cannot be written"), std::string::npos) << message;
    EXPECT_EQ(read_text(path), "old");
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path()), {}), 1);
}

struct Broken {
    const char *header;
    const char *message;
};

TEST(RunSafetensors, RejectsBrokenHeaders) {
#define TENSOR(dtype, shape, offsets)                                                              \
    "{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}"
    const Broken broken[] = {
        {"", "does not begin with '{'"},
        {"[1]", "does not begin with '{'"},
        {" {}", "does not begin with '{'"},
        {"{} x", "header:1:"},
        {"{\"a\":" TENSOR("\"F32\"", "[2]", "[0,8]"), "header:1:"},
        {"{\"a\":1}", "tensor 'a' is no JSON object"},
        {"{\"a\":" TENSOR("\"F32\"", "[2]", "[0,8]") ",\"a\":" TENSOR("\"F32\"", "[0]",
                                                                      "[8,8]") "}",
         "uplicate"},
        {"{\"a\":" TENSOR("\"Q7\"", "[2]", "[0,8]") "}", "unknown element type 'Q7'"},
        {"{\"a\":" TENSOR("\"f32\"", "[2]", "[0,8]") "}", "unknown element type 'f32'"},
        {"{\"a\":" TENSOR("3", "[2]", "[0,8]") "}", "no text 'dtype'"},
        {"{\"a\":" TENSOR("\"F32\"", "2", "[0,8]") "}", "no list 'shape'"},
        {"{\"a\":" TENSOR("\"F32\"", "[2.0]", "[0,8]") "}", "size of dimension 0"},
        {"{\"a\":" TENSOR("\"F32\"", "[-2]", "[0,8]") "}", "size of dimension 0"},
        {"{\"a\":" TENSOR("\"F32\"", "[1,\"2\"]", "[0,8]") "}", "size of dimension 1"},
        {"{\"a\":" TENSOR("\"F32\"", "[1,1,1,1,1,1,2]", "[0,8]") "}", "7 dimensions"},
        {"{\"a\":" TENSOR("\"F32\"", "[99999999999999999999]", "[0,8]") "}", "header:1:"},
        {"{\"a\":" TENSOR("\"F32\"", "[4611686018427387904,4]", "[0,8]") "}", "overflow"},
        {"{\"a\":" TENSOR("\"F32\"", "[4294967296,4294967296,2]", "[0,8]") "}", "overflow"},
        {"{\"a\":" TENSOR("\"F32\"", "[2]", "[0]") "}", "no two 'data_offsets'"},
        {"{\"a\":" TENSOR("\"F32\"", "[2]", "[0,8,8]") "}", "no two 'data_offsets'"},
        {"{\"a\":" TENSOR("\"F32\"", "[2]", "[0,-8]") "}", "data_offsets[1]"},
        {"{\"a\":" TENSOR("\"F32\"", "[2]", "[0,8.0]") "}", "data_offsets[1]"},
        {"{\"a\":" TENSOR("\"F32\"", "[2]", "[8,0]") "}", "data_offsets are 8 to 0, expected 8"},
        {"{\"a\":" TENSOR("\"F32\"", "[1]", "[0,8]") "}", "expected 4 bytes for f32(1)"},
        {"{\"a\":" TENSOR("\"F32\"", "[3]", "[0,12]") "}", "ends at data byte 12, the file has 8"},
        {"{\"a\":" TENSOR("\"F32\"", "[1]", "[0,4]") "}", "has 8 bytes of data, expected 4"},
        {"{\"a\":" TENSOR("\"F32\"", "[1]", "[4,8]") "}", "begins at data byte 4, expected 0"},
        {"{\"a\":" TENSOR("\"F32\"", "[2]", "[0,8]") ",\"b\":" TENSOR("\"U8\"", "[4]", "[4,8]") "}",
         "begins at data byte 4, expected 8"},
        {"{\"__metadata__\":3,\"a\":" TENSOR("\"F32\"", "[2]", "[0,8]") "}", "__metadata__"},
        {"{\"__metadata__\":{\"k\":3},\"a\":" TENSOR("\"F32\"", "[2]", "[0,8]") "}",
         "__metadata__ 'k' is no text"},
        {"{\"a\\nb\":1}", "tensor 'a?b'"},
    };
#undef TENSOR
    for (const Broken &one : broken) {
        const Parsed got = parse(file_of(one.header, "12345678"));
        EXPECT_EQ(got.status, CRL_STATUS_INVALID) << one.header;
        EXPECT_NE(got.message.find(one.message), std::string::npos) << got.message;
        EXPECT_EQ(got.message.find('\n'), std::string::npos) << got.message;
        EXPECT_EQ(got.message.rfind("x.safetensors: ", 0), 0u) << got.message;
    }
}

TEST(RunSafetensors, RejectsSizesThatLie) {
    const std::string good = reference_file();
    ASSERT_EQ(parse(good).status, CRL_STATUS_OK) << crl_error_message();
    for (size_t bytes = 0; bytes < good.size(); ++bytes) {
        EXPECT_EQ(parse(good.substr(0, bytes)).status, CRL_STATUS_INVALID) << bytes;
    }
    EXPECT_EQ(parse(good + "x").status, CRL_STATUS_INVALID);
    std::string huge = good;
    huge[7] = '\x80';
    EXPECT_NE(parse(huge).message.find("expected at most 100000000"), std::string::npos);
}

TEST(RunSafetensors, MissingFilesAndDirectories) {
    Scratch scratch;
    crl_safetensors *file = nullptr;
    EXPECT_EQ(crl_safetensors_open(&file, (scratch / "none").c_str()), CRL_STATUS_NOT_FOUND);
    EXPECT_EQ(crl_safetensors_open(&file, scratch.path().c_str()), CRL_STATUS_INVALID);
    write_text(scratch / "short", "abc");
    EXPECT_EQ(crl_safetensors_open(&file, (scratch / "short").c_str()), CRL_STATUS_INVALID);
    EXPECT_EQ(file, nullptr);
}

TEST(RunSafetensors, EveryFailingAllocationIsReported) {
    Scratch scratch;
    const std::string path = scratch / "x.safetensors";
    write_text(path, reference_file());
    int failures = 0;
    for (bool opened = false; !opened; ++failures) {
        crl_alloc_watch watch = {};
        crl_alloc_attach(&watch);
        watch.fail_at = failures + 1;
        crl_safetensors *file = nullptr;
        const crl_status status = crl_safetensors_open(&file, path.c_str());
        crl_safetensors_close(file);
        crl_alloc_attach(nullptr);
        opened = status == CRL_STATUS_OK;
        EXPECT_TRUE(opened || status == CRL_STATUS_NOMEM);
        EXPECT_EQ(watch.live_bytes, 0);
        ASSERT_LT(failures, 100);
    }
    EXPECT_GT(failures, 3);
}

TEST(RunSafetensors, ReadsPublishedWeights) {
    const std::string folder = CRL_SOURCE_DIR "/../shared/data/resnet-cifar10";
    if (!std::filesystem::is_directory(folder)) {
        GTEST_SKIP() << folder << " is not there";
    }
    for (const char *name : {"resnet20.safetensors", "resnet56.safetensors"}) {
        crl_safetensors *file = nullptr;
        ASSERT_EQ(crl_safetensors_open(&file, (folder + "/" + name).c_str()), CRL_STATUS_OK)
            << crl_error_message();
        EXPECT_GT(crl_safetensors_count(file), 50);
        for (int i = 0; i < crl_safetensors_count(file); ++i) {
            const crl_safetensors_item *item = crl_safetensors_item_at(file, i);
            std::vector<char> data(item->bytes);
            EXPECT_EQ(crl_safetensors_read(file, item, data.data()), CRL_STATUS_OK);
            EXPECT_EQ(crl_safetensors_find(file, item->name), item);
        }
        crl_safetensors_close(file);
    }
}

} // namespace
