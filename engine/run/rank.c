/* SPDX-License-Identifier: Apache-2.0 */
/* Putting a rank together. */
#include "engine/run/rank.h"

#include "engine/base/alloc.h"
#include "engine/base/registry.h"
#include "engine/comm/wire.h"
#include "engine/run/memory_plan.h"
#include "engine/run/routes.h"

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

static crl_status create_executors(crl_rank *r, bool training) {
    const crl_layout *layout = r->layout;
    const crl_range all = crl_layout_pipeline(layout, r->pipeline);
    crl_executor_config config = {.backend = r->backend,
                                  .stream = r->stream,
                                  .params = r->params,
                                  .mesh = &layout->mesh,
                                  .position = r->at.position,
                                  .replica = r->at.replica,
                                  .first_micro_batch = all.first,
                                  .first_own = r->micro_batches.first - all.first,
                                  .own = r->micro_batches.last - r->micro_batches.first,
                                  .first_tag = training ? r->program->messages : 0};
    CRL_TRY(
        crl_layout_program(&r->evaluate_program, layout, layout->evaluate_plan, r->pipeline, true));
    config.plan = layout->evaluate_plan;
    config.program = r->evaluate_program;
    CRL_TRY(crl_executor_create(&r->evaluate_executor, &config));
    if (!training) {
        return CRL_STATUS_OK;
    }
    config.plan = layout->plan;
    config.program = r->program;
    config.first_tag = 0;
    config.sync = r->sync;
    return crl_executor_create(&r->executor, &config);
}

/* One for each stage of this rank; *buffers is the most any needs. */
static crl_status create_lane_plans(crl_rank *r, int *buffers) {
    const crl_plan *plan = r->layout->plan;
    CRL_TRY(crl_alloc(&r->lane_plan, (size_t)plan->stages, sizeof *r->lane_plan));
    for (int s = 0; s < plan->stages; s++) {
        if (plan->stage[s].position == r->at.position) {
            CRL_TRY(crl_layout_lane_plan(&r->lane_plan[s], r->layout, r->program, r->at, s));
            *buffers = r->lane_plan[s]->buffers > *buffers ? r->lane_plan[s]->buffers : *buffers;
        }
    }
    return CRL_STATUS_OK;
}

static crl_status create_sync(crl_rank *r) {
    const crl_settings *s = r->layout->settings;
    const void *algorithm = NULL;
    CRL_TRY(
        crl_registry_find(&algorithm, crl_allreduce_algorithms, "all-reduce", s->comm.allreduce));
    const crl_grad_sync_config config = {.plan = r->layout->plan,
                                         .params = r->params,
                                         .reduce = r->backend->f32->reduce,
                                         .stream = r->stream,
                                         .mesh = &r->layout->mesh,
                                         .position = r->at.position,
                                         .replica = r->at.replica,
                                         .lanes = r->layout->lanes,
                                         .lane_plan = (const crl_lane_plan *const *)r->lane_plan,
                                         .algorithm = algorithm,
                                         .bucket_bytes = s->comm.bucket_bytes,
                                         .segment_bytes = s->comm.segment_bytes};
    return crl_grad_sync_create(&r->sync, &config);
}

static size_t losses_bytes(const crl_rank *r) {
    return crl_memory_round((size_t)r->layout->micro_batches * sizeof *r->loss);
}

static size_t squares_bytes(const crl_rank *r) {
    return crl_memory_round((size_t)r->layout->graph->params * sizeof *r->squares);
}

