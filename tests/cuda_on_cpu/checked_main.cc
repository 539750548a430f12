// SPDX-License-Identifier: Apache-2.0
// Runs tests on the emulation: after each of them nothing may have been found wrong, and nothing
// may be left of what it made.
#include <gtest/gtest.h>

#include "tests/cuda_on_cpu/cuda_on_cpu.h"

namespace {

class Checks : public testing::EmptyTestEventListener {
    void OnTestEnd(const testing::TestInfo &) override {
        EXPECT_EQ(cuda_on_cpu::take_problems(), "");
        EXPECT_EQ(cuda_on_cpu::what_lives(), "");
    }
};

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    testing::UnitTest::GetInstance()->listeners().Append(new Checks);
    return RUN_ALL_TESTS();
}
