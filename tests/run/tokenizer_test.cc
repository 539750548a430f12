// SPDX-License-Identifier: Apache-2.0
#include "engine/run/tokenizer.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <thread>

#include "engine/base/alloc.h"
#include "engine/base/registry.h"
#include "tests/run/data_files.h"

namespace {

using data_files::Directory;

const char *const rank_file = CRL_SOURCE_DIR "/../shared/data/gpt2-bpe/gpt2.tiktoken";
const char *const texts = CRL_SOURCE_DIR "/../shared/data/text/";

#define NEEDS_SHARED(path)                                                                         \
    if (!std::filesystem::exists(path)) {                                                          \
        GTEST_SKIP() << path << " is not there";                                                   \
    }

std::string ReadFile(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

class Tokenizer {
  public:
    explicit Tokenizer(const crl_tokenizer_kind &kind, const char *path = nullptr) : kind_(&kind) {
        EXPECT_EQ(kind.open(&tokenizer_, path), CRL_STATUS_OK) << crl_error_message();
    }
    ~Tokenizer() { kind_->close(tokenizer_); }
    Tokenizer(const Tokenizer &) = delete;
    Tokenizer &operator=(const Tokenizer &) = delete;
    crl_tokenizer *get() const { return tokenizer_; }

    std::vector<int32_t> Encode(const std::string &text) const {
        int32_t *token = nullptr;
        size_t count = 0;
        EXPECT_EQ(kind_->encode(tokenizer_, text.data(), text.size(), &token, &count),
                  CRL_STATUS_OK)
            << crl_error_message();
        std::vector<int32_t> tokens(token, token + count);
        crl_free(token);
        return tokens;
    }
    std::string Decode(const std::vector<int32_t> &tokens) const {
        std::string text;
        for (int32_t token : tokens) {
            const char *piece = nullptr;
            size_t bytes = 0;
            EXPECT_EQ(kind_->decode(tokenizer_, token, &piece, &bytes), CRL_STATUS_OK);
            text.append(piece, bytes);
        }
        return text;
    }
    std::string EncodeError(const std::string &text) const {
        int32_t *token = nullptr;
        size_t count = 77;
        EXPECT_EQ(kind_->encode(tokenizer_, text.data(), text.size(), &token, &count),
                  CRL_STATUS_INVALID);
        EXPECT_EQ(token, nullptr);
        EXPECT_EQ(count, 77u);
        return crl_error_message();
    }

  private:
    const crl_tokenizer_kind *kind_;
    crl_tokenizer *tokenizer_ = nullptr;
};

std::string Base64(const std::string &bytes) {
    const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (size_t i = 0; i < bytes.size(); i += 3) {
        uint32_t bits = 0;
        for (size_t j = 0; j < 3; ++j) {
            bits =
                bits << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0);
        }
        for (size_t j = 0; j < 4; ++j) {
            text += i + j <= bytes.size() ? digits[bits >> (18 - 6 * j) & 63] : '=';
        }
    }
    return text;
}

// 50256 tokens made up for the tests: all bytes, then random joins of earlier tokens of the letters
// a, b, c and the blank, so that merges nest, then some that no text of the tests holds.
std::vector<std::string> MadeUpTokens(unsigned seed) {
    std::vector<std::string> tokens, joinable = {"a", "b", "c", " "};
    std::set<std::string> known;
    std::mt19937 random(seed);
    for (int i = 255; i >= 0; --i) {
        tokens.emplace_back(1, static_cast<char>(i));
    }
    while (tokens.size() < 2000) {
        const std::string token =
            joinable[random() % joinable.size()] + joinable[random() % joinable.size()];
        if (token.size() <= 24 && token.find(' ', 1) == std::string::npos &&
            known.insert(token).second) {
            tokens.push_back(token);
            joinable.push_back(token);
        }
    }
    while (tokens.size() < 50256) {
        tokens.push_back("#" + std::to_string(tokens.size()));
    }
    return tokens;
}

std::string RankFile(const std::vector<std::string> &tokens) {
    std::string content;
    for (size_t i = 0; i < tokens.size(); ++i) {
        content += Base64(tokens[i]) + " " + std::to_string(i) + "\n";
    }
    return content;
}

// The definition, step by step: the lowest pair, the leftmost of equals.
std::vector<int32_t> MergeSlowly(const std::map<std::string, int32_t> &rank,
                                 const std::string &piece) {
    std::vector<std::string> parts;
    for (char c : piece) {
        parts.emplace_back(1, c);
    }
    for (;;) {
        size_t best = 0;
        int32_t lowest = INT32_MAX;
        for (size_t i = 0; i + 1 < parts.size(); ++i) {
            const auto found = rank.find(parts[i] + parts[i + 1]);
            if (found != rank.end() && found->second < lowest) {
                lowest = found->second;
                best = i;
            }
        }
        if (lowest == INT32_MAX) {
            break;
        }
        parts[best] += parts[best + 1];
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    std::vector<int32_t> out;
    for (const std::string &part : parts) {
        out.push_back(rank.at(part));
    }
    return out;
}

TEST(RunTokenizer, RegistryHoldsBothKinds) {
    for (const char *name : {"bytes", "gpt2"}) {
        const void *kind = nullptr;
        ASSERT_EQ(crl_registry_find(&kind, crl_tokenizers, "tokenizer", name), CRL_STATUS_OK);
        EXPECT_STREQ(static_cast<const crl_tokenizer_kind *>(kind)->name, name);
    }
}

TEST(RunTokenizer, BytesAreTheirOwnTokens) {
    Tokenizer bytes(crl_tokenizer_bytes);
    EXPECT_EQ(crl_tokenizer_bytes.vocabulary(bytes.get()), 256);
    std::string all;
    for (int i = 0; i < 256; ++i) {
        all += static_cast<char>(i);
    }
    const auto tokens = bytes.Encode(all);
    ASSERT_EQ(tokens.size(), 256u);
    EXPECT_EQ(tokens[200], 200);
    EXPECT_EQ(bytes.Decode(tokens), all);
    EXPECT_TRUE(bytes.Encode("").empty());
    const char *piece;
    size_t size;
    EXPECT_EQ(crl_tokenizer_bytes.decode(bytes.get(), 256, &piece, &size), CRL_STATUS_NOT_FOUND);
    EXPECT_STREQ(crl_error_message(), "tokenizer bytes: token is 256, expected 0 to 255");
}

TEST(RunTokenizer, KnownEncodings) {
    NEEDS_SHARED(rank_file);
    Tokenizer gpt2(crl_tokenizer_gpt2, rank_file);
    EXPECT_EQ(crl_tokenizer_gpt2.vocabulary(gpt2.get()), 50257);
    // From the published implementation, tiktoken 0.14, with the same rank file.
    const struct {
        std::string text;
        std::vector<int32_t> tokens;
    } cases[] = {
        {"Hello, world!", {15496, 11, 995, 0}},
        {" hello world", {23748, 995}},
        {"In the beginning God created the heaven and the earth.",
         {818, 262, 3726, 1793, 2727, 262, 9538, 290, 262, 4534, 13}},
        {"I'll say they've said we're he'd it's I'm don't CAN'T",
         {40, 1183, 910, 484, 1053, 531, 356, 821, 339, 1549, 340, 338, 314, 1101, 836, 470, 15628,
          6, 51}},
        {"a  b   c\n\n  d \t e  ",
         {64, 220, 275, 220, 220, 269, 628, 220, 288, 220, 197, 304, 220, 220}},
        {"x = 12345678 + 3.14159;", {87, 796, 17031, 2231, 30924, 1343, 513, 13, 1415, 19707, 26}},
        {"na\xc3\xafve caf\xc3\xa9 \xe6\x9d\xb1\xe4\xba\xac \xf0\x9f\x99\x82",
         {2616, 38776, 40304, 10545, 251, 109, 12859, 105, 32485}},
        {"<|endoftext|>", {27, 91, 437, 1659, 5239, 91, 29}},
        {"\xc2\xa0\xe2\x80\x83\xe1\xa0\x8e x\xc2\x85y",
         {1849, 447, 225, 157, 254, 236, 2124, 126, 227, 88}},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
         {24794, 24794, 24794, 24794, 24794, 24794, 24794, 24794}},
        {"antidisestablishmentarianism Nebuchadnezzar",
         {415, 29207, 44390, 3699, 1042, 29837, 794, 324, 710, 3019, 283}},
        {" ", {220}},
        {"\n", {198}},
        {"\xc2\xbd \xe2\x85\xa7 \xd9\xa3", {23141, 2343, 227, 100, 18923, 96}},
    };
    for (const auto &known : cases) {
        EXPECT_EQ(gpt2.Encode(known.text), known.tokens) << known.text;
        EXPECT_EQ(gpt2.Decode(known.tokens), known.text);
    }
}

uint64_t Hash(const std::vector<int32_t> &tokens) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (int32_t token : tokens) {
        hash = (hash ^ static_cast<uint64_t>(token)) * 0x100000001b3u;
    }
    return hash;
}

