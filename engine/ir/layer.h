/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer contract. A layer is one `const crl_layer` table: pure shape inference, preparation, and
 * forward / backward functions that are handed all their memory. Nothing here knows stages, ranks
 * or schedules. All functions see one micro-batch; a batch dimension B comes first in every tensor.
 */
#pragma once

#include "engine/carole.h"
#include "engine/kernels/kernels.h"
#include "engine/tensor/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum crl_init_kind {
    CRL_INIT_ZEROS = 0,
    CRL_INIT_ONES,
    CRL_INIT_NORMAL, /* mean 0, deviation init_scale */
    CRL_INIT_UNIFORM /* in [-init_scale, init_scale) */
} crl_init_kind;

typedef struct crl_param_spec {
    const char *name; /* "weight"; a constant */
    crl_shape shape;  /* f32: the master copy, its gradient and the optimizer's state */
    bool decay;       /* weight decay applies (matrices yes, biases and norms no) */
    bool f32;         /* calls get the master copy whatever they compute in (norms) */
    crl_init_kind init;
    double init_scale;
} crl_param_spec;

enum { CRL_PHASE_FORWARD = 0, CRL_PHASE_INPUT = 1, CRL_PHASE_WEIGHT = 2, CRL_PHASES = 3 };

/* Arithmetic and traffic of one micro-batch, by phase. */
typedef struct crl_layer_cost {
    double flops[CRL_PHASES];
    double bytes[CRL_PHASES]; /* read + written */
} crl_layer_cost;

/* What a layer instance is. The upper part is given to `infer`, which fills the rest. */
typedef struct crl_layer_spec {
    const char *node;    /* name, for messages */
    const void *options; /* parsed by the layer's table */
    int64_t batch;       /* B, samples of a micro-batch */
    crl_dtype compute;   /* F32, BF16 or F16: of inputs, outputs and their gradients */
    int inputs;
    crl_tensor_spec input[CRL_LAYER_MAX_INPUTS];

    int outputs;
    crl_tensor_spec output[CRL_LAYER_MAX_OUTPUTS];
    int params;
    crl_param_spec param[CRL_LAYER_MAX_PARAMS];
    int saves;
    crl_tensor_spec save[CRL_LAYER_MAX_SAVED]; /* extra results of forward that backward reads */
    /* Bit i: backward_input / backward_weight reads input i, output i, save i. */
    uint32_t input_needs_inputs, input_needs_outputs, input_needs_saves;
    uint32_t weight_needs_inputs, weight_needs_outputs, weight_needs_saves;
    uint32_t gradient_inputs; /* bit i: input i has a gradient (not tokens, not targets) */
    bool draws;               /* random numbers: the work of a call depends on the step */
    crl_layer_cost cost;
} crl_layer_spec;

/* Where the numbers of a call stand in the training run: the key of every random draw. */
typedef struct crl_call_position {
    uint64_t seed;
    uint32_t step;
    uint32_t node;         /* its key in the whole graph */
    int64_t first_sample;  /* of this micro-batch in the global batch */
    int64_t valid_samples; /* <= B; the rest is padding that must not count in the loss */
    bool training;         /* false: dropout passes through */
} crl_call_position;

/* Everything one call of forward or backward may touch: device memory, but for what it points to
 * itself. Activations and their gradients are of the values' types (spec->compute), parameters too
 * unless declared f32; gradients of parameters are f32. */
typedef struct crl_layer_call {
    const crl_layer_spec *spec;
    const void *state;          /* what `prepare` made; shared by all calls, never written */
    const crl_kernels *kernels; /* of spec->compute */
    crl_stream *stream;
    crl_call_position at;
    const void *x[CRL_LAYER_MAX_INPUTS]; /* NULL in backward where not declared as needed */
    void *y[CRL_LAYER_MAX_OUTPUTS];      /* NULL in backward where not declared as needed */
    const void *w[CRL_LAYER_MAX_PARAMS];
    void *save[CRL_LAYER_MAX_SAVED];
    const void *dy[CRL_LAYER_MAX_OUTPUTS];    /* NULL: that output has no gradient */
    void *dx[CRL_LAYER_MAX_INPUTS];           /* NULL: not wanted */
    bool dx_accumulate[CRL_LAYER_MAX_INPUTS]; /* false: dx = ..., true: dx += ... */
    float *dw[CRL_LAYER_MAX_PARAMS];
    bool dw_accumulate; /* false: dw = ... (first micro-batch of a lane), true: dw += ... */
    void *scratch;      /* scratch_bytes of the phase, contents undefined */
    crl_loss *loss;     /* loss layers add to it in forward; NULL elsewhere */
    float loss_scale;   /* what loss layers multiply their gradients by; a power of two */
} crl_layer_call;

/* What a layer gets to prepare itself. */
typedef struct crl_layer_env {
    const crl_device *device;
    const crl_kernels *kernels; /* of spec->compute */
    crl_stream *stream;         /* NULL: on the CPU, and where only sizes are asked for */
    bool training;              /* false: only forward will be called */
} crl_layer_env;

typedef struct crl_layer {
    const char *name;
    const char *help;
    const crl_option *options; /* NULL: none */
    size_t options_bytes;
    bool is_input; /* gets its output from the dataset: forward is never called */
    bool is_loss;  /* ends the graph: no outputs; fills call->loss; backward starts here */
    /* Of inputs that are real numbers; bit i: input i is taken in whatever type it has / in f32
     * whatever is computed in. The others are cast to what is computed in. */
    uint32_t as_is, f32_inputs;
    uint32_t in_place; /* bit i: dx i, where only written, may be the memory of input i */
    bool cheap; /* forward costs little beside the memory of its results: worth making again */
    /* Pure: checks input specs and options, fills the spec. INVALID "linear fc: ...". */
    crl_status (*infer)(crl_layer_spec *spec);
    /* Creates primitives; scratch_bytes[phase] is what calls will need. NULL: no state, no scratch.
     */
    crl_status (*prepare)(const crl_layer_spec *spec, const crl_layer_env *env, void **state,
                          size_t scratch_bytes[CRL_PHASES]);
    void (*release)(void *state);
    crl_status (*forward)(const crl_layer_call *call);
    /* dx (+)= ; NULL: no input has a gradient. */
    crl_status (*backward_input)(const crl_layer_call *call);
    /* dw (+)= ; NULL: no parameters. */
    crl_status (*backward_weight)(const crl_layer_call *call);
    /* Optional: both at once, with the same bits as one after the other; its scratch is the larger
     * of the two phases'. */
    crl_status (*backward)(const crl_layer_call *call);
    /* How parameters split over tensor shards: the dimension of each to cut, -1 none. NULL: the
     * layer is replicated on every shard. */
    crl_status (*shard)(const crl_layer_spec *spec, int shards,
                        int dimension[CRL_LAYER_MAX_PARAMS]);
} crl_layer;

#ifdef __cplusplus
}
#endif
