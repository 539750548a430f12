// SPDX-License-Identifier: Apache-2.0
#include "engine/tensor/tensor.h"

#include <gtest/gtest.h>

#include <cstring>

namespace {

crl_shape shape(std::initializer_list<int64_t> size) {
    return crl_shape_make((int)size.size(), size.begin());
}

TEST(TensorDtype, HaveNamesAndSizes) {
    EXPECT_STREQ(crl_dtype_name(CRL_DTYPE_BF16), "bf16");
    EXPECT_STREQ(crl_dtype_safetensors_name(CRL_DTYPE_I64), "I64");
    EXPECT_STREQ(crl_dtype_name(CRL_DTYPE_COUNT), "?");
    EXPECT_EQ(crl_dtype_bytes(CRL_DTYPE_COUNT), 0u);
    EXPECT_EQ(crl_dtype_bytes(CRL_DTYPE_F64), 8u);
    EXPECT_EQ(crl_dtype_bytes(CRL_DTYPE_BF16), 2u);
}

TEST(TensorShape, ProductsAndEquality) {
    const crl_shape a = shape({2, 3, 5}), b = shape({2, 3}), c = shape({2, 3, 7});
    EXPECT_EQ(crl_shape_elements(&a), 30);
    EXPECT_EQ(crl_shape_product(&a, 1, 3), 15);
    EXPECT_EQ(crl_shape_product(&a, 1, 1), 1);
    const crl_shape scalar = shape({});
    EXPECT_EQ(crl_shape_elements(&scalar), 1);
    EXPECT_TRUE(crl_shape_equal(&a, &a));
    EXPECT_FALSE(crl_shape_equal(&a, &b));
    EXPECT_FALSE(crl_shape_equal(&a, &c));
}

TEST(TensorBytes, CountsAndRejects) {
    size_t bytes = 0;
    crl_tensor_spec spec = {CRL_DTYPE_F32, shape({4, 64, 768})};
    ASSERT_EQ(crl_tensor_bytes(&bytes, &spec, "x"), CRL_STATUS_OK);
    EXPECT_EQ(bytes, 4u * 64 * 768 * 4);
    spec.shape = shape({3, 0});
    ASSERT_EQ(crl_tensor_bytes(&bytes, &spec, "x"), CRL_STATUS_OK);
    EXPECT_EQ(bytes, 0u);
    spec.shape = shape({4, -1});
    EXPECT_EQ(crl_tensor_bytes(&bytes, &spec, "x"), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "x: size of dimension 1 is -1, expected 0 or more");
    for (const crl_shape &huge : {shape({INT64_MAX, 2}), shape({INT64_MAX / 2, 0, INT64_MAX}),
                                  shape({INT64_MAX / 4 + 1})}) {
        spec.shape = huge;
        EXPECT_EQ(crl_tensor_bytes(&bytes, &spec, "x"), CRL_STATUS_INVALID);
        EXPECT_EQ(strncmp(crl_error_message(), "x: size overflows", 17), 0);
    }
    EXPECT_EQ(bytes, 0u);
}

TEST(TensorText, FitsAnyBuffer) {
    const crl_tensor_spec spec = {CRL_DTYPE_F32, shape({4, 64, 768})};
    char text[32];
    EXPECT_STREQ(crl_tensor_text(&spec, text, sizeof text), "f32(4,64,768)");
    for (size_t n = 1; n < sizeof text; n++) {
        memset(text, '#', sizeof text);
        crl_tensor_text(&spec, text, n);
        EXPECT_LT(strlen(text), n);
        EXPECT_EQ(text[n], '#');
    }
}

} // namespace
