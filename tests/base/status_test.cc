// SPDX-License-Identifier: Apache-2.0
#include "engine/base/status.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

namespace {

crl_status Detect(int actual) {
    return CRL_FAIL(INVALID, "thing: is %d, expected %d", actual, 4);
}

crl_status Pass(int actual) {
    CRL_TRY(Detect(actual));
    return CRL_STATUS_OK;
}

crl_status PassOut(int actual, int *cleaned) {
    crl_status status = CRL_STATUS_OK;
    CRL_TRY_OUT(Pass(actual));
out:
    ++*cleaned;
    return status;
}

class BaseStatus : public ::testing::Test {
  protected:
    void SetUp() override {
        crl_error_clear();
        crl_error_set_rank(-1);
    }
};

TEST_F(BaseStatus, RecordsMessageRankAndFrames) {
    int cleaned = 0;
    crl_error_set_rank(3);
    EXPECT_EQ(PassOut(7, &cleaned), CRL_STATUS_INVALID);
    crl_error_set_rank(-1);
    const crl_error *error = crl_error_get();
    EXPECT_EQ(cleaned, 1);
    EXPECT_EQ(error->status, CRL_STATUS_INVALID);
    EXPECT_EQ(error->rank, 3);
    EXPECT_STREQ(error->message, "thing: is 7, expected 4");
    ASSERT_EQ(error->frames, 3);
    EXPECT_LT(error->frame[0].line, error->frame[1].line);
    EXPECT_LT(error->frame[1].line, error->frame[2].line);
}

TEST_F(BaseStatus, AFailureMayQuoteTheOneBefore) {
    EXPECT_EQ(Detect(1), CRL_STATUS_INVALID);
    EXPECT_EQ(CRL_FAIL(IO, "outer: %s", crl_error_message()), CRL_STATUS_IO);
    EXPECT_STREQ(crl_error_message(), "outer: thing: is 1, expected 4");
    EXPECT_EQ(crl_error_get()->frames, 1);
}

TEST_F(BaseStatus, CutsLongMessages) {
    const std::string text(2 * CRL_ERROR_MESSAGE_BYTES, 'x');
    EXPECT_EQ(CRL_FAIL(IO, "%s", text.c_str()), CRL_STATUS_IO);
    EXPECT_EQ(std::strlen(crl_error_message()), size_t(CRL_ERROR_MESSAGE_BYTES - 1));
}

TEST_F(BaseStatus, KeepsTheInnermostFrames) {
    EXPECT_EQ(Detect(1), CRL_STATUS_INVALID);
    for (int i = 0; i < 2 * CRL_ERROR_FRAMES; ++i) {
        crl_error_add_frame("outer.c", i);
    }
    EXPECT_EQ(crl_error_get()->frames, int(CRL_ERROR_FRAMES));
    EXPECT_STRNE(crl_error_get()->frame[0].file, "outer.c");
}

TEST_F(BaseStatus, SetReplacesAndClearEmpties) {
    auto error = std::make_unique<crl_error>();
    error->status = CRL_STATUS_COMM;
    error->rank = 5;
    std::strcpy(error->message, "peer 5: gone");
    crl_error_set(error.get());
    EXPECT_STREQ(crl_error_message(), "peer 5: gone");
    EXPECT_EQ(crl_error_get()->rank, 5);
    crl_error_set(crl_error_get());
    EXPECT_EQ(crl_error_get()->status, CRL_STATUS_COMM);
    crl_error_clear();
    EXPECT_EQ(crl_error_get()->status, CRL_STATUS_OK);
    EXPECT_STREQ(crl_error_message(), "");
}

TEST_F(BaseStatus, NamesEveryCode) {
    for (int i = CRL_STATUS_OK; i <= CRL_STATUS_INTERNAL; ++i) {
        EXPECT_STRNE(crl_status_name(crl_status(i)), "unknown status") << i;
    }
    EXPECT_STREQ(crl_status_name(crl_status(99)), "unknown status");
}

TEST_F(BaseStatus, AssertionsNameThePlace) {
    EXPECT_DEATH(CRL_ASSERT(1 == 2), "status_test.cc:[0-9]+: assertion failed: 1 == 2");
}

} // namespace
