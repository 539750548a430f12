/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's life between launch and return. */
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/registry.h"
#include "engine/base/thread.h"
#include "engine/run/checkpoint.h"
#include "engine/run/hosts.h"
#include "engine/run/run_internal.h"

/* Measured costs must be the same on all ranks: rank 0 measures. */
static crl_status measure_costs(crl_session *s, double **out) {
    const crl_group world = {s->comm, NULL, s->comm->ranks, s->comm->rank, CRL_SESSION_CHANNEL};
    crl_layout *layout = NULL;
    double *node_s = NULL;
    crl_settings settings = *s->settings;
    settings.run.threads = s->threads; /* not the whole machine, as a job of one rank would take */
    CRL_TRY(crl_layout_create(&layout, &settings, s->registries, NULL));
    const size_t count = (size_t)layout->graph->nodes * CRL_PHASES;
    crl_layout_destroy(layout);
    crl_status status = s->comm->rank == 0 ? crl_layout_profile(&node_s, &settings, s->registries)
                                           : crl_alloc(&node_s, count, sizeof *node_s);
    if (status == CRL_STATUS_OK) {
        status = crl_broadcast(&world, 0, node_s, count * sizeof *node_s);
    }
    if (status) {
        crl_free(node_s);
        return status;
    }
    *out = node_s;
    return CRL_STATUS_OK;
}

crl_status crl_session_open(crl_session *s, const crl_settings *settings,
                            const crl_registries *registries, crl_comm *comm, bool training) {
    crl_status status = CRL_STATUS_OK;
    double *node_s = NULL;
    *s = (crl_session){.settings = settings, .registries = registries, .comm = comm};
    CRL_TRY(crl_hosts_choose_device(&s->stream, &s->threads, comm, settings));
    if (training && settings->train.profile) { /* an evaluation ends before it would pay */
        CRL_TRY(measure_costs(s, &node_s));
    }
    CRL_TRY_OUT(crl_layout_create(&s->layout, settings, registries, node_s));
    CRL_TRY_OUT(crl_mesh_check(&s->layout->mesh, comm->ranks));
    CRL_TRY_OUT(crl_rank_create(&s->rank, s->layout, comm->rank, training, s->stream));
    CRL_TRY_OUT(crl_layout_memory_fits(s->layout, &s->rank->memory));
    CRL_TRY_OUT(crl_hosts_reserve(&s->peak_bytes, comm, settings->backend->device,
                                  s->rank->memory.total_bytes));
    CRL_TRY_OUT(crl_rank_bind(s->rank, comm));
    CRL_TRY_OUT(crl_stepper_init(&s->stepper, s->rank, comm));
    CRL_TRY_OUT(crl_params_init(s->rank->params, (uint64_t)settings->train.seed));
    CRL_TRY_OUT(crl_params_round(s->rank->params, settings->backend));
out:
    crl_free(node_s);
    return status;
}

void crl_session_close(crl_session *s, bool failed) {
    if (failed && s->comm) {
        crl_comm_abort(s->comm);
    }
    crl_rank_destroy(s->rank); /* the device comes to rest before what it copies from is freed */
    crl_loader_destroy(s->evaluating);
    crl_stepper_fini(&s->stepper);
    crl_layout_destroy(s->layout);
    if (s->stream) {
        crl_device_stream_destroy(s->settings->backend->device, s->stream);
    }
}

/* The whole model's tensors in graph order, with this rank's copies and everyone's owners. */
typedef struct content {
    crl_checkpoint_content list;
    crl_checkpoint_tensor *param, *state;
    crl_arena arena;
} content;

static void content_fini(content *c) {
    crl_free(c->param);
    crl_free(c->state);
    crl_arena_fini(&c->arena);
}

static crl_status content_init(content *c, const crl_session *s) {
    const crl_graph *graph = s->layout->graph;
    const char *name[CRL_OPTIMIZER_MAX_STATES];
    const int states = s->layout->optimizer->states(s->settings->optimizer_options, name);
    *c = (content){0};
    CRL_TRY(crl_alloc(&c->param, (size_t)graph->params, sizeof *c->param));
    CRL_TRY(crl_alloc(&c->state, (size_t)(graph->params * states), sizeof *c->state));
    for (int p = 0; p < graph->params; p++) {
        const crl_param *param = &graph->param[p];
        const int stage = crl_plan_stage_of(s->layout->plan, param->use[0].node);
        const int owner = crl_mesh_rank(
            &s->layout->mesh, (crl_coordinates){s->layout->plan->stage[stage].position, 0, 0});
        c->param[p] = (crl_checkpoint_tensor){param->name, param->spec.shape,
                                              crl_params_weight(s->rank->params, p), owner};
        for (int k = 0; k < states; k++) {
            crl_checkpoint_tensor *t = &c->state[p * states + k];
            CRL_TRY(crl_arena_format(&c->arena, &t->name, "%s.%s", param->name, name[k]));
            t->shape = param->spec.shape;
            t->data = crl_params_state(s->rank->params, k, p);
            t->owner = owner;
        }
    }
    c->list = (crl_checkpoint_content){.param = c->param,
                                       .params = graph->params,
                                       .state = c->state,
                                       .states = graph->params * states,
                                       .device = s->settings->backend->device,
                                       .stream = s->stream};
    return CRL_STATUS_OK;
}

