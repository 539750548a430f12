/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the next step's data while the current step runs. Refuses to decide which samples those are
 * (sampler.h) or what they contain (dataset.h).
 *
 *     lent    step s      the caller computes on buffer s % 2
 *     filled  step s + 1  the thread reads into the other one, then waits for the next call
 *
 * All memory is there after create. The thread may write step t only when t - lent < 2.
 */
#include "engine/run/loader.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/thread.h"

enum { BUFFERS = 2 };

struct crl_loader {
    crl_loader_config config;
    crl_sampler *sampler; /* used by the thread only */
    size_t sample_bytes[CRL_DATASET_MAX_FIELDS];
    unsigned char *buffer[BUFFERS][CRL_DATASET_MAX_FIELDS];
    crl_thread *thread;

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t changed;
    int64_t lent;   /* the caller has this step, or waits for it */
    int64_t next;   /* to be asked for */
    int64_t filled; /* the steps before it have been read */
    int64_t samples[BUFFERS];
    bool stop;
    crl_status failure;
    crl_error error; /* the thread's record of it */
};

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

int64_t crl_loader_valid_samples(int64_t samples, int64_t micro_batch, int m) {
    const int64_t left = samples - m * micro_batch;
    return left < 0 ? 0 : smaller(left, micro_batch);
}

/* Places for samples in one buffer. */
static int64_t capacity(const crl_loader_config *config) {
    return (config->last_micro_batch - config->first_micro_batch) * config->micro_batch;
}

static crl_status fill(crl_loader *loader, int64_t step, int64_t *out_samples) {
    const crl_loader_config *config = &loader->config;
    const int64_t *id;
    int64_t samples;
    crl_sampler_get(loader->sampler, step, &id, &samples);
    const int64_t first = smaller(config->first_micro_batch * config->micro_batch, samples);
    const int64_t n = smaller(samples - first, capacity(config));
    for (int f = 0; f < config->fields; ++f) {
        unsigned char *buffer = loader->buffer[step % BUFFERS][f];
        const size_t bytes = (size_t)n * loader->sample_bytes[f];
        if (n > 0) {
            CRL_TRY(config->format->read(config->dataset, config->field[f], id + first, n, buffer));
        }
        memset(buffer + bytes, 0, (size_t)capacity(config) * loader->sample_bytes[f] - bytes);
    }
    *out_samples = samples;
    return CRL_STATUS_OK;
}

/* False when the loader is being destroyed. */
static bool wait_for_buffer(crl_loader *loader, int64_t step) {
    pthread_mutex_lock(&loader->lock);
    while (!loader->stop && step - loader->lent >= BUFFERS) {
        pthread_cond_wait(&loader->changed, &loader->lock);
    }
    const bool go = !loader->stop;
    pthread_mutex_unlock(&loader->lock);
    return go;
}

static void publish(crl_loader *loader, int64_t step, int64_t samples, crl_status status) {
    pthread_mutex_lock(&loader->lock);
    if (status == CRL_STATUS_OK) {
        loader->samples[step % BUFFERS] = samples;
        loader->filled = step + 1;
    } else {
        loader->failure = status;
        loader->error = *crl_error_get();
    }
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
}

/* Its failures are handed to the caller of crl_loader_next, so it always ends well. */
static crl_status run(void *argument) {
    crl_loader *loader = argument;
    crl_status status = CRL_STATUS_OK;
    for (int64_t step = loader->config.first_step;
         step < loader->config.last_step && status == CRL_STATUS_OK; ++step) {
        if (!wait_for_buffer(loader, step)) {
            break;
        }
        int64_t samples = 0;
        status = fill(loader, step, &samples);
        publish(loader, step, samples, status);
    }
    return CRL_STATUS_OK;
}

static crl_status check_fields(const crl_loader_config *config) {
    const crl_field *field;
    const int fields = config->format->fields(config->dataset, &field);
    if (config->fields < 0 || config->fields > CRL_DATASET_MAX_FIELDS) {
        return CRL_FAIL(INVALID, "loader: %d fields, expected 0 to %d", config->fields,
                        CRL_DATASET_MAX_FIELDS);
    }
    for (int f = 0; f < config->fields; ++f) {
        if (config->field[f] < 0 || config->field[f] >= fields) {
            return CRL_FAIL(INVALID, "loader: field %d asked for, data set %s has %d",
                            config->field[f], config->format->name, fields);
        }
    }
    return CRL_STATUS_OK;
}

