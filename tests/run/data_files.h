// SPDX-License-Identifier: Apache-2.0
// Small data files for the tests of data sets, loader and tokenizers.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/run/dataset.h"

namespace data_files {

// A directory of its own, removed at the end.
class Directory {
  public:
    Directory() {
        std::string name = (std::filesystem::temp_directory_path() / "crl_data_XXXXXX").string();
        EXPECT_NE(mkdtemp(name.data()), nullptr);
        path_ = name;
    }
    ~Directory() {
        std::error_code code;
        std::filesystem::remove_all(path_, code);
    }
    Directory(const Directory &) = delete;
    Directory &operator=(const Directory &) = delete;

    std::string Path(const std::string &name) const { return path_ + "/" + name; }
    std::string Write(const std::string &name, const std::string &content) const {
        std::ofstream(Path(name), std::ios::binary) << content;
        return Path(name);
    }

  private:
    std::string path_;
};

inline std::string Little32(uint32_t value) {
    std::string text;
    for (int i = 0; i < 4; ++i) {
        text += static_cast<char>(value >> 8 * i);
    }
    return text;
}

inline std::string Big32(uint32_t value) {
    const std::string little = Little32(value);
    return {little.rbegin(), little.rend()};
}

inline std::string U16(const std::vector<int> &tokens) {
    std::string text;
    for (int token : tokens) {
        text += static_cast<char>(token);
        text += static_cast<char>(token >> 8);
    }
    return text;
}

inline std::string U32(const std::vector<uint32_t> &tokens) {
    std::string text;
    for (uint32_t token : tokens) {
        text += Little32(token);
    }
    return text;
}

inline std::string LlmcHeader(uint32_t magic, uint32_t version, uint32_t count) {
    return Little32(magic) + Little32(version) + Little32(count) + std::string(1012, '\0');
}

inline std::string Llmc(const std::vector<int> &tokens) {
    return LlmcHeader(20240520, 1, static_cast<uint32_t>(tokens.size())) + U16(tokens);
}

inline std::string Idx(const std::vector<uint32_t> &sizes, const std::string &data, int type = 8) {
    std::string text{'\0', '\0', static_cast<char>(type), static_cast<char>(sizes.size())};
    for (uint32_t size : sizes) {
        text += Big32(size);
    }
    return text + data;
}

inline std::string Gzip(const std::string &content) {
    z_stream stream{};
    EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    std::string packed(deflateBound(&stream, content.size()), '\0');
    stream.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(content.data()));
    stream.avail_in = static_cast<uInt>(content.size());
    stream.next_out = reinterpret_cast<Bytef *>(packed.data());
    stream.avail_out = static_cast<uInt>(packed.size());
    EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
    packed.resize(stream.total_out);
    deflateEnd(&stream);
    return packed;
}

// 0, 1, 2, ... below `limit`, then again.
inline std::vector<int> Counting(int count, int first = 0, int limit = 65536) {
    std::vector<int> tokens;
    for (int i = 0; i < count; ++i) {
        tokens.push_back((first + i) % limit);
    }
    return tokens;
}

// The config with its texts.
class Config {
  public:
    explicit Config(std::vector<std::string> paths, int64_t context = 0)
        : paths_(std::move(paths)) {
        for (const std::string &path : paths_) {
            items_.push_back(path.c_str());
        }
        config_.path = {static_cast<int>(items_.size()), items_.data()};
        config_.context = context;
    }
    Config(const Config &) = delete;
    Config &operator=(const Config &) = delete;
    const crl_dataset_config *get() const { return &config_; }

  private:
    std::vector<std::string> paths_;
    std::vector<const char *> items_;
    crl_dataset_config config_{};
};

// An open data set, closed at the end.
class Open {
  public:
    Open(const crl_dataset_format &format, const crl_dataset_config *config) : format_(&format) {
        EXPECT_EQ(format.open(&dataset_, config), CRL_STATUS_OK) << crl_error_message();
    }
    ~Open() { format_->close(dataset_); }
    Open(const Open &) = delete;
    Open &operator=(const Open &) = delete;
    crl_dataset *get() const { return dataset_; }
    int64_t Count() const { return format_->count(dataset_); }

    template <typename T>
    std::vector<T> Read(int field, const std::vector<int64_t> &ids, size_t elements) const {
        std::vector<T> out(ids.size() * elements);
        EXPECT_EQ(format_->read(dataset_, field, ids.data(), static_cast<int64_t>(ids.size()),
                                out.data()),
                  CRL_STATUS_OK)
            << crl_error_message();
        return out;
    }

  private:
    const crl_dataset_format *format_;
    crl_dataset *dataset_ = nullptr;
};

} // namespace data_files

extern "C" {
extern const crl_dataset_format crl_dataset_llmc;
extern const crl_dataset_format crl_dataset_u16;
extern const crl_dataset_format crl_dataset_idx;
}
