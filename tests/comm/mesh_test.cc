/* SPDX-License-Identifier: Apache-2.0 */
#include <climits>

#include <gtest/gtest.h>

#include "engine/comm/mesh.h"

TEST(CommMesh, RanksAndCoordinatesAreInverse) {
    for (int pipeline = 1; pipeline <= 4; pipeline++) {
        for (int data = 1; data <= 3; data++) {
            for (int tensor = 1; tensor <= 3; tensor++) {
                const crl_mesh mesh = {pipeline, data, tensor};
                const int ranks = pipeline * data * tensor;
                ASSERT_EQ(crl_mesh_check(&mesh, ranks), CRL_STATUS_OK);
                for (int rank = 0; rank < ranks; rank++) {
                    const crl_coordinates at = crl_mesh_coordinates(&mesh, rank);
                    EXPECT_TRUE(at.position >= 0 && at.position < pipeline);
                    EXPECT_TRUE(at.replica >= 0 && at.replica < data);
                    EXPECT_TRUE(at.shard >= 0 && at.shard < tensor);
                    EXPECT_EQ(crl_mesh_rank(&mesh, at), rank);
                }
            }
        }
    }
}

TEST(CommMesh, ShardsAreClosestThenStages) {
    const crl_mesh mesh = {4, 2, 2};
    EXPECT_EQ(crl_mesh_rank(&mesh, {0, 0, 1}), 1);
    EXPECT_EQ(crl_mesh_rank(&mesh, {1, 0, 0}), 2);
    EXPECT_EQ(crl_mesh_rank(&mesh, {0, 1, 0}), 8);
}

TEST(CommMesh, WiderPositionsHaveSeveralRows) {
    const int first_row[] = {0, 3, 4, 6}; /* widths 6, 2, 4 as two pipelines of 3 + 1 + 2 rows */
    const crl_mesh mesh = {3, 2, 1, first_row};
    ASSERT_EQ(crl_mesh_check(&mesh, 12), CRL_STATUS_OK);
    EXPECT_EQ(crl_mesh_rows(&mesh), 6);
    const int width[] = {6, 2, 4};
    for (int p = 0; p < 3; p++) {
        EXPECT_EQ(crl_mesh_width(&mesh, p), width[p]);
    }
    for (int rank = 0; rank < 12; rank++) {
        const crl_coordinates at = crl_mesh_coordinates(&mesh, rank);
        EXPECT_TRUE(at.replica >= 0 && at.replica < width[at.position]);
        EXPECT_EQ(crl_mesh_rank(&mesh, at), rank);
        EXPECT_EQ(crl_mesh_pipeline(&mesh, at.position, at.replica), rank / 6);
        EXPECT_EQ(crl_mesh_row(&mesh, at.position, at.replica), rank % 6);
        EXPECT_EQ(crl_mesh_rank_of_row(&mesh, rank / 6, rank % 6), rank);
    }
    EXPECT_EQ(crl_mesh_rank(&mesh, {0, 3, 0}), 6); /* the second pipeline's first replica */
    ASSERT_EQ(crl_mesh_check(&mesh, 6), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "layout needs 12 ranks in 2 pipelines of 6, the job has 6");
}

TEST(CommMesh, RejectsWrongNumberOfRanks) {
    const crl_mesh mesh = {2, 4, 1};
    ASSERT_EQ(crl_mesh_check(&mesh, 6), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "layout needs 2 x 4 x 1 = 8 ranks, the job has 6");
}

TEST(CommMesh, RejectsWidthsThatMakeNoSense) {
    const crl_mesh zero = {2, 0, 1}, huge = {INT_MAX, INT_MAX, INT_MAX};
    ASSERT_EQ(crl_mesh_check(&zero, 0), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "layout 2 x 0 x 1: every width must be at least 1");
    ASSERT_EQ(crl_mesh_check(&huge, 1), CRL_STATUS_INVALID);
}
