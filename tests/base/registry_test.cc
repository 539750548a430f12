// SPDX-License-Identifier: Apache-2.0
#include "engine/base/registry.h"

#include <gtest/gtest.h>

namespace {

const crl_plugin kGpipe = {"gpipe", "all forward, then all backward"};
const crl_plugin k1f1b = {"1f1b", "one forward, one backward"};
const void *const kRegistry[] = {&kGpipe, &k1f1b, nullptr};
const void *const kEmpty[] = {nullptr};

TEST(BaseRegistry, FindsByName) {
    const void *found = nullptr;
    ASSERT_EQ(crl_registry_find(&found, kRegistry, "schedule", "1f1b"), CRL_STATUS_OK);
    EXPECT_EQ(found, &k1f1b);
}

TEST(BaseRegistry, UnknownNamesSuggestAndList) {
    const void *found = &kGpipe;
    EXPECT_EQ(crl_registry_find(&found, kRegistry, "schedule", "gpip"), CRL_STATUS_NOT_FOUND);
    EXPECT_STREQ(crl_error_message(),
                 "unknown schedule 'gpip', did you mean 'gpipe'? (choices: gpipe, 1f1b)");
    EXPECT_EQ(crl_registry_find(&found, kRegistry, "schedule", "zebra"), CRL_STATUS_NOT_FOUND);
    EXPECT_STREQ(crl_error_message(), "unknown schedule 'zebra' (choices: gpipe, 1f1b)");
    EXPECT_EQ(found, &kGpipe);
    EXPECT_EQ(crl_registry_find(&found, kEmpty, "layer", ""), CRL_STATUS_NOT_FOUND);
}

TEST(BaseRegistry, NamesAreCutToTheBuffer) {
    char text[8];
    crl_registry_names(kRegistry, text, sizeof text);
    EXPECT_STREQ(text, "gpipe, ");
    crl_registry_names(kEmpty, text, sizeof text);
    EXPECT_STREQ(text, "");
}

} // namespace
