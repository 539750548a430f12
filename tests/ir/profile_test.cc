// SPDX-License-Identifier: Apache-2.0
#include "engine/ir/profile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>

namespace {

using Profile = std::unique_ptr<crl_profile, decltype(&crl_profile_destroy)>;

// Three units; the last reads both others.
Profile Fork() {
    crl_profile *profile = nullptr;
    EXPECT_EQ(crl_profile_create(&profile, 3), CRL_STATUS_OK);
    const int second[] = {0}, third[] = {0, 1};
    EXPECT_EQ(crl_profile_name_unit(profile, 0, "a", 0, nullptr), CRL_STATUS_OK);
    EXPECT_EQ(crl_profile_name_unit(profile, 1, "b", 1, second), CRL_STATUS_OK);
    EXPECT_EQ(crl_profile_name_unit(profile, 2, "c", 2, third), CRL_STATUS_OK);
    return Profile(profile, &crl_profile_destroy);
}

TEST(IrProfile, NewOneCostsNothingAndIsInOrder) {
    const Profile profile = Fork();
    EXPECT_EQ(crl_profile_check(profile.get()), CRL_STATUS_OK);
    EXPECT_EQ(crl_profile_find(profile.get(), "c"), 2);
    EXPECT_EQ(crl_profile_find(profile.get(), "d"), -1);
    EXPECT_EQ(profile->unit[2].inputs, 2);
    EXPECT_EQ(profile->unit[2].input[1], 1);
}

TEST(IrProfile, RefusesNoUnits) {
    crl_profile *profile = nullptr;
    EXPECT_EQ(crl_profile_create(&profile, 0), CRL_STATUS_INVALID);
    EXPECT_EQ(profile, nullptr);
}

TEST(IrProfile, NamesEveryNumberThatIsNegativeOrNotFinite) {
    for (const crl_profile_number *n = crl_profile_numbers; n->name; n++) {
        for (double bad : {-1.0, double(INFINITY), double(NAN)}) {
            const Profile profile = Fork();
            char *at = reinterpret_cast<char *>(&profile->unit[1]) + n->offset;
            *reinterpret_cast<double *>(at) = bad;
            EXPECT_EQ(crl_profile_check(profile.get()), CRL_STATUS_INVALID) << n->name << bad;
            const std::string begin = std::string("profile unit b: ") + n->name + " is ";
            EXPECT_EQ(std::string(crl_error_message()).rfind(begin, 0), 0u) << crl_error_message();
        }
    }
}

// Every double of a unit but recompute_s[NONE] has a row, and no two rows share one.
TEST(IrProfile, NumbersCoverTheUnit) {
    crl_profile_unit unit = {};
    int rows = 0;
    for (const crl_profile_number *n = crl_profile_numbers; n->name; n++, rows++) {
        double *at = reinterpret_cast<double *>(reinterpret_cast<char *>(&unit) + n->offset);
        EXPECT_EQ(*at, 0) << n->name;
        *at = 1;
    }
    const size_t doubles =
        (offsetof(crl_profile_unit, no_gradient) - offsetof(crl_profile_unit, forward_s)) /
        sizeof(double);
    EXPECT_EQ(size_t(rows), doubles - 1);
    EXPECT_EQ(unit.recompute_s[CRL_RECOMPUTE_NONE], 0);
}

TEST(IrProfile, RefusesWrongNamesInputsAndSizes) {
    const auto refused = [](auto spoil) {
        const Profile profile = Fork();
        spoil(profile.get());
        EXPECT_EQ(crl_profile_check(profile.get()), CRL_STATUS_INVALID);
        return std::string(crl_error_message());
    };
    static const int forward[] = {1}, twice[] = {0, 0}, none[] = {-1};
    EXPECT_EQ(refused([](crl_profile *p) { p->unit[1].name = "c"; }),
              "profile unit c: stands there twice");
    EXPECT_EQ(refused([](crl_profile *p) { p->unit[1].name = ""; }), "profile unit 1: has no name");
    EXPECT_EQ(refused([](crl_profile *p) { p->unit[1].input = forward; }),
              "profile unit b: reads unit 1, expected one before 1");
    EXPECT_EQ(refused([](crl_profile *p) { p->unit[1].input = none; }),
              "profile unit b: reads unit -1, expected one before 1");
    EXPECT_EQ(refused([](crl_profile *p) { p->unit[2].input = twice; }),
              "profile unit c: reads unit 0 after 0, expected ascending");
    EXPECT_EQ(refused([](crl_profile *p) { p->micro_batch = 0; }),
              "profile: 3 units for micro-batches of 0, expected 1 or more of both");
    EXPECT_EQ(refused([](crl_profile *p) { p->tokens_per_sample = 0; }),
              "profile: 0 tokens per sample, expected more than 0");
    EXPECT_EQ(refused([](crl_profile *p) { p->unit[0].recompute_s[0] = 1; }),
              "profile unit a: takes 1 s to make nothing again, expected 0");
}

} // namespace
