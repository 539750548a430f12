/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The communicators of groups of ranks, and the collectives on them that are not sums. They come
 * after all sums that were started, and before what is queued on the stream from then on.
 * Reduce-scatter is sends and adds, not ncclReduceScatter: that would not keep the members' order.
 */
#include <stdio.h>

#include "engine/base/alloc.h"
#include "engine/comm/nccl_internal.h"

static crl_status connect_team(crl_wire *w, crl_nccl_team *team, const crl_group *group) {
    const crl_device *device = w->base.config.device;
    crl_group members = *group;
    ncclUniqueId id;
    members.comm = w->base.config.host;
    snprintf(team->line.name, sizeof team->line.name, "group %d of %d ranks", group->channel,
             group->size);
    team->line.peer = crl_group_rank(group, (group->me + 1) % group->size);
    CRL_TRY(crl_device_event_create(device, &team->begin));
    CRL_TRY(crl_device_event_create(device, &team->end));
    if (group->me == 0) {
        CRL_TRY(crl_nccl_check(w, w->nccl.get_unique_id(&id), "an id"));
    }
    CRL_TRY(crl_broadcast(&members, 0, &id, sizeof id));
    return crl_nccl_connect(w, &team->line, &id, group->me, group->size);
}

crl_status crl_nccl_find_team(crl_wire *w, const crl_group *group, crl_nccl_team **out) {
    const int leader = crl_group_rank(group, 0);
    crl_nccl_team *team = w->team;
    while (team && !(team->channel == group->channel && team->size == group->size &&
                     team->leader == leader)) {
        team = team->next;
    }
    if (!team) {
        CRL_TRY(crl_alloc(&team, 1, sizeof *team));
        *team = (crl_nccl_team){
            .next = w->team, .channel = group->channel, .size = group->size, .leader = leader};
        w->team = team;
        CRL_TRY(connect_team(w, team, group));
    }
    *out = team;
    return CRL_STATUS_OK;
}

void crl_nccl_teams_end(crl_wire *w, bool abort) {
    for (crl_nccl_team *team = w->team; team; team = team->next) {
        crl_nccl_disconnect(w, &team->line, abort);
    }
}

void crl_nccl_teams_free(crl_wire *w) {
    while (w->team) {
        crl_nccl_team *team = w->team;
        w->team = team->next;
        crl_device_event_destroy(w->base.config.device, team->begin);
        crl_device_event_destroy(w->base.config.device, team->end);
        crl_free(team);
    }
}

static crl_status poll_team(void *argument, crl_poll_result *result) {
    const crl_nccl_team *team = ((const void **)argument)[0];
    crl_wire *w = ((void **)argument)[1];
    bool busy = false;
    result->peer = team->line.peer;
    result->receiving = result->soon = true;
    CRL_TRY(crl_comm_attend(w->base.config.host));
    CRL_TRY(crl_nccl_teams_advance(w, &busy));
    result->done = !busy;
    return CRL_STATUS_OK;
}

/* After all sums that were started; what follows is queued behind the stream's work so far. */
static crl_status begin_on(crl_wire *w, crl_nccl_team *team) {
    void *argument[] = {team, w};
    CRL_TRY(crl_comm_wait_poll(w->base.config.host, "sums to be queued", poll_team, argument));
    CRL_TRY(crl_device_event_record(w->base.config.device, team->begin, w->base.config.stream));
    return crl_device_event_follow(w->base.config.device, team->line.stream, team->begin);
}

/* What has been posted comes before the stream's work from now on. */
static crl_status end_on(crl_wire *w, crl_nccl_team *team) {
    CRL_TRY(crl_nccl_settle(w, &team->line, team->line.name));
    CRL_TRY(crl_device_event_record(w->base.config.device, team->end, team->line.stream));
    return crl_device_event_follow(w->base.config.device, w->base.config.stream, team->end);
}

crl_status crl_nccl_all_gather(crl_wire *w, const crl_group *group, void *data, size_t bytes) {
    crl_nccl_team *team;
    CRL_TRY(crl_nccl_find_team(w, group, &team));
    CRL_TRY(begin_on(w, team));
    const char *own = (const char *)data + (size_t)group->me * bytes;
    if (bytes > 0) {
        CRL_TRY(crl_nccl_check(w,
                               w->nccl.all_gather(own, data, bytes, ncclUint8, team->line.comm,
                                                  crl_nccl_stream(&team->line)),
                               team->line.name));
    }
    return end_on(w, team);
}

static ncclResult_t post_blocks(const crl_wire *w, const crl_nccl_team *team,
                                const crl_group *group, const float *data, int64_t count,
                                float *scratch) {
    const cudaStream_t stream = crl_nccl_stream(&team->line);
    ncclResult_t result = ncclSuccess;
    for (int s = 1; s < group->size && result == ncclSuccess; s++) {
        const int to = (group->me + s) % group->size;
        result = w->nccl.recv(scratch + to * count, (size_t)count, ncclFloat, to, team->line.comm,
                              stream);
        if (result == ncclSuccess) {
            result = w->nccl.send(data + to * count, (size_t)count, ncclFloat, to, team->line.comm,
                                  stream);
        }
    }
    return result;
}

crl_status crl_nccl_reduce_scatter(crl_wire *w, const crl_group *group, float *data, int64_t count,
                                   float *scratch) {
    crl_nccl_team *team;
    CRL_TRY(crl_nccl_find_team(w, group, &team));
    if (count == 0) {
        return CRL_STATUS_OK;
    }
    CRL_TRY(begin_on(w, team));
    CRL_TRY(crl_nccl_check(w, w->nccl.group_start(), team->line.name));
    const ncclResult_t posted = post_blocks(w, team, group, data, count, scratch);
    const ncclResult_t ended = w->nccl.group_end();
    CRL_TRY(crl_nccl_check(w, posted, team->line.name));
    CRL_TRY(crl_nccl_check(w, ended, team->line.name));
    CRL_TRY(end_on(w, team));
    return crl_group_sum_blocks(group, data, count, scratch);
}
