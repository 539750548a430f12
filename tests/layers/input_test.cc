/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/layers/harness.h"

namespace layer_test {
namespace {

TEST(LayersInput, PutsTheBatchBeforeTheSample) {
    const Inferred image("input", "images", {}, {{"dims", "28, 28"}}, 5);
    ASSERT_EQ(image.error, "");
    EXPECT_EQ(Text(image.spec.output[0]), "f32(5,28,28)");
    const Inferred label("input", "labels", {}, {{"dtype", "i32"}}, 5);
    ASSERT_EQ(label.error, "");
    EXPECT_EQ(Text(label.spec.output[0]), "i32(5)");
    EXPECT_TRUE(label.layer->is_input);
}

TEST(LayersInput, RejectsBadSizes) {
    for (const char *size : {"0", "-1", "2x", "1.5", "99999999999999999999"}) {
        EXPECT_EQ(InferError("input", "images", {}, {{"dims", size}}, 1),
                  "input images: size '" + std::string(size) +
                      "' in dims, expected a whole number from 1");
    }
    EXPECT_EQ(InferError("input", "images", {}, {{"dims", "1,1,1,1,1,1"}}, 1),
              "input images: has 6 sizes in dims, expected at most 5");
}

TEST(LayersInput, RejectsSizesThatOverflow) {
    const std::string error =
        InferError("input", "images", {}, {{"dims", "4000000000,4000000000"}}, 2);
    EXPECT_EQ(error.find("input images: output: size overflows"), 0u) << error;
}

TEST(LayersInput, RejectsInputs) {
    EXPECT_EQ(InferError("input", "images", {F32({2, 3})}),
              "input images: has 1 input, expected 0");
}

TEST(LayersInput, RefusesToCompute) {
    const Inferred image("input", "images", {}, {}, 5);
    crl_layer_call call{};
    call.spec = &image.spec;
    EXPECT_EQ(image.layer->forward(&call), CRL_STATUS_INTERNAL);
}

} // namespace
} // namespace layer_test
