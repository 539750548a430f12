/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/layers/harness.h"

namespace layer_test {
namespace {

TEST(LayersCast, GoesBetweenF32AndTheTypeItComputesIn) {
    const crl_tensor_spec f32 = F32({2, 3}), bf16 = {CRL_DTYPE_BF16, f32.shape};
    const Inferred narrow("cast", "c", {f32}, {}, -1, CRL_DTYPE_BF16);
    EXPECT_EQ(Text(narrow.spec.output[0]), "bf16(2,3)");
    const Inferred widen("cast", "c", {bf16}, {}, -1, CRL_DTYPE_BF16);
    EXPECT_EQ(Text(widen.spec.output[0]), "f32(2,3)");
    const Inferred none("cast", "c", {f32}, {});
    EXPECT_EQ(Text(none.spec.output[0]), "f32(2,3)");
    EXPECT_EQ(narrow.spec.cost.bytes[CRL_PHASE_FORWARD], 6 * (4 + 2));
}

TEST(LayersCast, RejectsOtherTypes) {
    EXPECT_EQ(InferError("cast", "c", {{CRL_DTYPE_BF16, F32({2, 3}).shape}}),
              "cast c: input is bf16(2,3), expected f32 elements");
    EXPECT_EQ(InferError("cast", "c", {I32({2, 3})}),
              "cast c: input is i32(2,3), expected f32 elements");
}

} // namespace
} // namespace layer_test
