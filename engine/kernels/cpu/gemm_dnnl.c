/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Single-threaded matrix products through oneDNN. oneDNN chooses its blocking, and on some machines
 * the order of its sums, by the number of threads it sees when a primitive is created and, in some
 * implementations, when it is run; both happen here under a count of one, so neither can vary.
 * Refuses nothing by itself: sizes were checked by the callers.
 */
#include "engine/kernels/cpu/gemm_internal.h"

#include "engine/base/alloc.h"
#include "engine/kernels/cpu/cpu_internal.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>

struct crl_gemm {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_memory_desc_t a, b, bias, y, scratch;
    bool has_bias;
    size_t scratch_bytes;
};

enum { ARGUMENTS = 5 };

crl_status crl_gemm_failed(int code) {
    if (code == (int)dnnl_success)
        return CRL_STATUS_OK;
    if (code == (int)dnnl_out_of_memory)
        return CRL_FAIL(NOMEM, "oneDNN matrix product: out of memory");
    return CRL_FAIL(DEVICE, "oneDNN matrix product: code %d, expected 0", code);
}

static dnnl_status_t describe_matrix(dnnl_memory_desc_t *out, int64_t rows, int64_t columns,
                                     const dnnl_dims_t strides, crl_dtype type) {
    const dnnl_dims_t sizes = {rows, columns};
    const dnnl_data_type_t types[CRL_DTYPE_COUNT] = {
        [CRL_DTYPE_F32] = dnnl_f32, [CRL_DTYPE_BF16] = dnnl_bf16, [CRL_DTYPE_F16] = dnnl_f16};
    return dnnl_memory_desc_init_by_strides(out, 2, sizes, types[type], strides);
}

static dnnl_status_t describe(crl_gemm *gemm, const crl_gemm_config *f) {
    const dnnl_dims_t a = {f->a_row, f->a_column}, b = {f->b_row, f->b_column};
    const dnnl_dims_t y = {f->y_row, 1}, bias = {f->n, 1};
    const dnnl_status_t status[] = {
        describe_matrix(&gemm->a, f->m, f->k, a, f->type),
        describe_matrix(&gemm->b, f->k, f->n, b, f->type),
        describe_matrix(&gemm->y, f->m, f->n, y, f->y_type),
        describe_matrix(&gemm->bias, 1, f->n, bias, f->type),
    };
    dnnl_status_t worst = dnnl_success;
    for (size_t i = 0; i < sizeof status / sizeof *status; i++)
        worst = worst == dnnl_success ? status[i] : worst;
    return worst;
}

static dnnl_status_t add_to_output(dnnl_primitive_attr_t attributes) {
    dnnl_post_ops_t post_ops = NULL;
    dnnl_status_t status = dnnl_post_ops_create(&post_ops);
    if (status == dnnl_success)
        status = dnnl_post_ops_append_sum(post_ops, 1.0f);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(attributes, post_ops);
    dnnl_post_ops_destroy(post_ops);
    return status;
}

/* The primitive's description from `gemm`'s descriptors, with scratch given by the caller. */
static dnnl_status_t describe_primitive(dnnl_primitive_desc_t *out, const crl_gemm *gemm,
                                        bool add) {
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_matmul_desc_t operation;
    dnnl_status_t status = dnnl_primitive_attr_create(&attributes);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user);
    if (status == dnnl_success && add)
        status = add_to_output(attributes);
    if (status == dnnl_success)
        status = dnnl_matmul_desc_init(&operation, &gemm->a, &gemm->b,
                                       gemm->has_bias ? &gemm->bias : NULL, &gemm->y);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(out, &operation, attributes, gemm->engine, NULL);
    dnnl_primitive_attr_destroy(attributes);
    return status;
}

static dnnl_status_t create_primitive(crl_gemm *gemm, bool add) {
    dnnl_primitive_desc_t description = NULL;
    dnnl_status_t status = describe_primitive(&description, gemm, add);
    if (status == dnnl_success) {
        gemm->scratch = *dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);
        gemm->scratch_bytes = dnnl_memory_desc_get_size(&gemm->scratch);
        status = dnnl_primitive_create(&gemm->primitive, description);
    }
    dnnl_primitive_desc_destroy(description);
    return status;
}

