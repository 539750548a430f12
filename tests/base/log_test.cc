// SPDX-License-Identifier: Apache-2.0
#include "engine/base/log.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

struct Sink {
    std::vector<std::string> lines;
    static void Write(void *sink, crl_log_level level, int rank, const char *line) {
        char text[256];
        crl_log_format(text, sizeof text, level, rank, line);
        static_cast<Sink *>(sink)->lines.push_back(text);
    }
};

TEST(BaseLog, FormatsLevelAndRank) {
    Sink sink;
    const crl_log log = {Sink::Write, &sink, CRL_LOG_INFO, 3};
    crl_log_write(&log, CRL_LOG_WARN, "lanes %d", 4);
    crl_log_write(&log, CRL_LOG_INFO, "step %d", 1);
    crl_log_write(&log, CRL_LOG_DEBUG, "dropped");
    EXPECT_EQ(sink.lines,
              (std::vector<std::string>{"[rank 3] warning: lanes 4\n", "[rank 3] step 1\n"}));
}

TEST(BaseLog, OneLinePerCall) {
    Sink sink;
    const crl_log log = {Sink::Write, &sink, CRL_LOG_INFO, -1};
    crl_log_write(&log, CRL_LOG_ERROR, "a\nb\n");
    crl_log_write(&log, CRL_LOG_INFO, "%s", "");
    EXPECT_EQ(sink.lines, (std::vector<std::string>{"error: a\n", "error: b\n", "\n"}));
}

TEST(BaseLog, EmptyLogDiscards) {
    const crl_log log = {};
    crl_log_write(&log, CRL_LOG_ERROR, "nobody hears");
    crl_log_write(nullptr, CRL_LOG_ERROR, "nobody hears");
}

TEST(BaseLog, CutLinesStillEnd) {
    char text[8];
    crl_log_format(text, sizeof text, CRL_LOG_INFO, -1, "0123456789");
    EXPECT_STREQ(text, "012345\n");
}

} // namespace
