/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/partition/partition_case.h"

namespace {

std::vector<int> sizes(const std::vector<int> &first, int units) {
    std::vector<int> out;
    for (size_t s = 0; s < first.size(); s++) {
        out.push_back((s + 1 < first.size() ? first[s + 1] : units) - first[s]);
    }
    return out;
}

} // namespace

TEST(PartitionUniform, SizesDifferByOneAtMost) {
    for (int units = 1; units <= 40; units++) {
        for (int stages = 1; stages <= units; stages++) {
            partition_case c;
            c.time.assign(units, 1);
            c.stages = stages;
            const crl_partition_request request = c.request();
            crl_partition out = {};
            ASSERT_EQ(crl_partitioner_uniform.cut(&out, &request), CRL_STATUS_OK);
            ASSERT_EQ(out.stages, stages);
            const std::vector<int> size = sizes(firsts(out), units);
            EXPECT_EQ(size.front(), units / stages);
            EXPECT_TRUE(std::is_sorted(size.begin(), size.end()));
            EXPECT_LE(size.back() - size.front(), 1);
        }
    }
}

TEST(PartitionUniform, IsAsEqualAsTheAllowedCuts) {
    const unsigned seed = 11;
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    for (int n = 0; n < 1000; n++) {
        partition_case c = random_case(random);
        c.fewer = false;
        c.limit = 0;
        partition_case ones = c;
        ones.time.assign(c.time.size(), 1);
        ones.boundary.clear();
        ones.widths.clear(); // a count of units, whoever shares them
        double largest = INFINITY, squares = INFINITY;
        every_cut(ones, [&](const std::vector<int> &first) {
            const cut_figures figures = measure(ones, first);
            if (figures.bottleneck < largest) {
                largest = figures.bottleneck;
                squares = figures.squares;
            } else if (figures.bottleneck == largest) {
                squares = std::min(squares, figures.squares);
            }
        });
        const crl_partition_request request = c.request();
        crl_partition out = {};
        const crl_status status = crl_partitioner_uniform.cut(&out, &request);
        ASSERT_EQ(status, std::isfinite(largest) ? CRL_STATUS_OK : CRL_STATUS_INVALID) << n;
        if (status == CRL_STATUS_OK) {
            const cut_figures got = measure(ones, firsts(out));
            ASSERT_EQ(got.bottleneck, largest);
            ASSERT_EQ(got.squares, squares);
            ASSERT_EQ(out.bottleneck_s, measure(c, firsts(out)).bottleneck);
            ASSERT_EQ(out.peak_bytes, measure(c, firsts(out)).peak);
        }
    }
}

TEST(PartitionUniform, RefusesWhatDoesNotFit) {
    partition_case c;
    c.time = {1, 1};
    c.state = {100, 3000};
    c.stages = 2;
    c.limit = 2000;
    const crl_partition_request request = c.request();
    crl_partition out = {};
    EXPECT_EQ(crl_partitioner_uniform.cut(&out, &request), CRL_STATUS_UNSUPPORTED);
    EXPECT_STREQ(crl_error_message(), "uniform: 2 stages need 2.9 KiB (3000 bytes) on one device, "
                                      "the limit is 2.0 KiB (2000 bytes)");
}

TEST(PartitionUniform, RefusesBadRequests) {
    partition_case c;
    c.time = {1, 1, 1};
    crl_partition out = {};
    auto status = [&] {
        const crl_partition_request request = c.request();
        return crl_partitioner_uniform.cut(&out, &request);
    };
    c.stages = 4;
    EXPECT_EQ(status(), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "uniform: 4 stages, but 3 units can be cut into 3 at most");
    c.fewer = true;
    EXPECT_EQ(status(), CRL_STATUS_OK);
    EXPECT_EQ(out.stages, 3);
    c.stages = 0;
    EXPECT_EQ(status(), CRL_STATUS_INVALID);
    c.stages = 1025;
    EXPECT_EQ(status(), CRL_STATUS_INVALID);
    c.stages = 2;
    c.time[1] = NAN;
    EXPECT_EQ(status(), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "uniform: time of unit 1 is nan, expected 0 to 1e+100");
    for (const double wrong : {-1.0, 2e100, (double)INFINITY}) {
        c.time[1] = wrong;
        EXPECT_EQ(status(), CRL_STATUS_INVALID);
    }
    c.time.clear();
    EXPECT_EQ(status(), CRL_STATUS_INVALID);
}
