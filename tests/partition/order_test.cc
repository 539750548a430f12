/* SPDX-License-Identifier: Apache-2.0 */
#include "partition/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "engine/base/alloc.h"

namespace {

crl_profile *random_profile(std::mt19937 &random, int units) {
    crl_profile *profile = nullptr;
    EXPECT_EQ(crl_profile_create(&profile, units), CRL_STATUS_OK);
    for (int u = 0; u < units; u++) {
        std::vector<int> input;
        for (int v = 0; v < u; v++) {
            if (random() % 4 == 0) {
                input.push_back(v);
            }
        }
        EXPECT_EQ(crl_profile_name_unit(profile, u, std::to_string(u).c_str(), (int)input.size(),
                                        input.data()),
                  CRL_STATUS_OK);
        profile->unit[u].output_bytes = (double)(random() % 100);
    }
    return profile;
}

bool reads(const crl_profile_unit &unit, int input) {
    return std::find(unit.input, unit.input + unit.inputs, input) != unit.input + unit.inputs;
}

/* What units up to j of the order give to those after. */
double crossing(const crl_profile *profile, const std::vector<int> &order, size_t j) {
    double bytes = 0;
    for (size_t i = 0; i <= j; i++) {
        bool read = false;
        for (size_t k = j + 1; k < order.size(); k++) {
            read = read || reads(profile->unit[order[k]], order[i]);
        }
        bytes += read ? profile->unit[order[i]].output_bytes : 0;
    }
    return bytes;
}

std::vector<int> make(const crl_profile *profile, const crl_order *order, unsigned shuffle) {
    std::vector<int> out((size_t)profile->units, -1);
    EXPECT_EQ(crl_order_make(out.data(), profile, order, shuffle), CRL_STATUS_OK);
    return out;
}

/* a - b - c - f beside a - d - e - f. */
crl_profile *two_branches() {
    crl_profile *profile = nullptr;
    EXPECT_EQ(crl_profile_create(&profile, 6), CRL_STATUS_OK);
    const std::vector<std::vector<int>> input = {{}, {0}, {1}, {0}, {3}, {2, 4}};
    const double bytes[] = {10, 1, 50, 20, 5, 1};
    for (int u = 0; u < 6; u++) {
        const char name[] = {(char)('a' + u), '\0'};
        EXPECT_EQ(crl_profile_name_unit(profile, u, name, (int)input[(size_t)u].size(),
                                        input[(size_t)u].data()),
                  CRL_STATUS_OK);
        profile->unit[u].output_bytes = bytes[u];
    }
    return profile;
}

std::string letters(const std::vector<int> &order) {
    std::string out;
    for (const int unit : order) {
        out += (char)('a' + unit);
    }
    return out;
}

} // namespace

TEST(PartitionOrder, IsTopologicalAndCountsWhatCrosses) {
    std::mt19937 random(5);
    for (int n = 0; n < 300; n++) {
        crl_profile *profile = random_profile(random, 1 + (int)(random() % 12));
        for (int rule = 0; rule < 8; rule++) {
            const crl_order *order = rule < 4 ? &crl_orders[rule] : nullptr;
            const std::vector<int> sequence = make(profile, order, (unsigned)rule);
            std::vector<char> placed(sequence.size());
            std::vector<double> bytes(sequence.size());
            ASSERT_EQ(crl_order_crossing(bytes.data(), profile, sequence.data()), CRL_STATUS_OK);
            for (size_t j = 0; j < sequence.size(); j++) {
                const crl_profile_unit &unit = profile->unit[sequence[j]];
                for (int i = 0; i < unit.inputs; i++) {
                    ASSERT_TRUE(placed[(size_t)unit.input[i]]);
                }
                ASSERT_FALSE(placed[(size_t)sequence[j]]);
                placed[(size_t)sequence[j]] = 1;
                ASSERT_EQ(bytes[j], crossing(profile, sequence, j));
            }
        }
        crl_profile_destroy(profile);
    }
}

TEST(PartitionOrder, RulesDoWhatTheySay) {
    crl_profile *profile = two_branches();
    EXPECT_EQ(letters(make(profile, &crl_orders[0], 0)), "abcdef");
    EXPECT_EQ(letters(make(profile, &crl_orders[1], 0)), "adebcf");
    EXPECT_EQ(letters(make(profile, &crl_orders[2], 0)), "abdcef");
    EXPECT_EQ(letters(make(profile, &crl_orders[3], 0)), "abdecf");
    std::vector<std::string> seen;
    for (unsigned shuffle = 0; shuffle < 16; shuffle++) {
        seen.push_back(letters(make(profile, nullptr, shuffle)));
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_GE(std::unique(seen.begin(), seen.end()) - seen.begin(), 3);
    crl_profile_destroy(profile);
}
