// SPDX-License-Identifier: Apache-2.0
#include "tests/cli/command.h"

namespace {

using CliData = cli::Command;

TEST_F(CliData, TokenizesChecksAndCounts) {
    const auto text = folder / "t.txt", out = folder / "t.bin", held = folder / "v.bin";
    std::string content;
    for (int i = 0; i < 640; i++)
        content += i % 2 == 0 ? 'a' : 'b';
    cli::write_file(text, content);
    auto result =
        carole({"data", "tokenize", text, "--out", out, "--validation", held, "--fraction", "0.1"});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(std::filesystem::file_size(out), 1024u + 2 * 576);
    EXPECT_EQ(std::filesystem::file_size(held), 1024u + 2 * 64);
    result = carole({"data", "check", out, held, "--vocabulary", "256"});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_NE(result.out.find("valid llmc"), std::string::npos) << result.out;
    expect_failure(carole({"data", "check", out, "--vocabulary", "98"}), 1, "98");
    result = carole({"data", "entropy", out});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.out.rfind("0.6931 nats", 0), 0u) << result.out;
}

TEST_F(CliData, RejectsBrokenTokenFiles) {
    const auto file = folder / "x.bin";
    expect_failure(carole({"data", "check", file}), 1, "x.bin");
    std::string header(1024, '\0');
    const unsigned char magic[] = {0x88, 0xd8, 0x34, 0x01}; // 20240520
    std::copy(magic, magic + 4, header.begin());
    header[4] = 1;
    header[8] = 100;
    cli::write_file(file, header + std::string(50, '\0')); // truncated
    expect_failure(carole({"data", "check", file}), 1, "x.bin");
    header[4] = 9; // version
    cli::write_file(file, header + std::string(200, '\0'));
    expect_failure(carole({"data", "check", file}), 1, "version is 9");
    header[4] = 1;
    header[11] = '\x7f'; // overflowing count
    cli::write_file(file, header + std::string(200, '\0'));
    expect_failure(carole({"data", "check", file}), 1, "x.bin");
    cli::write_file(folder / "odd.bin", "abc");
    expect_failure(carole({"data", "check", folder / "odd.bin"}), 1, "odd.bin");
    expect_failure(carole({"data", "check", folder.path()}), 1, folder.path().string());
}

TEST_F(CliData, NothingIsWrittenWhenTokenizingFails) {
    const auto text = folder / "t.txt", out = folder / "t.bin";
    cli::write_file(text, "");
    expect_failure(carole({"data", "tokenize", text, "--out", out}), 1, "file is empty");
    EXPECT_FALSE(std::filesystem::exists(out));
    cli::write_file(text, "ab");
    expect_failure(carole({"data", "tokenize", text, "--out", out, "--validation", folder / "v.bin",
                           "--fraction", "0.1"}),
                   1, "too few");
    EXPECT_FALSE(std::filesystem::exists(out));
    expect_failure(carole({"data", "tokenize", text, "--out", out, "--tokenizer", "gpt3"}), 2,
                   "did you mean 'gpt2'?");
    expect_failure(carole({"data", "tokenize", text, "--out", out, "--tokenizer", "gpt2"}), 1,
                   "gpt2");
    expect_failure(carole({"data", "tokenize", text, "--out", folder / "no" / "t.bin"}), 1, "no");
    EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(CliData, EntropyIsOfTokens) {
    cli::write_file(folder / "x.bin", std::string(128, '\0'));
    EXPECT_NE(carole({"data", "entropy", folder / "x.bin"}).code, 0);
}

} // namespace
