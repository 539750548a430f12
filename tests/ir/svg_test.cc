/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/ir/svg_check.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/ir/svg.h"
#include "tests/base/comma_locale.h"

namespace {

template <typename Draw> std::string drawn(Draw draw) {
    char *text = nullptr;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    draw(out);
    fclose(out);
    const std::string result(text, bytes);
    free(text);
    return result;
}

} // namespace

TEST(IrSvg, TheCheckerFindsWhatIsNotXml) {
    EXPECT_EQ(svg::problem("<a b=\"c\"><d/>e &amp; f</a>\n"), "");
    for (const char *bad : {"<a>", "<a></b>", "<a b=c/>", "<a b=\"1\" b=\"2\"/>", "<a>&</a>",
                            "<a>&nbsp;</a>", "<a/><b/>", "x<a/>", "", "<a b=\"<\"/>"}) {
        EXPECT_NE(svg::problem(bad), "") << bad;
    }
}

TEST(IrSvg, IsWellFormed) {
    const std::string picture = drawn([](FILE *out) {
        crl_svg_begin(out, 100, 50.4, "a <b> & \"c\"", ".x{fill:#000}\n");
        crl_svg_rect(out, "x", 1, 2.5, 3.125, 0);
        crl_svg_line(out, "line", -0.25, 0, 1e12, 1);
        crl_svg_disc(out, "x", 1, 1, 2);
        crl_svg_text(out, "text", 1, 1, "1 < 2 \x01\xc3\xa9");
        crl_svg_end(out);
    });
    EXPECT_EQ(svg::problem(picture), "") << picture;
    EXPECT_NE(picture.find("<title>a &lt;b&gt; &amp; &quot;c&quot;</title>"), std::string::npos);
    EXPECT_NE(picture.find("x=\"1\" y=\"2.5\" width=\"3.13\" height=\"0\""), std::string::npos);
    EXPECT_NE(picture.find("x1=\"-0.25\""), std::string::npos);
    EXPECT_NE(picture.find(">1 &lt; 2 ?" "?" "?<"), std::string::npos) << picture;
}

TEST(IrSvg, WritesDotsInEveryLocale) {
    const comma_locale locale;
    char text[32];
    EXPECT_STREQ(crl_svg_number(text, 0.25), "0.25");
    EXPECT_STREQ(crl_svg_number(text, 1.5e9), "1.5e+09");
    const std::string picture = drawn([](FILE *out) { crl_svg_rect(out, "x", 0.5, 0, 1, 1); });
    EXPECT_NE(picture.find("x=\"0.5\""), std::string::npos) << picture;
}

TEST(IrSvg, AxisStepsAreRound) {
    EXPECT_EQ(crl_svg_step(33, 12), 5);
    EXPECT_EQ(crl_svg_step(12, 12), 1);
    EXPECT_EQ(crl_svg_step(0.15, 10), 0.02);
    EXPECT_EQ(crl_svg_step(1.1e6, 10), 2e5);
    EXPECT_EQ(crl_svg_step(0, 10), 1);
    EXPECT_EQ(crl_svg_step(NAN, 10), 1);
}
