/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic between ranks and mesh coordinates. Refuses nothing but a wrong number of ranks:
 * coordinates and ranks outside the mesh are the caller's bug.
 */
#include "engine/comm/mesh.h"

#include <stdint.h>

crl_status crl_mesh_check(const crl_mesh *mesh, int ranks) {
    if (mesh->pipeline < 1 || mesh->data < 1 || mesh->tensor < 1) {
        return CRL_FAIL(INVALID, "layout %d x %d x %d: every width must be at least 1",
                        mesh->pipeline, mesh->data, mesh->tensor);
    }
    int64_t needed = (int64_t)mesh->pipeline * mesh->data;
    needed = needed > INT32_MAX / mesh->tensor ? INT64_MAX : needed * mesh->tensor;
    if (needed == INT64_MAX) {
        return CRL_FAIL(INVALID, "layout %d x %d x %d: the number of ranks overflows",
                        mesh->pipeline, mesh->data, mesh->tensor);
    }
    if (needed != ranks) {
        return CRL_FAIL(INVALID, "layout needs %d x %d x %d = %d ranks, the job has %d",
                        mesh->pipeline, mesh->data, mesh->tensor, (int)needed, ranks);
    }
    return CRL_STATUS_OK;
}

int crl_mesh_rank(const crl_mesh *mesh, crl_coordinates at) {
    return (at.replica * mesh->pipeline + at.position) * mesh->tensor + at.shard;
}

crl_coordinates crl_mesh_coordinates(const crl_mesh *mesh, int rank) {
    const int pair = rank / mesh->tensor;
    return (crl_coordinates){
        .position = pair % mesh->pipeline,
        .replica = pair / mesh->pipeline,
        .shard = rank % mesh->tensor,
    };
}
