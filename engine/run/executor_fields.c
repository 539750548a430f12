/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dataset's fields on the device:
 *
 *     compute  ── step s reads set 0 ──────┬── step s+1 reads set 1 ──
 *                                     read[0]      ^ copied
 *     copies       ── s+1 into set 1 ──────────────┘    s+2 into set 0, after read[0]
 *
 * Refuses to hold more than two steps: the loader has as many.
 */
#include "engine/base/alloc.h"
#include "engine/run/executor_internal.h"
#include "engine/run/memory_plan.h"

/* Of this rank's micro-batches; the plan has seen that it does not overflow. */
static size_t field_bytes(const crl_executor *x, int field) {
    return x->config.plan->graph->value[x->field_value[field]].bytes * (size_t)x->config.own;
}

/* Both sets, with what rounding up adds. */
static crl_status check_bytes(const crl_executor *x, int field) {
    size_t bytes;
    const crl_value *value = &x->config.plan->graph->value[x->field_value[field]];
    return crl_size_mul(&bytes, value->bytes, 4 * (size_t)x->config.own, value->name);
}

crl_status crl_fields_plan(crl_executor *x) {
    crl_executor_fields_copy *copy = &x->copy;
    if (crl_device_is_host(x->config.backend->device)) {
        return CRL_STATUS_OK;
    }
    for (int f = 0; f < x->fields; f++) {
        CRL_TRY(check_bytes(x, f));
        copy->offset[f] = copy->set_bytes;
        CRL_TRY(crl_size_add(&copy->set_bytes, copy->set_bytes, crl_memory_round(field_bytes(x, f)),
                             "fields of the dataset"));
    }
    return CRL_STATUS_OK;
}

crl_status crl_fields_bind(crl_executor *x, char *memory) {
    const crl_device *device = x->config.backend->device;
    crl_executor_fields_copy *copy = &x->copy;
    if (copy->set_bytes == 0) {
        return CRL_STATUS_OK;
    }
    copy->memory = memory;
    CRL_TRY(crl_device_stream_create(device, &copy->stream));
    CRL_TRY(crl_device_event_create(device, &copy->copied));
    CRL_TRY(crl_device_event_create(device, &copy->read[0]));
    return crl_device_event_create(device, &copy->read[1]);
}

void crl_fields_fini(crl_executor *x) {
    const crl_device *device = x->config.backend->device;
    crl_device_stream_destroy(device, x->copy.stream);
    crl_device_event_destroy(device, x->copy.copied);
    crl_device_event_destroy(device, x->copy.read[0]);
    crl_device_event_destroy(device, x->copy.read[1]);
}

crl_status crl_fields_begin(crl_executor *x, const crl_executor_step *step) {
    const crl_device *device = x->config.backend->device;
    crl_executor_fields_copy *copy = &x->copy;
    if (copy->set_bytes == 0) {
        return CRL_STATUS_OK;
    }
    char *to = copy->memory + (size_t)copy->set * copy->set_bytes;
    CRL_TRY(crl_device_event_follow(device, copy->stream, copy->read[copy->set]));
    for (int f = 0; f < x->fields; f++) {
        CRL_TRY(crl_device_copy(device, copy->stream, to + copy->offset[f], step->field[f],
                                field_bytes(x, f)));
    }
    CRL_TRY(crl_device_event_record(device, copy->copied, copy->stream));
    return crl_device_event_follow(device, x->config.stream, copy->copied);
}

crl_status crl_fields_end(crl_executor *x) {
    crl_executor_fields_copy *copy = &x->copy;
    if (copy->set_bytes == 0) {
        return CRL_STATUS_OK;
    }
    const int set = copy->set;
    copy->set = x->records ? 0 : 1 - set; /* recorded work reads where it read */
    return crl_device_event_record(x->config.backend->device, copy->read[set], x->config.stream);
}

const char *crl_fields_at(const crl_executor *x, const crl_executor_step *step, int field) {
    const crl_executor_fields_copy *copy = &x->copy;
    return copy->set_bytes == 0
               ? step->field[field]
               : copy->memory + (size_t)copy->set * copy->set_bytes + copy->offset[field];
}
