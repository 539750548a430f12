/* SPDX-License-Identifier: Apache-2.0 */
/* Channels: both orders agree on each, and there are no more than needed. */
#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "engine/comm/route.h"

namespace {

/* Fewest classes without a pair that the two ends post in opposite orders, by trying all. */
int fewest(const std::vector<int> &received, std::vector<int> *channel, size_t next, int used) {
    if (next == received.size()) {
        return used;
    }
    int best = (int)received.size() + 1;
    for (int c = 0; c <= used; c++) {
        bool fits = true;
        for (size_t i = 0; i < next; i++) {
            fits = fits && ((*channel)[i] != c || received[i] < received[next]);
        }
        if (fits) {
            (*channel)[next] = c;
            best = std::min(best, fewest(received, channel, next + 1, std::max(used, c + 1)));
        }
    }
    return best;
}

} // namespace

TEST(CommRoute, OrdersAgreeOnEveryChannelAndFewAreUsed) {
    for (int n = 0; n <= 6; n++) {
        std::vector<int> received((size_t)n);
        std::iota(received.begin(), received.end(), 0);
        do {
            /* posted by the sender in a turned order, with gaps in the numbers */
            std::vector<int> sent((size_t)n), channel((size_t)n), place((size_t)n);
            for (int i = 0; i < n; i++) {
                sent[(size_t)i] = (i + 2) % n * 10;
            }
            int channels = -1;
            ASSERT_EQ(crl_routes_assign(channel.data(), &channels, sent.data(), received.data(), n),
                      CRL_STATUS_OK);
            std::vector<int> by_sender((size_t)n);
            for (int i = 0; i < n; i++) {
                by_sender[(size_t)(sent[(size_t)i] / 10)] = received[(size_t)i];
                ASSERT_TRUE(channel[(size_t)i] >= 0 && channel[(size_t)i] < channels);
                for (int j = 0; j < n; j++) {
                    const size_t a = (size_t)i, b = (size_t)j;
                    ASSERT_TRUE(channel[a] != channel[b] ||
                                (sent[a] < sent[b]) == (received[a] < received[b]));
                }
            }
            ASSERT_EQ(channels, fewest(by_sender, &place, 0, 0));
        } while (std::next_permutation(received.begin(), received.end()));
    }
}

TEST(CommRoute, OneChannelWhereOrdersAgreeAndOneEachWhereTheyAreOpposite) {
    std::vector<int> order(1000), opposite(1000), channel(1000);
    std::iota(order.begin(), order.end(), 0);
    std::reverse_copy(order.begin(), order.end(), opposite.begin());
    int channels = 0;
    ASSERT_EQ(crl_routes_assign(channel.data(), &channels, order.data(), order.data(), 1000),
              CRL_STATUS_OK);
    EXPECT_EQ(channels, 1);
    ASSERT_EQ(crl_routes_assign(channel.data(), &channels, order.data(), opposite.data(), 1000),
              CRL_STATUS_OK);
    EXPECT_EQ(channels, 1000);
}
