/* SPDX-License-Identifier: Apache-2.0 */
/* See norm_internal.h. */
#include "layers/norm_internal.h"

#include "layers/infer_internal.h"

crl_status crl_norm_infer(crl_layer_spec *spec, const crl_norm_config *config) {
    const crl_tensor_spec *x = &spec->input[0];
    crl_param_spec param = {.name = "weight",
                            .shape = CRL_SHAPE(crl_infer_last(x)),
                            .f32 = true,
                            .init = CRL_INIT_ONES};
    CRL_TRY(crl_infer_param(spec, config->type, &param));
    if (config->bias) {
        param.name = "bias";
        param.init = CRL_INIT_ZEROS;
        CRL_TRY(crl_infer_param(spec, config->type, &param));
    }
    crl_shape rows = x->shape;
    rows.dimensions -= 1;
    for (int i = 0; i < config->statistics; ++i) {
        CRL_TRY(crl_infer_save(spec, config->type, CRL_DTYPE_F32, rows));
    }
    spec->input_needs_saves = spec->weight_needs_saves = (1u << config->statistics) - 1;
    for (int phase = 0; phase < CRL_PHASES; ++phase) {
        spec->cost.flops[phase] = config->flops[phase] * crl_infer_elements(x);
    }
    crl_infer_bytes(spec, true);
    return CRL_STATUS_OK;
}

crl_status crl_norm_prepare(const crl_layer_spec *spec, const crl_layer_env *env, void **state,
                            size_t scratch_bytes[CRL_PHASES]) {
    const crl_tensor_spec *x = &spec->input[0];
    *state = NULL;
    scratch_bytes[CRL_PHASE_FORWARD] = scratch_bytes[CRL_PHASE_INPUT] = 0;
    scratch_bytes[CRL_PHASE_WEIGHT] =
        env->training ? env->kernels->layernorm->scratch_bytes(crl_infer_rows(x), crl_infer_last(x))
                      : 0;
    return CRL_STATUS_OK;
}
