/* SPDX-License-Identifier: Apache-2.0 */
/* The built-in plug-ins as tables, each made from the .def list that stands beside their files. */
#include "cli/builtins.h"

#include "engine/comm/transport.h"
#include "engine/ir/layer.h"
#include "engine/ir/partitioner.h"
#include "engine/ir/schedule.h"
#include "engine/kernels/kernels.h"
#include "engine/run/dataset.h"
#include "engine/run/optimizer.h"
#include "engine/run/tokenizer.h"

#define CRL_MODEL(x)       extern const crl_model_def crl_model_##x;
#define CRL_LAYER(x)       extern const crl_layer crl_layer_##x;
#define CRL_SCHEDULE(x)    extern const crl_schedule crl_schedule_##x;
#define CRL_PARTITIONER(x) extern const crl_partitioner crl_partitioner_##x;
#define CRL_OPTIMIZER(x)   extern const crl_optimizer crl_optimizer_##x;
#define CRL_DATASET(x)     extern const crl_dataset_format crl_dataset_##x;
#include "engine/run/datasets.def"
#include "engine/run/optimizers.def"
#include "layers/layers.def"
#include "models/models.def"
#include "partition/partitioners.def"
#include "schedules/schedules.def"
#undef CRL_MODEL
#undef CRL_LAYER
#undef CRL_SCHEDULE
#undef CRL_PARTITIONER
#undef CRL_OPTIMIZER
#undef CRL_DATASET

static const void *const models[] = {
#define CRL_MODEL(x) &crl_model_##x,
#include "models/models.def"
    NULL};

static const void *const layers[] = {
#define CRL_LAYER(x) &crl_layer_##x,
#include "layers/layers.def"
    NULL};

static const void *const schedules[] = {
#define CRL_SCHEDULE(x) &crl_schedule_##x,
#include "schedules/schedules.def"
    NULL};

static const void *const partitioners[] = {
#define CRL_PARTITIONER(x) &crl_partitioner_##x,
#include "partition/partitioners.def"
    NULL};

static const void *const optimizers[] = {
#define CRL_OPTIMIZER(x) &crl_optimizer_##x,
#include "engine/run/optimizers.def"
    NULL};

static const void *const datasets[] = {
#define CRL_DATASET(x) &crl_dataset_##x,
#include "engine/run/datasets.def"
    NULL};

static const void *const transports[] = {
#define CRL_TRANSPORT(x) &crl_transport_##x,
#include "cli/transports.def"
    NULL};

static const void *const backends[] = {
#define CRL_BACKEND(x) &crl_backend_##x,
#include "cli/backends.def"
    NULL};

static const crl_registries builtins = {.models = models,
                                        .layers = layers,
                                        .schedules = schedules,
                                        .partitioners = partitioners,
                                        .optimizers = optimizers,
                                        .datasets = datasets,
                                        .transports = transports,
                                        .tokenizers = crl_tokenizers,
                                        .backends = backends};

const crl_registries *crl_builtins(void) {
    return &builtins;
}
