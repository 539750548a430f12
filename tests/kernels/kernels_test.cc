// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/support.h"

namespace {

TEST(KernelsTable, IsComplete) {
    for (crl_dtype type : {CRL_DTYPE_F32, CRL_DTYPE_BF16, CRL_DTYPE_F16}) {
        const crl_kernels *table = crl_backend_kernels(&crl_backend_cpu, type);
        ASSERT_NE(table, nullptr);
        const crl_kernels &k = *table;
        EXPECT_STREQ(k.name, "cpu");
        EXPECT_EQ(k.dtype, type);
        const void *const tables[] = {k.matmul,    k.eltwise,       k.layernorm, k.attention,
                                      k.embedding, k.cross_entropy, k.optimizer, k.reduce};
        for (const void *operations : tables)
            EXPECT_NE(operations, nullptr);
    }
    EXPECT_EQ(crl_backend_kernels(&crl_backend_cpu, CRL_DTYPE_I32), nullptr);
}

TEST(KernelsTable, DescribesTheLibrary) {
    char text[64];
    crl_kernels_describe(text, sizeof text);
    const bool has_one = std::strncmp(text, "oneDNN ", 7) == 0;
    EXPECT_TRUE(has_one || std::strcmp(text, "own products (no oneDNN)") == 0) << text;
}

} // namespace
