// SPDX-License-Identifier: Apache-2.0
// The IDX format: values, shapes, gzip, and what is refused.
#include "engine/run/data/idx.h"

#include "engine/base/alloc.h"
#include "engine/run/data/gzip.h"
#include "tests/run/data_files.h"

namespace {

using namespace data_files;

std::string Pixels(size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i) {
        text += static_cast<char>(i * 7 % 256);
    }
    return text;
}

const std::string &Images() {
    static const std::string content = Idx({5, 3, 4}, Pixels(60));
    return content;
}

const std::string &Labels() {
    static const std::string content = Idx({5}, std::string("\x03\x01\x04\x01\x05", 5));
    return content;
}

void ExpectValues(const std::string &images, const std::string &labels) {
    Config config({images, labels});
    Open data(crl_dataset_idx, config.get());
    ASSERT_EQ(data.Count(), 5);
    const crl_field *field;
    ASSERT_EQ(crl_dataset_idx.fields(data.get(), &field), 2);
    char text[64];
    EXPECT_STREQ(crl_tensor_text(&field[0].spec, text, sizeof text), "f32(3,4)");
    EXPECT_STREQ(field[0].name, "images");
    EXPECT_STREQ(field[1].name, "labels");
    EXPECT_EQ(field[1].spec.dtype, CRL_DTYPE_I32);
    EXPECT_EQ(field[1].spec.shape.dimensions, 0);
    const auto pixel = data.Read<float>(0, {4, 0}, 12);
    for (int i = 0; i < 12; ++i) {
        EXPECT_EQ(pixel[i], static_cast<float>((48 + i) * 7 % 256) / 255.0f);
        EXPECT_EQ(pixel[12 + i], static_cast<float>(i * 7 % 256) / 255.0f);
    }
    EXPECT_EQ(data.Read<int32_t>(1, {0, 1, 2, 3, 4}, 1), (std::vector<int32_t>{3, 1, 4, 1, 5}));
}

TEST(RunIdx, ReadsPlainAndPacked) {
    Directory dir;
    const std::string images = dir.Write("images", Images()),
                      labels = dir.Write("labels", Labels());
    ExpectValues(images, labels);
    ExpectValues(dir.Write("images.gz", Gzip(Images())), dir.Write("labels.gz", Gzip(Labels())));
    ExpectValues(images, dir.Path("labels.gz"));
}

TEST(RunIdx, ReadsPackedFilesOfSeveralMembers) {
    Directory dir;
    const std::string &all = Images();
    const std::string packed = Gzip(all.substr(0, 9)) + Gzip("") + Gzip(all.substr(9));
    ExpectValues(dir.Write("images.gz", packed), dir.Write("labels", Labels()));
}

void ExpectUnpacked(const std::string &packed, const std::string &content) {
    unsigned char *out = nullptr;
    size_t bytes = 0;
    ASSERT_EQ(crl_gzip_expand(&out, &bytes, "x", packed.data(), packed.size()), CRL_STATUS_OK);
    EXPECT_EQ(std::string(reinterpret_cast<char *>(out), bytes), content);
    crl_free(out);
}

TEST(RunIdx, UnpacksWhateverTheSizeHint) {
    const std::string large = Pixels(100000);
    ExpectUnpacked(Gzip(large), large); // packs so well that the hint is not believed
    std::string noise;
    for (uint32_t i = 0; i < 20000; ++i) {
        noise += static_cast<char>(i * i * 2654435761u >> 24);
    }
    ExpectUnpacked(Gzip(noise), noise);
    ExpectUnpacked(Gzip(noise) + Gzip("x"), noise + "x"); // the last member's hint is too small
    ExpectUnpacked(Gzip(""), "");
}

TEST(RunIdx, CheckReportsAndFindsLabelsOutside) {
    Directory dir;
    const std::string labels = dir.Write("labels", Labels());
    Config config({dir.Write("images", Images()), labels});
    Open data(crl_dataset_idx, config.get());
    char report[256] = "";
    EXPECT_EQ(crl_dataset_idx.check(data.get(), 6, report, sizeof report), CRL_STATUS_OK);
    EXPECT_STREQ(report, "5 images f32(3,4), largest label 5");
    EXPECT_EQ(crl_dataset_idx.check(data.get(), 4, report, sizeof report), CRL_STATUS_INVALID);
    EXPECT_EQ(std::string(crl_error_message()), labels + ": label 2 is 4, expected below 4");
}

TEST(RunIdx, RefusesSamplesOutside) {
    Directory dir;
    const std::string images = dir.Write("images", Images());
    Config config({images, dir.Write("labels", Labels())});
    Open data(crl_dataset_idx, config.get());
    float out[12];
    const int64_t id = 5;
    EXPECT_EQ(crl_dataset_idx.read(data.get(), 0, &id, 1, out), CRL_STATUS_INVALID);
    EXPECT_EQ(std::string(crl_error_message()), images + ": sample 5 asked for, expected 0 to 4");
}

void ExpectRefused(const std::vector<std::string> &paths, crl_status status,
                   const std::string &message) {
    Config config(paths);
    crl_dataset *data = nullptr;
    EXPECT_EQ(crl_dataset_idx.open(&data, config.get()), status);
    EXPECT_EQ(data, nullptr);
    EXPECT_EQ(std::string(crl_error_message()), message);
}

std::string Flip(std::string text, size_t at) {
    text[at] = static_cast<char>(text[at] ^ 0x40);
    return text;
}