static crl_status check_config(const crl_loader_config *config) {
    const int64_t samples = config->format->count(config->dataset);
    if (config->sampler.samples > samples) {
        return CRL_FAIL(INVALID, "loader: sampler has %" PRId64 " samples, data set %" PRId64,
                        config->sampler.samples, samples);
    }
    if (config->micro_batch < 1 || config->micro_batch > INT32_MAX) {
        return CRL_FAIL(INVALID, "loader: micro-batch is %" PRId64 ", expected 1 to %d",
                        config->micro_batch, INT32_MAX);
    }
    if (config->first_micro_batch < 0 || config->last_micro_batch < config->first_micro_batch) {
        return CRL_FAIL(INVALID, "loader: micro-batches [%d, %d), expected an ascending range",
                        config->first_micro_batch, config->last_micro_batch);
    }
    if (config->first_step < 0 || config->last_step < config->first_step) {
        return CRL_FAIL(INVALID,
                        "loader: steps [%" PRId64 ", %" PRId64 "), expected an ascending range",
                        config->first_step, config->last_step);
    }
    return check_fields(config);
}

static crl_status create_buffers(crl_loader *loader) {
    const crl_loader_config *config = &loader->config;
    const crl_field *field;
    config->format->fields(config->dataset, &field);
    for (int f = 0; f < config->fields; ++f) {
        const crl_field *wanted = &field[config->field[f]];
        CRL_TRY(crl_tensor_bytes(&loader->sample_bytes[f], &wanted->spec, wanted->name));
        for (int b = 0; b < BUFFERS; ++b) {
            size_t bytes;
            CRL_TRY(crl_size_mul(&bytes, (size_t)capacity(config), loader->sample_bytes[f],
                                 wanted->name));
            CRL_TRY(crl_device_host_alloc(config->device, &loader->buffer[b][f], bytes));
        }
    }
    return CRL_STATUS_OK;
}

crl_status crl_loader_create(crl_loader **out, const crl_loader_config *config) {
    crl_status status;
    crl_loader *loader = NULL;
    CRL_TRY(check_config(config));
    CRL_TRY(crl_alloc(&loader, 1, sizeof *loader));
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->changed, NULL);
    loader->config = *config;
    loader->config.device = config->device ? config->device : &crl_device_cpu;
    loader->lent = loader->next = loader->filled = config->first_step;
    /* A rank that reads nothing needs the number of samples, but not their order. */
    crl_sampler_config order = config->sampler;
    order.shuffle = order.shuffle && config->fields > 0;
    CRL_TRY_OUT(crl_sampler_create(&loader->sampler, &order));
    CRL_TRY_OUT(create_buffers(loader));
    CRL_TRY_OUT(crl_thread_start(&loader->thread, run, loader));
    *out = loader;
    loader = NULL;
out:
    crl_loader_destroy(loader);
    return status;
}

void crl_loader_destroy(crl_loader *loader) {
    if (!loader) {
        return;
    }
    pthread_mutex_lock(&loader->lock);
    loader->stop = true;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
    const crl_status status = crl_thread_join(loader->thread);
    CRL_ASSERT(status == CRL_STATUS_OK);
    for (int b = 0; b < BUFFERS; ++b) {
        for (int f = 0; f < loader->config.fields; ++f) {
            crl_device_host_free(loader->config.device, loader->buffer[b][f]);
        }
    }
    crl_sampler_destroy(loader->sampler);
    pthread_cond_destroy(&loader->changed);
    pthread_mutex_destroy(&loader->lock);
    crl_free(loader);
}

/* With the lock held. */
static crl_status wait_for_data(crl_loader *loader, crl_loader_step *out) {
    const int64_t step = loader->next;
    if (step >= loader->config.last_step) {
        return CRL_FAIL(INVALID, "loader: step %" PRId64 " asked for, expected below %" PRId64,
                        step, loader->config.last_step);
    }
    loader->lent = step;
    pthread_cond_broadcast(&loader->changed);
    while (loader->filled <= step && loader->failure == CRL_STATUS_OK) {
        pthread_cond_wait(&loader->changed, &loader->lock);
    }
    if (loader->filled <= step) {
        crl_error_set(&loader->error);
        return loader->failure;
    }
    loader->next = step + 1;
    *out = (crl_loader_step){.samples = loader->samples[step % BUFFERS]};
    for (int f = 0; f < loader->config.fields; ++f) {
        out->data[f] = loader->buffer[step % BUFFERS][f];
    }
    return CRL_STATUS_OK;
}

crl_status crl_loader_next(crl_loader *loader, crl_loader_step *out) {
    pthread_mutex_lock(&loader->lock);
    const crl_status status = wait_for_data(loader, out);
    pthread_mutex_unlock(&loader->lock);
    return status;
}
