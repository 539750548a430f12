// SPDX-License-Identifier: Apache-2.0
// Broken data files and checkpoints: training refuses each with one line that says what is wrong
// with which file, on one rank and on 2 x 2, and leaves the checkpoints of the run as they were.
#include <gtest/gtest.h>

#include <functional>

#include "tests/layouts/job.h"

namespace {

using data_files::Big32;
using data_files::Idx;
using data_files::Little32;
using data_files::Llmc;
using data_files::U16;
using job::Sets;
using job::Width;

// What a file or folder is to become, and a part of the message it must give.
struct Broken {
    const char *name;
    std::function<void(const std::string &path)> make;
    const char *says;
};

std::string Replace(std::string text, const std::string &from, const std::string &to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << "no '" << from << "' in " << text.substr(0, 200);
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

class FaultsData : public testing::Test {
  protected:
    // Names and contents of everything below `folder`.
    static std::map<std::string, std::string> Contents(const std::string &folder) {
        std::map<std::string, std::string> contents;
        for (const auto &entry : std::filesystem::recursive_directory_iterator(folder)) {
            contents[entry.path().string()] =
                entry.is_regular_file() ? read_text(entry.path().string()) : "";
        }
        return contents;
    }

    void Refused(const Sets &sets, const std::string &says) const {
        for (const Sets &width : {Width(1, 1), Width(2, 2)}) {
            const job::Outcome outcome = job::Train(sets + width);
            EXPECT_NE(outcome.status, CRL_STATUS_OK) << width.Text();
            EXPECT_NE(outcome.status, CRL_STATUS_INTERNAL) << width.Text() << outcome.message;
            EXPECT_NE(outcome.status, CRL_STATUS_TIMEOUT) << width.Text() << outcome.message;
            EXPECT_NE(outcome.message.find(says), std::string::npos)
                << width.Text() << "expected: " << says << "\nactual:   " << outcome.message;
            EXPECT_EQ(outcome.message.find('\n'), std::string::npos) << outcome.message;
        }
    }

    static void RemoveAll(const std::string &path) {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }

    Scratch scratch_;
};

std::function<void(const std::string &)> Content(const std::string &text) {
    return [text](const std::string &path) { write_text(path, text); };
}

TEST_F(FaultsData, TokenFiles) {
    const std::string good = Llmc(job::Tokens(71 * 16 + 1, 61));
    const auto header = [&good](int word, uint32_t value) {
        return Content(std::string(good).replace(size_t(word) * 4, 4, Little32(value)));
    };
    std::vector<int> outside = job::Tokens(71 * 16 + 1, 61);
    outside[40] = 61;
    const std::vector<Broken> cases = {
        {"nothing there", [](const std::string &) {}, "no such file"},
        {"empty", Content(""), "tokens.bin"},
        {"a folder", [](const std::string &path) { std::filesystem::create_directory(path); },
         "expected a regular file"},
        {"half a header", Content(good.substr(0, 512)), "expected a header of 1024 bytes"},
        {"header only", Content(good.substr(0, 1024)), "expected 3298 for the 1137 tokens"},
        {"one byte short", Content(good.substr(0, good.size() - 1)), "3297 bytes, expected 3298"},
        {"one byte long", Content(good + "x"), "3299 bytes, expected 3298"},
        {"wrong version", header(1, 9), "version is 9, expected 1"},
        {"no tokens", header(2, 0), "expected at least 1"},
        {"negative count", header(2, 0xffffffffu), "expected at least 1"},
        {"huge count", header(2, 0x7fffffffu), "expected"},
        {"wrong magic, odd size", Content("abc" + std::string(1024, 'x')), "tokens.bin"},
        {"magic of a model", Content(Little32(20240326) + std::string(4000, '\0')), ""},
        {"one sample less than one", Content(Llmc(job::Tokens(16, 61))),
         "16 tokens, expected at least 17"},
        {"token outside the vocabulary", Content(Llmc(outside)), "is 61, expected 0 to 60"},
        {"raw tokens outside the vocabulary",
         Content(U16({60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78})),
         "expected 0 to 60"},
    };
    for (const Broken &broken : cases) {
        SCOPED_TRACE(broken.name);
        const Sets sets = job::Gpt(scratch_);
        RemoveAll(scratch_ / "tokens.bin");
        broken.make(scratch_ / "tokens.bin");
        Refused(sets, broken.says);
        EXPECT_FALSE(std::filesystem::exists(scratch_ / "run/checkpoints/latest"));
    }
}

TEST_F(FaultsData, ImageFiles) {
    job::WriteImages(scratch_, 20);
    const std::string images = read_text(scratch_ / "images"),
                      labels = read_text(scratch_ / "labels");
    const std::string packed = data_files::Gzip(images);
    std::string label_outside = labels;
    label_outside[8 + 3] = 10;
    std::string damaged = packed;
    damaged[packed.size() / 2] = char(damaged[packed.size() / 2] ^ 0x55);
    const std::vector<Broken> cases = {
        {"empty", Content(""), "images"},
        {"wrong magic", Content("\x01\x02" + images.substr(2)), "images"},
        {"element type", Content(Idx({20, 28, 28}, std::string(20 * 784, '\0'), 0x0d)), "0x0d"},
        {"cut", Content(images.substr(0, 1000)), "expected 15680"},
        {"too long", Content(images + "x"), "expected 15680"},
        {"another shape", Content(Idx({20, 14, 14}, std::string(20 * 196, '\0'))), "images"},
        {"another count", Content(Idx({19, 28, 28}, std::string(19 * 784, '\0'))), "expected 19"},
        {"sizes overflow",
         Content(std::string{'\0', '\0', 8, 4} + Big32(0xffffffffu) + Big32(0xffffffffu) +
                 Big32(0xffffffffu) + Big32(16)),
         "overflow"},
        {"no images", Content(Idx({0, 28, 28}, "")), "0, expected at least 1"},
        {"cut gzip", Content(packed.substr(0, packed.size() / 2)), "images"},
        {"damaged gzip", Content(damaged), "images"},
    };
    const Sets sets = job::Mlp(scratch_, scratch_ / "images", scratch_ / "labels") +
                      Sets{{"train.global_batch", "8"}, {"train.micro_batch", "2"}};
    for (const Broken &broken : cases) {
        SCOPED_TRACE(broken.name);
        RemoveAll(scratch_ / "images");
        broken.make(scratch_ / "images");
        Refused(sets, broken.says);
    }
    write_text(scratch_ / "images", images);
    write_text(scratch_ / "labels", label_outside);
    Refused(sets, "is 10, expected 0 to 9");
    Refused(sets + Sets{{"data.train", "[" + (scratch_ / "images") + "]"}}, "expected 2");
}

// -- checkpoints ----------------------------------------------------------------------------------

class FaultsCheckpoint : public FaultsData {
  protected:
    void SetUp() override {
        sets_ = job::Gpt(scratch_) + Sets{{"train.steps", "2"}, {"train.checkpoint_every", "1"}};
        ASSERT_EQ(job::Train(sets_).status, CRL_STATUS_OK) << crl_error_message();
        sets_ += Sets{{"train.steps", "4"}};
        good_ = scratch_ / "run/checkpoints/step-00000002";
        model_ = read_text(good_ + "/model.safetensors");
        state_ = read_text(good_ + "/optimizer.safetensors");
        facts_ = read_text(good_ + "/state.json");
        ASSERT_FALSE(model_.empty());
    }

    static uint64_t HeaderBytes(const std::string &file) {
        uint64_t bytes;
        memcpy(&bytes, file.data(), 8);
        return bytes;
    }
    // The same file with another header; what is in the data stays.
    static std::string Reheaded(const std::string &file, const std::string &from,
                                const std::string &to) {
        const std::string header = Replace(file.substr(8, HeaderBytes(file)), from, to);
        const uint64_t bytes = header.size();
        return std::string(reinterpret_cast<const char *>(&bytes), 8) + header +
               file.substr(8 + HeaderBytes(file));
    }
    // The same file with another value of its first element.
    static std::string With(std::string file, uint32_t bits) {
        return file.replace(8 + HeaderBytes(file), 4, Little32(bits));
    }
    static std::string Sized(std::string file, uint64_t header_bytes) {
        return file.replace(0, 8, std::string(reinterpret_cast<const char *>(&header_bytes), 8));
    }

    Sets sets_;
    std::string good_, model_, state_, facts_;
};

std::function<void(const std::string &)> File(const char *name, const std::string &text) {
    return [=](const std::string &path) { write_text(path + "/" + name, text); };
}

std::function<void(const std::string &)> Without(const char *name) {
    return [=](const std::string &path) { std::filesystem::remove(path + "/" + name); };
}

TEST_F(FaultsCheckpoint, IsRefusedAndNothingElseChanges) {
    const char *const model = "model.safetensors", *const state = "optimizer.safetensors";
    const auto facts = [this](const std::string &from, const std::string &to) {
        return File("state.json", Replace(facts_, from, to));
    };
    const std::vector<Broken> cases = {
        {"model missing", Without(model), "model.safetensors"},
        {"model empty", File(model, ""), "model.safetensors"},
        {"model's header cut", File(model, model_.substr(0, 100)), "model.safetensors"},
        {"model's data cut", File(model, model_.substr(0, model_.size() - 4)), "model.safetensors"},
        {"model too long", File(model, model_ + "abcd"), "model.safetensors"},
        {"no safetensors", File(model, std::string(5000, 'x')), "model.safetensors"},
        {"header size 2^63", File(model, Sized(model_, uint64_t(1) << 63)), "model.safetensors"},
        {"header size -1", File(model, Sized(model_, ~uint64_t(0))), "model.safetensors"},
        {"header is no JSON", File(model, Reheaded(model_, "{", "[")), "model.safetensors"},
        {"shape overflows", File(model, Reheaded(model_, "[61,32]", "[4611686018427387904,32]")),
         "model.safetensors"},
        {"negative size", File(model, Reheaded(model_, "[61,32]", "[-61,-32]")),
         "model.safetensors"},
        {"other shape", File(model, Reheaded(model_, "[61,32]", "[32,61]")),
         "'wte.token' has shape (32,61), expected (61,32)"},
        {"other type", File(model, Reheaded(model_, "F32", "I32")), "has type i32, expected f32"},
        {"other name", File(model, Reheaded(model_, "wte.token", "wte.tokem")),
         "'wte.token' is missing"},
        {"nan", File(model, With(model_, 0x7fc00000u)), "is nan"},
        {"infinity", File(model, With(model_, 0x7f800000u)), "is inf"},
        {"state missing", Without(state), "optimizer.safetensors"},
        {"state cut", File(state, state_.substr(0, state_.size() / 2)), "optimizer.safetensors"},
        {"state's nan", File(state, With(state_, 0xffc00000u)), "is nan"},
        {"state is the model", File(state, model_), "'wte.token.m' is missing"},
        {"facts empty", File("state.json", ""), "state.json"},
        {"facts are garbage", File("state.json", "{\"step\": 2,,"), "state.json"},
        {"facts are a list", File("state.json", "[1, 2]"), "state.json: is no JSON object"},
        {"facts cut", File("state.json", facts_.substr(0, facts_.size() / 2)), "state.json"},
        {"no step", facts("\"step\"", "\"stop\""), "step"},
        {"step is text", facts("\"step\": 2", "\"step\": \"2\""), "step"},
        {"step is negative", facts("\"step\": 2", "\"step\": -2"), "step"},
        {"step is beyond an integer", facts("\"step\": 2", "\"step\": 99999999999999999999"),
         "state.json"},
        {"another seed", facts("\"seed\": 1", "\"seed\": 5"), "seed 5, config has 1"},
        {"another batch", facts("\"global_batch\": 16", "\"global_batch\": 8"),
         "global_batch 8, config has 16"},
        {"another micro-batch", facts("\"micro_batch\": 2", "\"micro_batch\": 4"),
         "micro_batch 4, config has 2"},
        {"a format to come", facts("\"format\": 1", "\"format\": 7"), "format 7, expected 1"},
    };
    const auto before = Contents(scratch_ / "run");
    const std::string broken_at = scratch_ / "broken";
    for (const Broken &broken : cases) {
        SCOPED_TRACE(broken.name);
        RemoveAll(broken_at);
        std::filesystem::copy(good_, broken_at);
        broken.make(broken_at);
        Refused(sets_ + Sets{{"run.resume", broken_at}}, broken.says);
        EXPECT_EQ(Contents(scratch_ / "run") == before, true) << "the run's files changed";
    }
}

TEST_F(FaultsCheckpoint, OfAnotherModelOrOptimizer) {
    const auto before = Contents(scratch_ / "run");
    const Sets resume = {{"run.resume", good_}};
    Refused(sets_ + resume + Sets{{"model.channels", "64"}}, "expected (61,64)");
    Refused(sets_ + resume + Sets{{"model.layers", "5"}}, "is missing");
    Refused(sets_ + resume + Sets{{"model.layers", "3"}}, "is not part of the model");
    Refused(sets_ + Sets{{"run.resume", scratch_ / "nowhere"}}, "nowhere");
    Refused(sets_ + Sets{{"run.resume", scratch_ / "tokens.bin"}}, "tokens.bin");
    Refused(sets_ + Sets{{"run.initialize", scratch_ / "nowhere"}}, "nowhere");
    Sets sgd = sets_ + resume + Sets{{"optimizer.type", "sgd"}, {"optimizer.momentum", "0.9"}};
    Refused(sgd, "step-00000002");
    EXPECT_EQ(Contents(scratch_ / "run") == before, true) << "the run's files changed";
}

// The newest one is broken: auto goes back to the one before, which is complete.
TEST_F(FaultsCheckpoint, AutoPassesOverABrokenOne) {
    write_text(good_ + "/model.safetensors", model_.substr(0, model_.size() / 2));
    const job::Outcome outcome = job::Train(sets_ + Width(2, 1) + Sets{{"run.resume", "auto"}});
    ASSERT_EQ(outcome.status, CRL_STATUS_OK) << outcome.message;
    EXPECT_EQ(outcome.loss.size(), 3u); // steps 2, 3, 4
}

// A value that is finite but makes the loss infinite is not trained on, nor saved.
TEST_F(FaultsCheckpoint, LossThatIsNotFinite) {
    const auto before = Contents(scratch_ / "run");
    RemoveAll(scratch_ / "broken");
    std::filesystem::copy(good_, scratch_ / "broken");
    std::string huge = model_;
    for (size_t at = 8 + HeaderBytes(model_); at + 4 <= huge.size(); at += 4) {
        huge.replace(at, 4, Little32(0x7f000000u)); // 1.7e38
    }
    write_text(scratch_ / "broken/model.safetensors", huge);
    Refused(sets_ + Sets{{"run.resume", scratch_ / "broken"}}, "expected a finite number");
    EXPECT_EQ(Contents(scratch_ / "run") == before, true) << "the run's files changed";
}

TEST_F(FaultsCheckpoint, CommandEndsWithAnErrorLine) {
    write_text(good_ + "/model.safetensors", "short");
    const job::Printed printed =
        job::Shell(job::Command(sets_ + Sets{{"run.resume", good_}}, scratch_ / "config.yaml"));
    EXPECT_NE(printed.code, 0);
    EXPECT_LT(printed.code, 128) << "a signal";
    EXPECT_NE(printed.text.find("model.safetensors"), std::string::npos) << printed.text;
}

} // namespace
