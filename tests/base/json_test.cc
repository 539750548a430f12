// SPDX-License-Identifier: Apache-2.0
#include "engine/base/json.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace {

std::string Parse(json_t **out, const std::string &text) {
    return crl_json_parse(out, text.data(), text.size(), "meta") == CRL_STATUS_OK
               ? ""
               : crl_error_message();
}

TEST(BaseJson, ReadsTypedMembers) {
    json_t *root = nullptr;
    ASSERT_EQ(
        Parse(&root, R"({"step": 9007199254740993, "lr": 0.5, "n": 2, "name": "gpt", "x": null})"),
        "");
    int64_t step = 0;
    const char *name = nullptr;
    EXPECT_EQ(crl_json_get_int(&step, root, "step", "meta"), CRL_STATUS_OK);
    EXPECT_EQ(step, 9007199254740993);
    EXPECT_EQ(crl_json_get_text(&name, root, "name", "meta"), CRL_STATUS_OK);
    EXPECT_STREQ(name, "gpt");

    EXPECT_EQ(crl_json_get_int(&step, root, "name", "meta"), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "meta: 'name' is a string, expected an integer");
    EXPECT_EQ(crl_json_get_int(&step, root, "lr", "meta"), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "meta: 'lr' is a real number, expected an integer");
    EXPECT_EQ(crl_json_get_int(&step, root, "x", "meta"), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "meta: 'x' is null, expected an integer");
    EXPECT_EQ(crl_json_get_text(&name, root, "n", "meta"), CRL_STATUS_INVALID);
    EXPECT_EQ(crl_json_get_text(&name, root, "none", "meta"), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "meta: 'none' is missing");
    EXPECT_EQ(crl_json_get_text(&name, nullptr, "n", "meta"), CRL_STATUS_INVALID);
    EXPECT_EQ(step, 9007199254740993);
    json_decref(root);
}

TEST(BaseJson, RefusesBrokenTextWithItsPlace) {
    json_t *root = nullptr;
    for (const char *bad : {"", "{", "{\"a\":1,}", "[1,2", "{\"a\":1}x", "{'a':1}", "[01]",
                            "[1e999]", "{\"a\":\"\\ud800\"}", "[\"\xff\"]", "nul"}) {
        const std::string message = Parse(&root, bad);
        EXPECT_EQ(message.rfind("meta:", 0), 0u) << bad;
        EXPECT_EQ(message.find('\n'), std::string::npos) << bad;
        EXPECT_EQ(root, nullptr);
    }
    EXPECT_EQ(Parse(&root, "{\n \"a\": 1,\n \"a\": 2}").rfind("meta:3:", 0), 0u);
    EXPECT_NE(std::strstr(crl_error_message(), "duplicate"), nullptr);
    EXPECT_NE(Parse(&root, std::string(100000, '[')), "");
}

TEST(BaseJson, ArraysHaveNoMembers) {
    json_t *root = nullptr;
    int64_t value = 0;
    ASSERT_EQ(Parse(&root, "[1]"), "");
    EXPECT_EQ(crl_json_get_int(&value, root, "a", "meta"), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "meta: is an array, expected an object");
    json_decref(root);
}

TEST(BaseJson, LoadNamesTheFile) {
    json_t *root = nullptr;
    EXPECT_EQ(crl_json_load(&root, "/nonexistent/x.json"), CRL_STATUS_NOT_FOUND);
    EXPECT_NE(std::strstr(crl_error_message(), "/nonexistent/x.json"), nullptr);
}

} // namespace
