/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank <-> (pipeline position, replica, tensor shard). Shards are closest, then pipeline
 * neighbours, then replicas:  rank = (replica · pipeline + position) · tensor + shard.
 */
#pragma once

#include "engine/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_mesh {
    int pipeline, data, tensor; /* widths, each at least 1 */
} crl_mesh;

typedef struct crl_coordinates {
    int position, replica, shard;
} crl_coordinates;

/* INVALID "layout needs 2 x 4 x 1 = 8 ranks, the job has 6". */
CRL_NODISCARD crl_status crl_mesh_check(const crl_mesh *mesh, int ranks);
/* Local, pure; the arguments must lie within the mesh. */
int crl_mesh_rank(const crl_mesh *mesh, crl_coordinates at);
/* Where a rank sits; the inverse of crl_mesh_rank. */
crl_coordinates crl_mesh_coordinates(const crl_mesh *mesh, int rank);

#ifdef __cplusplus
}
#endif
