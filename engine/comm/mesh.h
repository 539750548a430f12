/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank <-> (pipeline position, replica, tensor shard).
 *
 * Equal pipelines stand side by side; one of them has `rows`: a position with a single replica has
 * one, a wider position several. Shards are closest, then the rows of a pipeline, then pipelines:
 *
 *     rank = (pipeline · rows + row) · tensor + shard
 *
 *     widths 4-2, i.e. two pipelines of rows:   position 0   position 1
 *                                   pipeline 0    rank 0 1     rank 2
 *                                   pipeline 1    rank 3 4     rank 5
 */
#pragma once

#include "engine/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_mesh {
    int pipeline, data, tensor; /* positions, pipelines, shards; each at least 1 */
    /* (pipeline + 1) position p has the rows first_row[p] .. first_row[p+1]-1; lent. NULL: one
     * row each. */
    const int *first_row;
} crl_mesh;

typedef struct crl_coordinates {
    int position, replica, shard;
} crl_coordinates;

/* INVALID "layout needs 2 x 4 x 1 = 8 ranks, the job has 6". */
CRL_NODISCARD crl_status crl_mesh_check(const crl_mesh *mesh, int ranks);
/* What follows is local and pure; the arguments must lie within the mesh. */

/* Rows of one pipeline. */
int crl_mesh_rows(const crl_mesh *mesh);
/* Replicas of a position, in all pipelines. */
int crl_mesh_width(const crl_mesh *mesh, int position);
/* The pipeline of a replica of a position. */
int crl_mesh_pipeline(const crl_mesh *mesh, int position, int replica);
/* The row of a replica of a position. */
int crl_mesh_row(const crl_mesh *mesh, int position, int replica);
/* First shard of a row of a pipeline. */
int crl_mesh_rank_of_row(const crl_mesh *mesh, int pipeline, int row);
/* The rank that sits there. */
int crl_mesh_rank(const crl_mesh *mesh, crl_coordinates at);
/* Where a rank sits; the inverse of crl_mesh_rank. */
crl_coordinates crl_mesh_coordinates(const crl_mesh *mesh, int rank);

#ifdef __cplusplus
}
#endif
