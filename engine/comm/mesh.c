/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic between ranks and mesh coordinates. Refuses nothing but a wrong number of ranks:
 * coordinates and ranks outside the mesh are the caller's bug.
 */
#include "engine/comm/mesh.h"

#include <stdint.h>

static int first_row(const crl_mesh *mesh, int position) {
    return mesh->first_row ? mesh->first_row[position] : position;
}

/* Replicas of a position in one pipeline. */
static int rows_of(const crl_mesh *mesh, int position) {
    return first_row(mesh, position + 1) - first_row(mesh, position);
}

int crl_mesh_rows(const crl_mesh *mesh) {
    return first_row(mesh, mesh->pipeline);
}

int crl_mesh_width(const crl_mesh *mesh, int position) {
    return mesh->data * rows_of(mesh, position);
}

crl_status crl_mesh_check(const crl_mesh *mesh, int ranks) {
    if (mesh->pipeline < 1 || mesh->data < 1 || mesh->tensor < 1) {
        return CRL_FAIL(INVALID, "layout %d x %d x %d: every width must be at least 1",
                        mesh->pipeline, mesh->data, mesh->tensor);
    }
    const int rows = crl_mesh_rows(mesh);
    int64_t needed = (int64_t)rows * mesh->data;
    needed = needed > INT32_MAX / mesh->tensor ? INT64_MAX : needed * mesh->tensor;
    if (needed == INT64_MAX) {
        return CRL_FAIL(INVALID, "layout %d x %d x %d: the number of ranks overflows",
                        mesh->pipeline, mesh->data, mesh->tensor);
    }
    if (needed != ranks && rows != mesh->pipeline) {
        return CRL_FAIL(INVALID, "layout needs %d ranks in %d pipelines of %d, the job has %d",
                        (int)needed, mesh->data, rows, ranks);
    }
    if (needed != ranks) {
        return CRL_FAIL(INVALID, "layout needs %d x %d x %d = %d ranks, the job has %d",
                        mesh->pipeline, mesh->data, mesh->tensor, (int)needed, ranks);
    }
    return CRL_STATUS_OK;
}

int crl_mesh_pipeline(const crl_mesh *mesh, int position, int replica) {
    return replica / rows_of(mesh, position);
}

int crl_mesh_row(const crl_mesh *mesh, int position, int replica) {
    return first_row(mesh, position) + replica % rows_of(mesh, position);
}

int crl_mesh_rank_of_row(const crl_mesh *mesh, int pipeline, int row) {
    return (pipeline * crl_mesh_rows(mesh) + row) * mesh->tensor;
}

int crl_mesh_rank(const crl_mesh *mesh, crl_coordinates at) {
    return crl_mesh_rank_of_row(mesh, crl_mesh_pipeline(mesh, at.position, at.replica),
                                crl_mesh_row(mesh, at.position, at.replica)) +
           at.shard;
}

crl_coordinates crl_mesh_coordinates(const crl_mesh *mesh, int rank) {
    const int rows = crl_mesh_rows(mesh);
    const int row = rank / mesh->tensor % rows;
    int position = mesh->first_row ? 0 : row;
    while (first_row(mesh, position + 1) <= row) {
        position++;
    }
    return (crl_coordinates){
        .position = position,
        .replica =
            rank / mesh->tensor / rows * rows_of(mesh, position) + row - first_row(mesh, position),
        .shard = rank % mesh->tensor,
    };
}
