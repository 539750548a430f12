// SPDX-License-Identifier: Apache-2.0
// The state machine of the loss scale.
#include "engine/run/loss_scale.h"

#include <gtest/gtest.h>

#include <string>

namespace {

void Step(crl_loss_scale *scale, bool finite, int times = 1) {
    for (int i = 0; i < times; i++) {
        ASSERT_EQ(crl_loss_scale_step(scale, finite), CRL_STATUS_OK) << crl_error_message();
    }
}

TEST(RunLossScale, DoublesAfterAWindowOfGoodSteps) {
    crl_loss_scale s = {1024, 3, 0, 0};
    Step(&s, true, 2);
    EXPECT_EQ(s.scale, 1024);
    Step(&s, true);
    EXPECT_EQ(s.scale, 2048);
    EXPECT_EQ(s.good, 0);
    Step(&s, true, 3);
    EXPECT_EQ(s.scale, 4096);
    EXPECT_EQ(s.skipped, 0);
}

TEST(RunLossScale, AnOverflowHalvesItAndTheWindowBeginsAnew) {
    crl_loss_scale s = {1024, 3, 0, 0};
    Step(&s, true, 2);
    Step(&s, false);
    EXPECT_EQ(s.scale, 512);
    EXPECT_EQ(s.skipped, 1);
    Step(&s, true, 2);
    EXPECT_EQ(s.scale, 512);
    Step(&s, true);
    EXPECT_EQ(s.scale, 1024);
}

TEST(RunLossScale, GoesOnWhereItWas) {
    crl_loss_scale whole = {1024, 3, 0, 0};
    Step(&whole, true, 2);
    crl_loss_scale rest = {whole.scale, 3, whole.good, whole.skipped};
    Step(&whole, true);
    Step(&rest, true);
    EXPECT_EQ(rest.scale, whole.scale);
    EXPECT_EQ(rest.good, whole.good);
}

TEST(RunLossScale, StaysBelowALimitAndDoesNotForgetToHalve) {
    crl_loss_scale s = {0x1p59, 1, 0, 0};
    Step(&s, true, 5);
    EXPECT_EQ(s.scale, 0x1p60);
    Step(&s, false);
    EXPECT_EQ(s.scale, 0x1p59);
}

TEST(RunLossScale, OneThatIsGivenStaysWhatItIs) {
    crl_loss_scale s = {8, 0, 0, 0};
    EXPECT_FALSE(crl_loss_scale_chooses(&s));
    Step(&s, true, 5000);
    EXPECT_EQ(s.scale, 8);
    s.window = 1;
    EXPECT_TRUE(crl_loss_scale_chooses(&s));
}

TEST(RunLossScale, GivesUpBelowOne) {
    crl_loss_scale s = {2, 2000, 0, 0};
    Step(&s, false);
    EXPECT_EQ(crl_loss_scale_step(&s, false), CRL_STATUS_INVALID);
    EXPECT_EQ(std::string(crl_error_message()), "gradients overflow with a loss scale of 1, "
                                                "expected finite ones; steps skipped: 2");
}

} // namespace