static crl_status sum_memory(crl_rank *r) {
    crl_memory_report *m = &r->memory;
    m->weights_bytes = crl_params_weights_bytes(r->params) + crl_params_rounded_bytes(r->params);
    m->gradients_bytes = crl_params_gradients_bytes(r->params);
    CRL_TRY(crl_size_add(&m->optimizer_bytes, crl_params_states_bytes(r->params),
                         crl_params_kept_bytes(r->params), "optimizer state"));
    m->comm_bytes =
        (r->sync ? crl_grad_sync_bytes(r->sync) : 0) + losses_bytes(r) + squares_bytes(r);
    m->activations_bytes = crl_executor_activation_bytes(r->evaluate_executor);
    m->workspace_bytes = crl_executor_workspace_bytes(r->evaluate_executor);
    if (r->executor) {
        m->activations_bytes =
            larger(m->activations_bytes, crl_executor_activation_bytes(r->executor));
        m->workspace_bytes = larger(m->workspace_bytes, crl_executor_workspace_bytes(r->executor));
    }
    const size_t part[] = {m->weights_bytes, m->gradients_bytes,   m->optimizer_bytes,
                           m->comm_bytes,    m->activations_bytes, m->workspace_bytes};
    m->total_bytes = 0;
    for (size_t i = 0; i < sizeof part / sizeof part[0]; i++) {
        CRL_TRY(crl_size_add(&m->total_bytes, m->total_bytes, part[i], "memory of a rank"));
    }
    return CRL_STATUS_OK;
}

crl_status crl_rank_create(crl_rank **out, const crl_layout *layout, int rank, bool training,
                           crl_stream *stream) {
    crl_status status = CRL_STATUS_OK;
    crl_rank *r = NULL;
    CRL_TRY_OUT(crl_alloc(&r, 1, sizeof *r));
    r->layout = layout;
    r->backend = layout->settings->backend;
    r->stream = stream;
    r->at = crl_mesh_coordinates(&layout->mesh, rank);
    r->micro_batches = crl_layout_own(layout, r->at.position, r->at.replica);
    r->pipeline = crl_mesh_pipeline(&layout->mesh, r->at.position, r->at.replica);
    int buffers = 0;
    if (training) {
        CRL_TRY_OUT(crl_layout_program(&r->program, layout, layout->plan, r->pipeline, false));
        CRL_TRY_OUT(create_lane_plans(r, &buffers));
    }
    const crl_settings *settings = layout->settings;
    const crl_params_config params = {.plan = layout->plan,
                                      .position = r->at.position,
                                      .lane_buffers = buffers,
                                      .states = training ? layout->states : 0,
                                      .keeps = training &&
                                               settings->optimizer.validate == CRL_VALIDATE_AFTER,
                                      .compute = crl_settings_compute(settings)};
    CRL_TRY_OUT(crl_params_create(&r->params, &params));
    if (training) {
        CRL_TRY_OUT(create_sync(r));
    }
    CRL_TRY_OUT(create_executors(r, training));
    CRL_TRY_OUT(sum_memory(r));
    *out = r;
    r = NULL;
out:
    crl_rank_destroy(r);
    return status;
}

/* Nothing is allocated for a message of a step, however many are under way at a time. */
static int most_requests(const crl_rank *r) {
    int requests = crl_executor_requests(r->evaluate_executor);
    if (r->executor) {
        const int training = crl_executor_requests(r->executor) + crl_grad_sync_requests(r->sync);
        requests = training > requests ? training : requests;
    }
    return requests;
}

/* Weights and state, and a second set of them where updates may be taken back. */
static void bind_params(crl_rank *r) {
    crl_params *params = r->params;
    const size_t bytes = crl_params_weights_bytes(params);
    char *at = r->reservation;
    params->device = r->backend->device;
    params->stream = r->stream;
    params->weights = (float *)(void *)at;
    params->rounded = crl_params_rounded_bytes(params) > 0 ? at + bytes : NULL;
    at += r->memory.weights_bytes;
    params->gradients = (float *)(void *)at;
    at += r->memory.gradients_bytes;
    for (int s = 0; s < params->states; s++, at += bytes) {
        params->state[s] = (float *)(void *)at;
    }
    if (params->keeps) {
        params->kept_weights = (float *)(void *)at;
        for (int s = 0; s < params->states; s++) {
            at += bytes;
            params->kept_state[s] = (float *)(void *)at;
        }
    }
}

