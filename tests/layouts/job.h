// SPDX-License-Identifier: Apache-2.0
// Small training runs for tests: settings as a list of "section.key=value" texts, data written by
// the test, and what came out of the run. In this process (crl_train) or through the command.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "cli/builtins.h"
#include "engine/ir/schedule.h"
#include "engine/run/trainer.h"
#include "tests/run/data_files.h"
#include "tests/run/scratch.h"

namespace job {

// Settings by key; later ones replace earlier ones.
class Sets {
  public:
    Sets() = default;
    Sets(std::initializer_list<std::pair<const std::string, std::string>> values)
        : value_(values) {}
    Sets &operator+=(const Sets &more) {
        for (const auto &[key, value] : more.value_) {
            value_[key] = value;
        }
        return *this;
    }
    friend Sets operator+(Sets a, const Sets &b) { return a += b; }
    void Erase(const std::string &key) { value_.erase(key); }

    // "key=value" each.
    std::vector<std::string> Texts() const {
        std::vector<std::string> texts;
        for (const auto &[key, value] : value_) {
            texts.push_back(key + "=" + value);
        }
        return texts;
    }
    std::string Text() const {
        std::string all;
        for (const std::string &text : Texts()) {
            all += text + " ";
        }
        return all;
    }

  private:
    std::map<std::string, std::string> value_;
};

// Loaded settings, destroyed at the end.
class Settings {
  public:
    explicit Settings(const Sets &sets, const crl_registries *registries = crl_builtins()) {
        const std::vector<std::string> texts = sets.Texts();
        std::vector<const char *> lent;
        for (const std::string &text : texts) {
            lent.push_back(text.c_str());
        }
        status_ = crl_settings_load(&settings_, registries, nullptr, nullptr, lent.data(),
                                    int(lent.size()));
    }
    ~Settings() { crl_settings_destroy(settings_); }
    Settings(const Settings &) = delete;
    Settings &operator=(const Settings &) = delete;
    const crl_settings *get() const { return settings_; }
    crl_status status() const { return status_; }

  private:
    crl_settings *settings_ = nullptr;
    crl_status status_;
};

struct Outcome {
    crl_status status = CRL_STATUS_OK;
    std::string message; // of a failure
    int rank = -1;       // that failed first
    crl_run_result result = {};
    std::vector<double> loss; // by step