TEST(RunTokenizer, WholeTextsEncodeAsPublished) {
    const struct {
        const char *name;
        size_t count;
        uint64_t hash; // of tiktoken's tokens
    } files[] = {
        {"tinyshakespeare.txt", 338025, 0xb547ad363c19676eu},
        {"wikitext-2-valid.txt", 258659, 0x401eab52e6652dd1u},
    };
    NEEDS_SHARED(rank_file);
    Tokenizer gpt2(crl_tokenizer_gpt2, rank_file);
    for (const auto &file : files) {
        NEEDS_SHARED(std::string(texts) + file.name);
        const std::string text = ReadFile(std::string(texts) + file.name);
        const auto tokens = gpt2.Encode(text);
        EXPECT_EQ(tokens.size(), file.count) << file.name;
        EXPECT_EQ(Hash(tokens), file.hash) << file.name;
        EXPECT_EQ(gpt2.Decode(tokens), text) << file.name;
    }
}

TEST(RunTokenizer, MergesAsTheDefinitionSays) {
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto made_up = MadeUpTokens(seed);
    std::map<std::string, int32_t> rank;
    for (size_t i = 0; i < made_up.size(); ++i) {
        rank[made_up[i]] = static_cast<int32_t>(i);
    }
    Directory dir;
    Tokenizer gpt2(crl_tokenizer_gpt2, dir.Write("ranks", RankFile(made_up)).c_str());
    std::mt19937 random(seed + 1);
    std::string text;
    std::vector<int32_t> expected;
    for (int i = 0; i < 1000; ++i) { // words of few letters come again, so that all paths are met
        std::string word = " ";
        const size_t length = random() % 10 == 0 ? 100 + random() % 200 : 1 + random() % 12;
        while (word.size() <= length) {
            word += static_cast<char>('a' + random() % 3);
        }
        text += word;
        if (rank.count(word)) {
            expected.push_back(rank[word]);
        } else {
            const auto tokens = MergeSlowly(rank, word);
            expected.insert(expected.end(), tokens.begin(), tokens.end());
        }
    }
    EXPECT_EQ(gpt2.Encode(text), expected);
    EXPECT_EQ(gpt2.Decode(expected), text);
}

