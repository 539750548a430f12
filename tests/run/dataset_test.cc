// SPDX-License-Identifier: Apache-2.0
// Which format reads a file.
#include "tests/run/data_files.h"

namespace {

using namespace data_files;

const void *const formats[] = {
#define CRL_DATASET(name) &crl_dataset_##name,
#include "engine/run/datasets.def"
#undef CRL_DATASET
    nullptr,
};

std::string Found(const std::string &path, const char *name = "auto") {
    Config config({path}, 8);
    const crl_dataset_format *format = nullptr;
    if (crl_dataset_format_find(&format, formats, name, config.get()) != CRL_STATUS_OK) {
        return crl_error_message();
    }
    return format->name;
}

TEST(RunDataset, AutoRecognisesEveryFormat) {
    Directory dir;
    EXPECT_EQ(Found(dir.Write("a.bin", Llmc({1, 2, 3}))), "llmc");
    EXPECT_EQ(Found(dir.Write("a.tokens", LlmcHeader(20240801, 7, 0))), "llmc");
    EXPECT_EQ(Found(dir.Write("b.bin", U16({1, 2, 3}))), "u16");
    EXPECT_EQ(Found(dir.Write("c.bin", U16({1}))), "u16");
    EXPECT_EQ(Found(dir.Write("d.bin", std::string("\0\0\x08\x01", 4))), "u16");
    EXPECT_EQ(Found(dir.Write("train-images-idx3-ubyte", Idx({1, 2}, "ab"))), "idx");
    EXPECT_EQ(Found(dir.Write("labels.gz", Gzip(Idx({1}, "a")))), "idx");
}

TEST(RunDataset, AutoSaysWhatItCannotRead) {
    Directory dir;
    const std::string text = dir.Write("text.txt", "In the beginning"),
                      empty = dir.Write("empty.bin", ""), folder = dir.Path("");
    EXPECT_EQ(Found(text),
              text + ": not recognised as a data set, expected one of: llmc, idx, u16");
    EXPECT_EQ(Found(empty), empty + ": is empty, expected a data set");
    EXPECT_EQ(Found(folder), folder + ": is a directory, expected a regular file");
    EXPECT_EQ(Found(dir.Path("x.bin")), dir.Path("x.bin") + ": no such file");
    Config none({});
    const crl_dataset_format *format = nullptr;
    EXPECT_EQ(crl_dataset_format_find(&format, formats, "auto", none.get()), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "dataset: no files given, expected at least 1");
}

TEST(RunDataset, FindsByName) {
    EXPECT_EQ(Found("not looked at", "u16"), "u16");
    const std::string message = Found("not looked at", "lmc");
    EXPECT_NE(message.find("'lmc'"), std::string::npos) << message;
    EXPECT_NE(message.find("llmc, idx, u16"), std::string::npos) << message;
}

} // namespace