static dnnl_status_t create_parts(crl_gemm *gemm, const crl_gemm_config *config) {
    gemm->has_bias = config->bias;
    dnnl_status_t status = describe(gemm, config);
    if (status == dnnl_success)
        status = dnnl_engine_create(&gemm->engine, dnnl_cpu, 0);
    if (status == dnnl_success)
        status = dnnl_stream_create(&gemm->stream, gemm->engine, dnnl_stream_default_flags);
    if (status != dnnl_success)
        return status;
    const int threads = crl_threads_begin();
    status = create_primitive(gemm, config->add);
    crl_threads_end(threads);
    return status;
}

bool crl_gemm_has(const crl_gemm_config *config) {
    crl_gemm gemm = {.has_bias = config->bias};
    dnnl_primitive_desc_t description = NULL;
    dnnl_status_t status = describe(&gemm, config);
    if (status == dnnl_success)
        status = dnnl_engine_create(&gemm.engine, dnnl_cpu, 0);
    const int threads = crl_threads_begin();
    if (status == dnnl_success)
        status = describe_primitive(&description, &gemm, config->add);
    crl_threads_end(threads);
    dnnl_primitive_desc_destroy(description);
    dnnl_engine_destroy(gemm.engine);
    return status == dnnl_success;
}

crl_status crl_gemm_create(crl_gemm **out, const crl_gemm_config *config) {
    crl_gemm *gemm = NULL;
    crl_status status;
    CRL_TRY_OUT(crl_alloc(&gemm, 1, sizeof *gemm));
    CRL_TRY_OUT(crl_gemm_failed((int)create_parts(gemm, config)));
    crl_count_primitive();
    *out = gemm;
    gemm = NULL;
out:
    crl_gemm_destroy(gemm);
    return status;
}

void crl_gemm_destroy(crl_gemm *gemm) {
    if (gemm == NULL)
        return;
    dnnl_primitive_destroy(gemm->primitive);
    dnnl_stream_destroy(gemm->stream);
    dnnl_engine_destroy(gemm->engine);
    crl_free(gemm);
}

size_t crl_gemm_scratch_bytes(const crl_gemm *gemm) {
    return gemm->scratch_bytes;
}

/* oneDNN's handles are not const, but inputs are only read. */
static void *unconst(const void *memory) {
    return (void *)(uintptr_t)memory;
}

int crl_gemm_run(const crl_gemm *gemm, const void *a, const void *b, const void *bias, void *y,
                 void *scratch) {
    const struct {
        int argument;
        const dnnl_memory_desc_t *desc;
        void *memory;
    } given[ARGUMENTS] = {
        {DNNL_ARG_SRC, &gemm->a, unconst(a)},
        {DNNL_ARG_WEIGHTS, &gemm->b, unconst(b)},
        {DNNL_ARG_DST, &gemm->y, y},
        {DNNL_ARG_SCRATCHPAD, &gemm->scratch, scratch},
        {DNNL_ARG_BIAS, &gemm->bias, unconst(bias)},
    };
    dnnl_exec_arg_t arguments[ARGUMENTS];
    int count = 0;
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < ARGUMENTS && status == dnnl_success; i++) {
        if ((given[i].argument == DNNL_ARG_SCRATCHPAD && gemm->scratch_bytes == 0) ||
            (given[i].argument == DNNL_ARG_BIAS && !gemm->has_bias))
            continue;
        arguments[count].arg = given[i].argument;
        status = dnnl_memory_create(&arguments[count].memory, given[i].desc, gemm->engine,
                                    given[i].memory);
        count += status == dnnl_success;
    }
    if (status == dnnl_success) {
        omp_set_num_threads(1);
        status = dnnl_primitive_execute(gemm->primitive, gemm->stream, count, arguments);
    }
    for (int i = 0; i < count; i++)
        dnnl_memory_destroy(arguments[i].memory);
    return (int)status;
}

void crl_gemm_describe(char *text, size_t text_bytes) {
    const dnnl_version_t *version = dnnl_version();
    const char *runtime = version->cpu_runtime == DNNL_RUNTIME_OMP   ? "OpenMP"
                          : version->cpu_runtime == DNNL_RUNTIME_TBB ? "TBB"
                          : version->cpu_runtime == DNNL_RUNTIME_SEQ ? "sequential"
                                                                     : "threads";
    snprintf(text, text_bytes, "oneDNN %d.%d.%d (%s)", version->major, version->minor,
             version->patch, runtime);
}