TEST(RunTokenizer, AnyUnicodeTextComesBack) {
    NEEDS_SHARED(rank_file);
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    std::string text;
    for (int i = 0; i < 20000; ++i) {
        const uint32_t range[] = {0x80, 0x800, 0xd800, 0x110000};
        uint32_t c = random() % range[random() % 4];
        c = c >= 0xd800 && c < 0xe000 ? 0x20 : c;
        if (c < 0x80) {
            text += static_cast<char>(c);
        } else if (c < 0x800) {
            text += {static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
        } else if (c < 0x10000) {
            text += {static_cast<char>(0xe0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)),
                     static_cast<char>(0x80 | (c & 63))};
        } else {
            text += {static_cast<char>(0xf0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 63)),
                     static_cast<char>(0x80 | (c >> 6 & 63)), static_cast<char>(0x80 | (c & 63))};
        }
    }
    Tokenizer gpt2(crl_tokenizer_gpt2, rank_file);
    EXPECT_EQ(gpt2.Decode(gpt2.Encode(text)), text);
}

TEST(RunTokenizer, LongPiecesAreNotQuadratic) {
    NEEDS_SHARED(rank_file);
    Tokenizer gpt2(crl_tokenizer_gpt2, rank_file);
    // 300,000 bytes in one piece each: a quadratic merge would take an hour.
    for (const char *unit : {"a", " ", "!", "\xc3\xa9", "ab"}) {
        std::string text;
        while (text.size() < 300000) {
            text += unit;
        }
        EXPECT_EQ(gpt2.Decode(gpt2.Encode(text)), text) << unit;
    }
}

