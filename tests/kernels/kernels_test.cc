// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/support.h"

namespace {

TEST(KernelsTable, IsComplete) {
    const crl_kernels &k = crl_kernels_cpu;
    EXPECT_STREQ(k.name, "cpu");
    const void *const tables[] = {k.matmul,    k.eltwise,       k.layernorm, k.attention,
                                  k.embedding, k.cross_entropy, k.optimizer, k.reduce};
    for (const void *table : tables)
        EXPECT_NE(table, nullptr);
}

TEST(KernelsTable, DescribesTheLibrary) {
    char text[64];
    crl_kernels_describe(text, sizeof text);
    EXPECT_EQ(std::strncmp(text, "oneDNN ", 7), 0) << text;
}

} // namespace
