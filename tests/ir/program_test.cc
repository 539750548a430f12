/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/ir/toy_model.h"

namespace {

toy::program_ptr copy(const toy::program_ptr &program, bool forward_only) {
    crl_program *out = nullptr;
    EXPECT_EQ(crl_program_copy(&out, program.get(), forward_only), CRL_STATUS_OK);
    return toy::program_ptr(out);
}

} // namespace

TEST(IrProgram, CopiesAllActionsOrForwardsAlone) {
    const toy::program_ptr program = toy::parse("0F0,0F1,0I0,0W0,0B1\n1F0,1B0,1F1,1B1\n");
    program->dealt = true;
    EXPECT_EQ(toy::write(copy(program, false), false), toy::write(program, false));
    const toy::program_ptr forward = copy(program, true);
    EXPECT_EQ(toy::write(forward, false), "0F0,0F1\n1F0,1F1\n");
    EXPECT_TRUE(forward->dealt);
    EXPECT_EQ(forward->micro_batches, 2);
}

TEST(IrProgram, CopiesNoMessages) {
    toy::graph_ptr graph = toy::chain(2);
    toy::plan_ptr plan = toy::even_plan(graph, 2, 2);
    const std::string text = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
    const toy::program_ptr program = toy::parse(text);
    ASSERT_EQ(crl_program_add_messages(program.get(), plan.get(), 1, false), CRL_STATUS_OK);
    const toy::program_ptr copied = copy(program, false);
    EXPECT_EQ(copied->messages, 0);
    EXPECT_EQ(toy::write(copied, true), text);
}