TEST(RunTokenizer, InvalidUtf8NamesTheByte) {
    Directory dir;
    Tokenizer gpt2(crl_tokenizer_gpt2, dir.Write("ranks", RankFile(MadeUpTokens(1))).c_str());
    EXPECT_EQ(gpt2.EncodeError("abc\xff"), "text: byte 3 is 0xff, expected valid UTF-8");
    EXPECT_EQ(gpt2.EncodeError("\xc0\xaf"), "text: byte 0 is 0xc0, expected valid UTF-8");
    EXPECT_EQ(gpt2.EncodeError("ab \xe2\x82"), "text: byte 3 is 0xe2, expected valid UTF-8");
    EXPECT_EQ(gpt2.EncodeError(std::string(5000, 'a') + "\xed\xa0\x80"),
              "text: byte 5000 is 0xed, expected valid UTF-8");
    EXPECT_EQ(gpt2.Encode(std::string("\0a", 2)).size(), 2u); // a zero byte is text
    EXPECT_TRUE(gpt2.Encode("").empty());
}

TEST(RunTokenizer, SpecialTokenIsDecodedButNeverMade) {
    Directory dir;
    Tokenizer gpt2(crl_tokenizer_gpt2, dir.Write("ranks", RankFile(MadeUpTokens(1))).c_str());
    EXPECT_EQ(gpt2.Decode({50256}), "<|endoftext|>");
    const auto tokens = gpt2.Encode("<|endoftext|>");
    EXPECT_EQ(tokens.size(), 13u);
    EXPECT_EQ(gpt2.Decode(tokens), "<|endoftext|>");
    const char *piece;
    size_t bytes;
    for (int32_t token : {-1, 50257}) {
        EXPECT_EQ(crl_tokenizer_gpt2.decode(gpt2.get(), token, &piece, &bytes),
                  CRL_STATUS_NOT_FOUND);
        EXPECT_EQ(std::string(crl_error_message()),
                  "tokenizer gpt2: token is " + std::to_string(token) + ", expected 0 to 50256");
    }
}

TEST(RunTokenizer, RefusesBrokenRankFiles) {
    const auto tokens = MadeUpTokens(1);
    const std::string good = RankFile(tokens);
    const auto line = [&](size_t number, const std::string &text) { // that line replaced
        std::string content;
        for (size_t i = 0; i < tokens.size(); ++i) {
            content += i + 1 == number ? text : Base64(tokens[i]) + " " + std::to_string(i);
            content += '\n';
        }
        return content;
    };
    auto no_byte = tokens;
    no_byte[255 - 0x41] = "AA";
    const struct {
        const char *name;
        std::string content, message; // after the path
    } cases[] = {
        {"empty", "", ": 0 lines, expected 50256 tokens"},
        {"truncated", good.substr(0, good.find("\n", 1000) + 1),
         ": 124 lines, expected 50256 tokens"},
        {"cut in bytes", good.substr(0, 1000), ":124: no rank, expected '<base64> <rank>'"},
        {"cut in a rank", good.substr(0, 1004), ":124: rank is '12', expected 123"},
        {"too long", good + "AAAA 50256\n", ": more than 50256 lines, expected that many tokens"},
        {"no rank", line(5, "+w=="), ":5: no rank, expected '<base64> <rank>'"},
        {"rank order", line(5, "+w== 5"), ":5: rank is '5', expected 4"},
        {"rank text", line(5, "+w== 4x"), ":5: rank is '4x', expected 4"},
        {"rank overflow", line(5, "+w== 18446744073709551620"),
         ":5: rank is '18446744073709551620', expected 4"},
        {"base64", line(5, "+w! 4"), ":5: '+w!' is not base64"},
        {"base64 digit", line(5, "+w!= 4"), ":5: '+w!=' is not base64"},
        {"base64 padding", line(5, "+=== 4"), ":5: '+===' is not base64"},
        {"no base64", line(5, " 4"), ":5: '' is not base64"},
        {"twice", line(5, "/w== 4"), ":5: same bytes as the token of rank 0"},
        {"no byte", RankFile(no_byte), ": no token for byte 0x41, expected one for each"},
    };
    Directory dir;
    for (const auto &broken : cases) {
        SCOPED_TRACE(broken.name);
        const std::string path = dir.Write("ranks", broken.content);
        crl_tokenizer *tokenizer = nullptr;
        EXPECT_EQ(crl_tokenizer_gpt2.open(&tokenizer, path.c_str()), CRL_STATUS_INVALID);
        EXPECT_EQ(std::string(crl_error_message()), path + broken.message);
        EXPECT_EQ(tokenizer, nullptr);
    }
    crl_tokenizer *tokenizer = nullptr;
    EXPECT_EQ(crl_tokenizer_gpt2.open(&tokenizer, nullptr), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(),
                 "tokenizer gpt2: no rank file given, expected a tiktoken file");
    EXPECT_EQ(crl_tokenizer_gpt2.open(&tokenizer, dir.Path("none").c_str()), CRL_STATUS_NOT_FOUND);
    EXPECT_NE(std::string(crl_error_message()).find(dir.Path("none")), std::string::npos);
}

