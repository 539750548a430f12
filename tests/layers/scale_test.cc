/* SPDX-License-Identifier: Apache-2.0 */
#include <fstream>
#include <sstream>

#include "tests/layers/runner.h"

namespace layer_test {
namespace {

TEST(LayersScale, ComputesAKnownCase) {
    const Inferred scale("scale", "gain", {F32({1, 3})}, {});
    const Values values = {{{1, 2, 3}}, {{2}}, {{1, 10, 100}}, {}, {}};
    const Results got = Execute(scale, values, Settings{});
    EXPECT_EQ(got.y[0], (std::vector<float>{2, 4, 6}));
    EXPECT_EQ(got.dx[0], (std::vector<float>{2, 20, 200}));
    EXPECT_EQ(got.dw[0], (std::vector<float>{321}));
}

TEST(LayersScale, StartsAsAsked) {
    const Inferred ones("scale", "gain", {F32({1, 3})}, {});
    EXPECT_EQ(ones.spec.param[0].init, CRL_INIT_ONES);
    const Inferred zeros("scale", "gain", {F32({1, 3})}, {{"init", "zeros"}});
    EXPECT_EQ(zeros.spec.param[0].init, CRL_INIT_ZEROS);
}

std::string Read(const std::string &path) {
    std::ifstream file(CRL_SOURCE_DIR "/" + path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

TEST(LayersScale, IsTheExampleOfTheDocumentation) {
    const std::string page = Read("docs/adding-a-layer.md"), source = Read("layers/scale.c");
    ASSERT_FALSE(page.empty());
    ASSERT_FALSE(source.empty());
    EXPECT_NE(page.find("```c\n" + source + "```\n"), std::string::npos)
        << "docs/adding-a-layer.md does not show layers/scale.c as it is";
}

} // namespace
} // namespace layer_test