crl_status crl_session_load(crl_session *s, const crl_resume_point *from, bool with_state) {
    crl_status status = CRL_STATUS_OK;
    content c;
    CRL_TRY_OUT(content_init(&c, s));
    CRL_TRY_OUT(crl_checkpoint_load(from->path, &c.list, with_state));
    CRL_TRY_OUT(crl_params_round(s->rank->params, s->settings->backend));
    if (with_state && from->loss_scale > 0) {
        crl_loss_scale *scale = &s->stepper.scale;
        scale->scale = crl_loss_scale_chooses(scale) ? from->loss_scale : scale->scale;
        scale->good = from->loss_scale_good;
        scale->skipped = from->skipped;
    }
out:
    content_fini(&c);
    return status;
}

/* The model's options as texts that can be read back. */
static json_t *model_options(const crl_settings *settings) {
    json_t *texts = json_object();
    for (const crl_option *row = settings->model->options; row && row->name; row++) {
        char text[1024];
        row->type->show(row, (const char *)settings->model_options + row->offset, text,
                        sizeof text);
        json_object_set_new(texts, row->name, json_string(text));
    }
    return texts;
}

static void add_loss_scale(json_t *facts, const crl_loss_scale *scale) {
    json_object_set_new(facts, "loss_scale", json_real(scale->scale));
    json_object_set_new(facts, "loss_scale_good", json_integer(scale->good));
    json_object_set_new(facts, "skipped", json_integer(scale->skipped));
}

crl_status crl_session_save(crl_session *s, int64_t step, char *path, size_t path_bytes) {
    crl_status status = CRL_STATUS_OK;
    const crl_settings *settings = s->settings;
    content c;
    CRL_TRY_OUT(content_init(&c, s));
    c.list.facts = json_pack("{s:i, s:I, s:I, s:I, s:I, s:i, s:s, s:o, s:s, s:s}", "format",
                             CRL_CHECKPOINT_FORMAT, "step", (json_int_t)step, "seed",
                             (json_int_t)settings->train.seed, "global_batch",
                             (json_int_t)settings->train.global_batch, "micro_batch",
                             (json_int_t)settings->train.micro_batch, "lanes", s->layout->lanes,
                             "model", settings->model->name, "model_options",
                             model_options(settings), "optimizer", settings->optimizer_kind->name,
                             "precision", crl_dtype_name(crl_settings_compute(settings)));
    if (c.list.facts && settings->numerics.precision == CRL_PRECISION_F16) {
        add_loss_scale(c.list.facts, &s->stepper.scale);
    }
    if (!c.list.facts) {
        status = CRL_FAIL(NOMEM, "checkpoint of step %lld: no memory", (long long)step);
        goto out;
    }
    CRL_TRY_OUT(crl_checkpoint_save(s->comm, settings->run.directory, step,
                                    (int)settings->train.keep, &c.list, path, path_bytes));
out:
    json_decref(c.list.facts);
    content_fini(&c);
    return status;
}

crl_status crl_session_evaluate(crl_session *s, const crl_feed *feed, int64_t step,
                                crl_evaluation_report *out) {
    const crl_settings_train *train = &s->settings->train;
    const int64_t batch = train->evaluate_batch * s->layout->micro_batches;
    const int64_t begin_ns = crl_clock_ns();
    int64_t steps = (feed->samples + batch - 1) / batch;
    crl_loader_step data;
    crl_loss total = {0, 0, 0, 0};
    if (train->evaluate_steps > 0 && train->evaluate_steps < steps) {
        steps = train->evaluate_steps;
    }
    const crl_feed_range range = {0, false, train->evaluate_batch, s->layout->micro_batches, batch,
                                  0, steps};
    *out = (crl_evaluation_report){.step = step};
    CRL_TRY(crl_feed_loader(&s->evaluating, feed, s->rank, &range));
    for (int64_t i = 0; i < steps; i++) {
        CRL_TRY(crl_loader_next(s->evaluating, &data));
        CRL_TRY(crl_stepper_evaluate(&s->stepper, &data, &total));
        out->samples += (double)data.samples;
    }
    out->loss = total.weight > 0 ? total.sum / total.weight : 0;
    out->accuracy = total.rows > 0 ? total.correct / total.rows : 0;
    out->tokens = total.rows;
    out->seconds = (double)(crl_clock_ns() - begin_ns) * 1e-9;
    crl_loader_destroy(s->evaluating);
    s->evaluating = NULL;
    return CRL_STATUS_OK;
}

crl_status crl_session_launch(const crl_settings *settings, const crl_registries *registries,
                              int ranks, crl_comm_rank_fn run, void *argument) {
    const void *transport = NULL;
    CRL_TRY(crl_registry_find(&transport, registries->transports, "transport",
                              settings->comm.transport));
    return crl_comm_launch(transport, ranks, (int64_t)(settings->comm.deadline_s * 1e9), run,
                           argument);
}
