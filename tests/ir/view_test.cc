/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/ir/toy_model.h"

#include "engine/ir/simulate.h"

namespace {

std::string draw(const std::string &text, int width = 0,
                 const crl_simulation_config *config = nullptr) {
    toy::program_ptr program = toy::parse(text);
    crl_check_report report;
    crl_program_check(program.get(), &report);
    char *picture = nullptr;
    size_t bytes = 0;
    FILE *out = open_memstream(&picture, &bytes);
    EXPECT_EQ(crl_program_print_grid(program.get(), config, &report, width, out), CRL_STATUS_OK);
    fclose(out);
    std::string result(picture, bytes);
    free(picture);
    return result;
}

const char *const two_stages = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1";

} // namespace

TEST(IrView, DrawsTimeToTheRight) {
    EXPECT_EQ(draw(two_stages), "  0 | F0 F1 .. .. B0--- .. B1---\n"
                                "  1 | .. F0 B0--- F1 B1--- .. ..\n");
    EXPECT_EQ(draw("0F0,0I0,0W0\n1F0,1I0,1W0"), "  0 | F0 .. .. I0 W0\n"
                                                "  1 | .. F0 I0 W0 ..\n");
}

TEST(IrView, NamesTheStageWhereAPositionHasSeveral) {
    EXPECT_EQ(draw("0F0,2F0,2B0,0B0\n1F0,1B0"), "  0 | 0F0 ..  2F0 2B0---- ..  ..  0B0----\n"
                                                "  1 | ..  1F0 ..  ..  ..  1B0---- ..  ..\n");
}

TEST(IrView, CutsLongRows) {
    const std::string picture = draw(two_stages, 20);
    EXPECT_EQ(picture, "  0 | F0 F1 .. .. B…\n"
                       "  1 | .. F0 B0--- F…\n");
}

TEST(IrView, MarksWhatTheCheckFound) {
    EXPECT_EQ(draw("0F0,0B0\n1B0,1F0"), "  0 | F0  B0-----\n"
                                        "  1 | !B0---- F0\n"
                                        "!: position 1 waits at 1B0 for 1F0\n");
    EXPECT_EQ(draw("0F0,0F1,0B0"), "  0 | F0 F1 B0---\n0B1 is missing\n");
}

TEST(IrView, ScalesByTheShortestAction) {
    const crl_stage_cost times[] = {{0.5, 1, 0.5}, {1, 1, 1}};
    const crl_simulation_config config = {times, 0, 0};
    EXPECT_EQ(draw("0F0,0B0\n1F0,1B0", 0, &config), "  0 | F0 .. .. .. .. .. .. B0------\n"
                                                    "  1 | .. F0--- B0--------- .. .. ..\n");
}