    // Everything that has to be equal, as bits.
    std::string Bits() const {
        std::string text;
        char number[40];
        for (double value : loss) {
            uint64_t bits;
            memcpy(&bits, &value, sizeof bits);
            snprintf(number, sizeof number, "%016llx ", static_cast<unsigned long long>(bits));
            text += number;
        }
        snprintf(number, sizeof number, "| %016llx",
                 static_cast<unsigned long long>(result.parameter_hash));
        return text + number;
    }
};

inline Outcome Train(const Sets &sets, const crl_registries *registries = crl_builtins()) {
    Outcome outcome;
    crl_error_clear();
    const Settings settings(sets, registries);
    crl_run_events events = {};
    events.context = &outcome.loss;
    events.stepped = [](void *context, const crl_step_report *report) {
        static_cast<std::vector<double> *>(context)->push_back(report->loss);
    };
    outcome.status = settings.status()
                         ? settings.status()
                         : crl_train(&outcome.result, settings.get(), registries, &events);
    if (outcome.status) {
        outcome.message = crl_error_message();
        outcome.rank = crl_error_get()->rank;
    }
    return outcome;
}

// What a command printed (both streams) and its exit code (128 + n for signal n).
struct Printed {
    std::string text;
    int code = -1;
};

inline Printed Shell(const std::string &command) {
    Printed printed;
    FILE *pipe = popen((command + " 2>&1").c_str(), "r");
    char part[4096];
    for (size_t n; pipe && (n = fread(part, 1, sizeof part, pipe)) > 0;) {
        printed.text.append(part, n);
    }
    const int status = pipe ? pclose(pipe) : -1;
    printed.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return printed;
}

inline std::string Quoted(const std::string &word) {
    return "'" + word + "'";
}

// `carole train` of these settings; `config` is a file to be written.
inline std::string Command(const Sets &sets, const std::string &config) {
    std::string command = std::string(CRL_BINARY_DIR "/carole train ") + config;
    write_text(config, "# all settings come from the command line\nrun:\n  threads: 1\n");
    for (const std::string &text : sets.Texts()) {
        command += " --set " + Quoted(text);
    }
    return command;
}

inline const char *MpirunEnvironment() {
    return "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ";
}

inline std::string Mpirun(int ranks, const std::string &options) {
    return "mpirun --oversubscribe --bind-to none -n " + std::to_string(ranks) + " " + options +
           " ";
}

// Tokens that look neither constant nor random: an arithmetic walk below `limit`.
inline std::vector<int> Tokens(int count, int limit) {
    std::vector<int> tokens;
    uint32_t state = 12345;
    for (int i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        tokens.push_back(int((state >> 24) % 7 + uint32_t(i) * 5) % limit);
    }
    return tokens;
}

// Images and labels as IDX files: classes differ by a bright row.
inline void WriteImages(const Scratch &scratch, int count) {
    std::string images, labels;
    uint32_t state = 777;
    for (int i = 0; i < count; i++) {
        const int label = i * 7 % 10;
        labels += char(label);
        for (int pixel = 0; pixel < 28 * 28; pixel++) {
            state = state * 1664525u + 1013904223u;
            images += char((pixel / 28) / 2 == label ? 200 : state >> 26);
        }
    }
    write_text(scratch / "images", data_files::Idx({uint32_t(count), 28, 28}, images));
    write_text(scratch / "labels", data_files::Idx({uint32_t(count)}, labels));
}

// A small GPT that has everything: four blocks, dropout, tied head, clipping, AdamW, warm-up and
// cosine. 71 samples in steps of 16: the fifth step of every epoch has 7, so its fourth micro-batch
// is half empty and the last four are all padding. Writes tokens.bin.
inline Sets Gpt(const Scratch &scratch) {
    write_text(scratch / "tokens.bin", data_files::Llmc(Tokens(71 * 16 + 1, 61)));
    return {{"model.type", "gpt"},
            {"model.layers", "4"},
            {"model.heads", "2"},
            {"model.channels", "32"},
            {"model.context", "16"},
            {"model.vocabulary", "61"},
            {"model.dropout", "0.1"},
            {"data.train", "[" + (scratch / "tokens.bin") + "]"},
            {"numerics.lanes", "4"},
            {"train.steps", "10"},
            {"train.global_batch", "16"},
            {"train.micro_batch", "2"},
            {"optimizer.type", "adamw"},
            {"optimizer.learning_rate", "0.01"},
            {"optimizer.rate_schedule", "cosine"},
            {"optimizer.warmup_steps", "3"},
            {"optimizer.weight_decay", "0.1"},
            {"optimizer.clip", "0.5"},
            {"comm.deadline", "60"},
            {"run.threads", "1"},
            {"run.directory", scratch / "run"}};
}

// A small MLP on two files of images and labels.
inline Sets Mlp(const Scratch &scratch, const std::string &images, const std::string &labels) {
    return {{"model.type", "mlp"},
            {"model.hidden", "[40, 24]"},
            {"model.dropout", "0.1"},
            {"data.train", "[" + images + ", " + labels + "]"},
            {"data.validation", "[" + images + ", " + labels + "]"},
            {"numerics.lanes", "4"},
            {"train.steps", "8"},
            {"train.global_batch", "48"},
            {"train.micro_batch", "8"},
            {"train.evaluate_batch", "16"},
            {"train.evaluate_steps", "2"},
            {"optimizer.learning_rate", "0.01"},
            {"run.threads", "1"},
            {"comm.deadline", "60"},
            {"run.directory", scratch / "run"}};
}

inline Sets Width(int pipeline, int data) {
    return {{"parallel.pipeline", std::to_string(pipeline)},
            {"parallel.data", std::to_string(data)}};
}

// Every registered schedule.
inline std::vector<const crl_schedule *> Schedules() {
    std::vector<const crl_schedule *> all;
    for (const void *const *at = crl_builtins()->schedules; *at; at++) {
        all.push_back(static_cast<const crl_schedule *>(*at));
    }
    return all;
}

// A schedule by name, with as many stages per position as it needs.
inline Sets Schedule(const std::string &name) {
    int each = 1;
    for (const crl_schedule *schedule : Schedules()) {
        each = name == schedule->name ? schedule->least_virtual : each;
    }
    return {{"parallel.schedule", name}, {"parallel.virtual_stages", std::to_string(each)}};
}

inline Sets Cuts(const std::string &cuts) {
    return {{"parallel.partitioner", "manual"}, {"parallel.cuts", cuts}};
}

} // namespace job