/* The way of messages between tensors. */
static crl_status join(crl_rank *r, crl_comm *comm) {
    const crl_wire_kind *kind = NULL;
    crl_routes routes = {0};
    crl_status status = CRL_STATUS_OK;
    CRL_TRY(crl_alloc(&r->tensors, 1, sizeof *r->tensors));
    const crl_wire_config ask = {.host = comm, .device = r->backend->device, .stream = r->stream};
    CRL_TRY(crl_wire_find(&kind, r->layout->settings->comm.wire, &ask));
    crl_wire_config config = ask;
    if (kind && kind->uses_routes) {
        CRL_TRY_OUT(crl_routes_create(&routes, r));
    }
    config.route = routes.route;
    config.routes = routes.count;
    config.requests = most_requests(r);
    CRL_TRY_OUT(crl_comm_on_device(r->tensors, comm, kind, &config));
out:
    crl_routes_fini(&routes);
    return status;
}

crl_status crl_rank_bind(crl_rank *r, crl_comm *comm) {
    enum { EXCHANGES = 128 }; /* of tallies, and single messages */
    const crl_memory_report *m = &r->memory;
    r->comm = comm;
    CRL_TRY(crl_comm_reserve(comm, most_requests(r) + EXCHANGES));
    CRL_TRY(crl_device_alloc(r->backend->device, &r->reservation, m->total_bytes));
    CRL_TRY(join(r, comm));
    bind_params(r);
    char *at = r->reservation + m->weights_bytes + m->gradients_bytes + m->optimizer_bytes;
    char *activations = at + m->comm_bytes, *workspace = activations + m->activations_bytes;
    r->loss = (crl_loss *)(void *)at;
    at += losses_bytes(r);
    r->squares = (double *)(void *)at;
    at += squares_bytes(r);
    if (r->sync) {
        CRL_TRY(crl_grad_sync_bind(r->sync, r->tensors, at));
    }
    if (r->executor) {
        CRL_TRY(crl_executor_bind(r->executor, r->tensors, activations, workspace));
    }
    return crl_executor_bind(r->evaluate_executor, r->tensors, activations, workspace);
}

/* Nothing may be queued any more that reads or writes what is freed next. */
static void come_to_rest(crl_rank *r) {
    if (r->tensors) {
        crl_comm_leave_device(r->tensors);
        crl_free(r->tensors);
    }
    const crl_error first = *crl_error_get(); /* why we are here, if for a failure */
    if (crl_device_stream_wait(r->backend->device, r->stream) != CRL_STATUS_OK) {
        crl_error_set(&first);
    }
}

void crl_rank_destroy(crl_rank *r) {
    if (r) {
        crl_grad_sync_destroy(r->sync);
        come_to_rest(r);
        crl_executor_destroy(r->executor);
        crl_executor_destroy(r->evaluate_executor);
        crl_params_destroy(r->params);
        for (int s = 0; r->lane_plan && s < r->layout->plan->stages; s++) {
            crl_lane_plan_destroy(r->lane_plan[s]);
        }
        crl_free(r->lane_plan);
        crl_program_destroy(r->program);
        crl_program_destroy(r->evaluate_program);
        crl_device_free(r->backend->device, r->reservation);
        crl_free(r);
    }
}

crl_status crl_layout_memory_fits(const crl_layout *layout, const crl_memory_report *memory) {
    char at[512];
    const crl_settings *s = layout->settings;
    const size_t limit_bytes = (size_t)s->parallel.memory_limit_bytes;
    if (limit_bytes == 0 || memory->total_bytes <= limit_bytes) {
        return CRL_STATUS_OK;
    }
    return CRL_FAIL(UNSUPPORTED, "%s: a rank needs %zu bytes (%zu of activations), limit is %zu",
                    crl_config_where(&s->source, "parallel.memory_limit", at, sizeof at),
                    memory->total_bytes, memory->activations_bytes, limit_bytes);
}

crl_status crl_layout_memory(crl_memory_report *out, const crl_layout *layout, int rank) {
    crl_rank *r = NULL;
    CRL_TRY(crl_rank_create(&r, layout, rank, true, NULL));
    *out = r->memory;
    crl_rank_destroy(r);
    return CRL_STATUS_OK;
}
