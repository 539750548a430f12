/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/ir/toy_model.h"

#include <random>

#include "engine/base/alloc.h"

namespace {

std::string failure(const std::string &text) {
    crl_program *out = nullptr;
    EXPECT_EQ(crl_program_parse(&out, "file.csv", text.data(), text.size()), CRL_STATUS_INVALID);
    EXPECT_EQ(out, nullptr);
    EXPECT_EQ(std::string(crl_error_message()).find('\n'), std::string::npos);
    return crl_error_message();
}

} // namespace

TEST(IrProgramText, ReadsWhatItWrites) {
    const std::string text = "0F0,0F1,0B0,0B1\n1F0,1I0,1W0,1F1,1B1\n,\n";
    toy::program_ptr program = toy::parse(text);
    ASSERT_TRUE(program);
    EXPECT_EQ(program->positions, 3);
    EXPECT_EQ(program->stages, 2);
    EXPECT_EQ(program->micro_batches, 2);
    EXPECT_EQ(program->position[1].action[2].kind, CRL_ACTION_WEIGHT);
    EXPECT_EQ(toy::write(program, false), text);
}

TEST(IrProgramText, ToleratesBlanksCarriageReturnsAndEmptyCells) {
    const std::string text = "\xef\xbb\xbf 0F0 ,, 0F1\t,\r\n\r\n   \n1F0,1F1,,,\r\n\n";
    toy::program_ptr program = toy::parse(text);
    ASSERT_TRUE(program);
    EXPECT_EQ(toy::write(program, false), "0F0,0F1\n1F0,1F1\n");
    EXPECT_EQ(toy::write(toy::parse("0F0,0B0"), false), "0F0,0B0\n");
}

TEST(IrProgramText, NamesTheOffendingCell) {
    EXPECT_EQ(failure("0F0,0F1\n1F0,1Q1\n"),
              "file.csv:2:2: '1Q1' has no known action, expected F, B, I or W");
    EXPECT_EQ(failure("\n0F0,,F1\n"), "file.csv:2:3: 'F1' is no action, expected e.g. 0F3");
    EXPECT_EQ(failure("0F"), "file.csv:1:1: '0F' does not end in a micro-batch number");
    EXPECT_EQ(failure("0F1x"), "file.csv:1:1: '0F1x' does not end in a micro-batch number");
    EXPECT_EQ(failure("7"), "file.csv:1:1: '7' is no action, expected e.g. 0F3");
    EXPECT_EQ(failure("0F4294967297"),
              "file.csv:1:1: '0F4294967297' is out of range, expected numbers below 65535");
    EXPECT_EQ(failure(std::string("0F\0000", 4)),
              "file.csv:1:1: '0F?0' does not end in a micro-batch number");
    EXPECT_EQ(failure("0123456789012345678901234567890123456789"),
              "file.csv:1:1: '012345678901234567890123...' is no action, expected e.g. 0F3");
    EXPECT_EQ(failure(""), "file.csv: no actions, expected rows of cells such as 0F3");
    EXPECT_EQ(failure(",,\n,\n"), "file.csv: no actions, expected rows of cells such as 0F3");
    EXPECT_EQ(failure("60000F60000"),
              "file.csv: 60001 stages x 60001 micro-batches, expected at most 16777216");
}

TEST(IrProgramText, SurvivesGarbage) {
    const unsigned seed = 4;
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const char letters[] = "0123FBIW,,\n\r \t99SX\xff";
    for (int n = 0; n < 20000; n++) {
        std::string text;
        for (unsigned i = random() % 24; i > 0; i--) {
            text += letters[random() % (sizeof letters - 1)];
        }
        crl_program *out = nullptr;
        if (crl_program_parse(&out, "x", text.data(), text.size()) == CRL_STATUS_OK) {
            toy::program_ptr program(out);
            if ((int64_t)out->stages * out->micro_batches < 100000) {
                crl_check_report report;
                crl_program_check(out, &report);
                toy::program_ptr again = toy::parse(toy::write(program, false));
                ASSERT_EQ(toy::write(again, false), toy::write(program, false));
            }
        } else {
            ASSERT_EQ(std::string(crl_error_message()).find('\n'), std::string::npos);
        }
    }
}

TEST(IrProgram, RefusesWhatIsOutOfRange) {
    crl_program *out = nullptr;
    EXPECT_EQ(crl_program_create(&out, 0, 1, 1), CRL_STATUS_INVALID);
    EXPECT_EQ(crl_program_create(&out, 1, 65536, 1), CRL_STATUS_INVALID);
    EXPECT_EQ(crl_program_create(&out, 1, 65535, 65535), CRL_STATUS_INVALID);
    ASSERT_EQ(crl_program_create(&out, 2, 2, 3), CRL_STATUS_OK);
    toy::program_ptr program(out);
    EXPECT_EQ(crl_program_append(out, 2, CRL_ACTION_FORWARD, 0, 0), CRL_STATUS_INVALID);
    EXPECT_EQ(crl_program_append(out, 0, CRL_ACTION_FORWARD, 2, 0), CRL_STATUS_INVALID);
    EXPECT_EQ(crl_program_append(out, 0, CRL_ACTION_FORWARD, 0, 3), CRL_STATUS_INVALID);
    EXPECT_EQ(crl_program_append(out, 0, CRL_ACTION_FORWARD, 0, -1), CRL_STATUS_INVALID);
    EXPECT_EQ(crl_program_append(out, 0, CRL_ACTION_SEND, 0, 0), CRL_STATUS_INVALID);
    EXPECT_EQ(crl_program_append(out, 0, CRL_ACTION_FORWARD, 0, 0), CRL_STATUS_OK);
}

TEST(IrProgram, PeakCountsInputAndWeightParts) {
    toy::program_ptr program = toy::parse("0F0,0F1,0I0,0F2,0W0,0I1,0I2,0W1,0W2");
    EXPECT_EQ(crl_program_peak_activations(program.get(), 0, true), 2);
    EXPECT_EQ(crl_program_peak_activations(program.get(), 0, false), 3);
    program = toy::parse("0F0,0F1,0B0,0F2,0B1,0B2");
    EXPECT_EQ(crl_program_peak_activations(program.get(), 0, true), 2);
    EXPECT_EQ(crl_program_peak_activations(program.get(), 0, false), 2);
}