TEST(RunTokenizer, SurvivesEveryAllocationFailure) {
    Directory dir;
    const std::string path = dir.Write("ranks", RankFile(MadeUpTokens(1)));
    const std::string text = "abc abcabcabc " + std::string(300, 'b') + std::string(500, '!');
    crl_alloc_watch watch{};
    crl_alloc_attach(&watch);
    crl_tokenizer *tokenizer = nullptr;
    for (int64_t n = 1; !tokenizer; ++n) {
        watch.fail_at = n;
        const crl_status status = crl_tokenizer_gpt2.open(&tokenizer, path.c_str());
        ASSERT_TRUE(status == CRL_STATUS_OK || status == CRL_STATUS_NOMEM) << crl_error_message();
        ASSERT_TRUE(tokenizer || watch.live_bytes == 0) << n;
    }
    watch.fail_at = 0;
    const int64_t open_bytes = watch.live_bytes;
    int32_t *token = nullptr;
    size_t count = 0;
    for (int64_t n = 1; !token; ++n) {
        watch.fail_at = n;
        const crl_status status =
            crl_tokenizer_gpt2.encode(tokenizer, text.data(), text.size(), &token, &count);
        ASSERT_TRUE(status == CRL_STATUS_OK || status == CRL_STATUS_NOMEM) << crl_error_message();
        ASSERT_TRUE(token || watch.live_bytes == open_bytes) << n;
    }
    watch.fail_at = 0;
    crl_free(token);
    crl_tokenizer_gpt2.close(tokenizer);
    EXPECT_EQ(watch.live_bytes, 0);
    crl_alloc_attach(nullptr);
    crl_tokenizer_gpt2.close(nullptr);
    crl_tokenizer_bytes.close(nullptr);
}

TEST(RunTokenizer, ThreadsMayEncodeAtTheSameTime) {
    Directory dir;
    Tokenizer gpt2(crl_tokenizer_gpt2, dir.Write("ranks", RankFile(MadeUpTokens(1))).c_str());
    std::string text;
    for (int i = 0; i < 500; ++i) {
        text += " " + std::string(static_cast<size_t>(i % 50), 'a') + "bc";
    }
    const auto expected = gpt2.Encode(text);
    std::vector<int32_t> found[4];
    std::vector<std::thread> threads;
    for (auto &result : found) {
        threads.emplace_back([&] { result = gpt2.Encode(text); });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    for (const auto &result : found) {
        EXPECT_EQ(result, expected);
    }
}

TEST(RunTokenizer, WrittenTokensAreReadBack) {
    Directory dir;
    const std::string path = dir.Path("out.bin");
    const std::vector<int32_t> tokens = {0, 65535, 50256, 7, 8, 9, 10, 11, 12};
    ASSERT_EQ(crl_tokens_write(path.c_str(), tokens.data(), tokens.size()), CRL_STATUS_OK);
    EXPECT_EQ(ReadFile(path), data_files::Llmc({tokens.begin(), tokens.end()}));
    data_files::Config config({path}, 4);
    data_files::Open data(crl_dataset_llmc, config.get());
    EXPECT_EQ(data.Read<int32_t>(1, {0, 1}, 4),
              std::vector<int32_t>(tokens.begin() + 1, tokens.end()));
}

TEST(RunTokenizer, WriteRefusesWhatU16CannotHoldAndKeepsTheOldFile) {
    Directory dir;
    const std::string path = dir.Write("out.bin", "old");
    for (int32_t token : {65536, -1}) {
        const std::vector<int32_t> tokens = {1, token};
        EXPECT_EQ(crl_tokens_write(path.c_str(), tokens.data(), 2), CRL_STATUS_INVALID);
        EXPECT_EQ(std::string(crl_error_message()),
                  path + ": token 1 is " + std::to_string(token) + ", expected 0 to 65535");
    }
    EXPECT_EQ(crl_tokens_write(path.c_str(), nullptr, 0), CRL_STATUS_INVALID);
    EXPECT_EQ(ReadFile(path), "old");
    const int32_t token = 1;
    EXPECT_NE(crl_tokens_write(dir.Path("none/out.bin").c_str(), &token, 1), CRL_STATUS_OK);
}

} // namespace