TEST(RunIdx, RefusesBrokenFiles) {
    const std::string good = Images(), packed = Gzip(Images());
    const size_t crc = packed.size() - 8;
    const std::string last = std::to_string(packed.size());
    const struct {
        const char *name;
        std::string content, message;
    } cases[] = {
        {"empty", "", "is empty, expected an IDX file"},
        {"three bytes", good.substr(0, 3), "3 bytes, expected an IDX header of 8 or more"},
        {"magic", "\x89PNG....", "begins with 89 50 4e 47, expected 00 00 08 01 to 06"},
        {"llm.c", Llmc({1, 2}), "begins with 88 d8 34 01, expected 00 00 08 01 to 06"},
        {"f32", Idx({5, 3}, std::string(60, 'x'), 0x0d),
         "element type is 0x0d, expected 0x08 (u8)"},
        {"no dimensions", Idx({}, "x"), "0 dimensions, expected 1 to 6"},
        {"many dimensions", Idx({1, 1, 1, 1, 1, 1, 1}, "x"), "7 dimensions, expected 1 to 6"},
        {"short header", good.substr(0, 15), "15 bytes, expected an IDX header of 16"},
        {"no data", good.substr(0, 16), "0 bytes of data, expected 60 for 5x3x4"},
        {"truncated", good.substr(0, 75), "59 bytes of data, expected 60 for 5x3x4"},
        {"too long", good + "x", "61 bytes of data, expected 60 for 5x3x4"},
        {"zero", Idx({0, 28, 28}, ""), "dimension 0 is 0, expected at least 1"},
        {"overflow", Idx({0xffffffffu, 0xffffffffu, 0xffffffffu}, "x"),
         "header's sizes overflow at dimension 1 of 4294967295"},
        {"overflow to zero", Idx({0x80000000u, 0x80000000u, 4}, ""),
         "header's sizes overflow at dimension 2 of 4"},
        {"huge", Idx({0xffffffffu, 0x7fffffffu}, "x"),
         "1 bytes of data, expected 9223372030412324865 for 4294967295x2147483647"},
        {"labels as images", Labels(),
         "1 dimension, expected 2 to 6 of images (labels come second)"},
        {"gz header only", packed.substr(0, 5), "gzip stream ends early, after 5 bytes"},
        {"gz truncated", packed.substr(0, 40), "gzip stream ends early, after 40 bytes"},
        {"gz without length", packed.substr(0, packed.size() - 1),
         "gzip stream ends early, after " + std::to_string(packed.size() - 1) + " bytes"},
        {"gz checksum", Flip(packed, crc),
         "gzip stream is damaged at byte " + std::to_string(crc + 4) + ": incorrect data check"},
        {"gz length", Flip(packed, crc + 4),
         "gzip stream is damaged at byte " + last + ": incorrect length check"},
        {"gz trailing", packed + "more",
         "gzip stream ends at byte " + last + ", expected " + std::to_string(packed.size() + 4)},
        {"gz of gz", Gzip(packed), "begins with 1f 8b 08 00, expected 00 00 08 01 to 06"},
        {"gz of nothing", Gzip(""), "0 bytes, expected an IDX header of 8 or more"},
        {"gz of truncated", Gzip(good.substr(0, 70)), "54 bytes of data, expected 60 for 5x3x4"},
    };
    Directory dir;
    const std::string labels = dir.Write("labels", Labels());
    for (const auto &broken : cases) {
        SCOPED_TRACE(broken.name);
        const std::string path = dir.Write("broken", broken.content);
        ExpectRefused({path, labels}, CRL_STATUS_INVALID, path + ": " + broken.message);
    }
}

TEST(RunIdx, RefusesFilesThatDoNotBelongTogether) {
    Directory dir;
    const std::string images = dir.Write("images", Images()),
                      labels = dir.Write("labels", Labels());
    const std::string four = dir.Write("four", Idx({4}, "abcd"));
    ExpectRefused({images, four}, CRL_STATUS_INVALID,
                  four + ": 4 labels, expected 5, one per image of " + images);
    ExpectRefused({images, images}, CRL_STATUS_INVALID,
                  images + ": 3 dimensions, expected 1 of labels");
    ExpectRefused({images}, CRL_STATUS_INVALID,
                  "dataset: 1 idx files given, expected 2: images, labels");
    ExpectRefused({images, labels, labels}, CRL_STATUS_INVALID,
                  "dataset: 3 idx files given, expected 2: images, labels");
    ExpectRefused({images, dir.Path("none")}, CRL_STATUS_NOT_FOUND,
                  dir.Path("none") + ": no such file");
    ExpectRefused({dir.Path(""), labels}, CRL_STATUS_INVALID,
                  dir.Path("") + ": is a directory, expected a regular file");
}

TEST(RunIdx, OpenSurvivesEveryAllocationFailure) {
    Directory dir;
    Config config({dir.Write("images.gz", Gzip(Idx({100, 10, 10}, Pixels(10000)))),
                   dir.Write("labels.gz", Gzip(Idx({100}, Pixels(100))))});
    crl_alloc_watch watch{};
    crl_alloc_attach(&watch);
    int64_t n = 0;
    crl_status status = CRL_STATUS_NOMEM;
    while (status != CRL_STATUS_OK) {
        watch.fail_at = ++n;
        crl_dataset *data = nullptr;
        status = crl_dataset_idx.open(&data, config.get());
        ASSERT_TRUE(status == CRL_STATUS_OK || status == CRL_STATUS_NOMEM) << crl_error_message();
        crl_dataset_idx.close(data);
        ASSERT_EQ(watch.live_bytes, 0);
    }
    crl_alloc_attach(nullptr);
    EXPECT_GT(n, 10);
}

} // namespace
