/* SPDX-License-Identifier: Apache-2.0 */
/* The shared part of shape inference. Knows no layer; refuses to look at memory. */
#include "layers/infer_internal.h"

#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 128, WHAT_BYTES = 192 };

/* "input" of a layer that has one, else "input 1". */
static const char *input_text(const crl_layer_spec *spec, int input, char text[TEXT_BYTES]) {
    if (spec->inputs == 1) {
        return "input";
    }
    snprintf(text, TEXT_BYTES, "input %d", input);
    return text;
}

static const char *plural(int count) {
    return count == 1 ? "" : "s";
}

crl_status crl_infer_begin(crl_layer_spec *spec, const char *type, int least, int most) {
    spec->outputs = spec->params = spec->saves = 0;
    spec->input_needs_inputs = spec->input_needs_outputs = spec->input_needs_saves = 0;
    spec->weight_needs_inputs = spec->weight_needs_outputs = spec->weight_needs_saves = 0;
    spec->gradient_inputs = 0;
    spec->draws = false;
    memset(&spec->cost, 0, sizeof spec->cost);
    if (spec->inputs >= least && spec->inputs <= most) {
        return CRL_STATUS_OK;
    }
    char range[TEXT_BYTES];
    snprintf(range, sizeof range, least == most ? "%d" : "%d to %d", least, most);
    return CRL_FAIL(INVALID, "%s %s: has %d input%s, expected %s", type, spec->node, spec->inputs,
                    plural(spec->inputs), range);
}

crl_status crl_infer_input(const crl_layer_spec *spec, const char *type, int input, crl_dtype dtype,
                           int dimensions) {
    const crl_tensor_spec *x = &spec->input[input];
    char name[TEXT_BYTES], given[TEXT_BYTES];
    if (x->dtype != dtype) {
        return CRL_FAIL(INVALID, "%s %s: %s is %s, expected %s elements", type, spec->node,
                        input_text(spec, input, name), crl_tensor_text(x, given, sizeof given),
                        crl_dtype_name(dtype));
    }
    if (x->shape.dimensions < dimensions) {
        return CRL_FAIL(INVALID, "%s %s: %s has %d dimension%s, expected at least %d", type,
                        spec->node, input_text(spec, input, name), x->shape.dimensions,
                        plural(x->shape.dimensions), dimensions);
    }
    if (x->shape.dimensions > 0 && x->shape.size[0] != spec->batch) {
        return CRL_FAIL(INVALID, "%s %s: %s is %s, expected %lld samples", type, spec->node,
                        input_text(spec, input, name), crl_tensor_text(x, given, sizeof given),
                        (long long)spec->batch);
    }
    return CRL_STATUS_OK;
}

crl_status crl_infer_input_is(const crl_layer_spec *spec, const char *type, int input,
                              const crl_tensor_spec *expected) {
    const crl_tensor_spec *x = &spec->input[input];
    if (x->dtype == expected->dtype && crl_shape_equal(&x->shape, &expected->shape)) {
        return CRL_STATUS_OK;
    }
    char name[TEXT_BYTES], given[TEXT_BYTES], wanted[TEXT_BYTES];
    return CRL_FAIL(INVALID, "%s %s: %s is %s, expected %s", type, spec->node,
                    input_text(spec, input, name), crl_tensor_text(x, given, sizeof given),
                    crl_tensor_text(expected, wanted, sizeof wanted));
}

static crl_status check_bytes(const crl_layer_spec *spec, const char *type, const char *part,
                              const crl_tensor_spec *tensor) {
    char what[WHAT_BYTES];
    size_t bytes;
    snprintf(what, sizeof what, "%s %s: %s", type, spec->node, part);
    return crl_tensor_bytes(&bytes, tensor, what);
}

crl_status crl_infer_output(crl_layer_spec *spec, const char *type, crl_dtype dtype,
                            crl_shape shape) {
    CRL_ASSERT(spec->outputs < CRL_LAYER_MAX_OUTPUTS);
    const crl_tensor_spec tensor = {dtype, shape};
    CRL_TRY(check_bytes(spec, type, "output", &tensor));
    spec->output[spec->outputs++] = tensor;
    return CRL_STATUS_OK;
}

crl_status crl_infer_save(crl_layer_spec *spec, const char *type, crl_dtype dtype,
                          crl_shape shape) {
    CRL_ASSERT(spec->saves < CRL_LAYER_MAX_SAVED);
    const crl_tensor_spec tensor = {dtype, shape};
    CRL_TRY(check_bytes(spec, type, "saved tensor", &tensor));
    spec->save[spec->saves++] = tensor;
    return CRL_STATUS_OK;
}

crl_status crl_infer_param(crl_layer_spec *spec, const char *type, const crl_param_spec *param) {
    CRL_ASSERT(spec->params < CRL_LAYER_MAX_PARAMS);
    const crl_tensor_spec tensor = {CRL_DTYPE_F32, param->shape};
    CRL_TRY(check_bytes(spec, type, param->name, &tensor));
    spec->param[spec->params++] = *param;
    return CRL_STATUS_OK;
}

int64_t crl_infer_last(const crl_tensor_spec *tensor) {
    return tensor->shape.size[tensor->shape.dimensions - 1];
}

int64_t crl_infer_rows(const crl_tensor_spec *tensor) {
    return crl_shape_product(&tensor->shape, 0, tensor->shape.dimensions - 1);
}

double crl_infer_elements(const crl_tensor_spec *tensor) {
    return (double)crl_shape_elements(&tensor->shape);
}

static double tensor_bytes(const crl_tensor_spec *tensor) {
    return crl_infer_elements(tensor) * (double)crl_dtype_bytes(tensor->dtype);
}

static double masked_bytes(const crl_tensor_spec *tensor, int count, uint32_t mask) {
    double bytes = 0;
    for (int i = 0; i < count; ++i) {
        bytes += mask >> i & 1 ? tensor_bytes(&tensor[i]) : 0;
    }
    return bytes;
}

double crl_infer_param_bytes(const crl_layer_spec *spec, int param) {
    const crl_param_spec *given = &spec->param[param];
    const crl_tensor_spec read = {given->f32 ? CRL_DTYPE_F32 : spec->compute, given->shape};
    return tensor_bytes(&read);
}

void crl_infer_bytes(crl_layer_spec *spec, bool input_reads_params) {
    double params = 0, gradients = 0;
    for (int i = 0; i < spec->params; ++i) {
        const crl_tensor_spec gradient = {CRL_DTYPE_F32, spec->param[i].shape};
        params += crl_infer_param_bytes(spec, i);
        gradients += tensor_bytes(&gradient);
    }
    const double outputs = masked_bytes(spec->output, spec->outputs, ~0u); /* also those of dy */
    double *bytes = spec->cost.bytes;
    bytes[CRL_PHASE_FORWARD] = masked_bytes(spec->input, spec->inputs, ~0u) + params + outputs +
                               masked_bytes(spec->save, spec->saves, ~0u);
    bytes[CRL_PHASE_INPUT] = 0;
    if (spec->gradient_inputs != 0) {
        bytes[CRL_PHASE_INPUT] =
            outputs + (input_reads_params ? params : 0) +
            masked_bytes(spec->input, spec->inputs, spec->gradient_inputs) + /* dx */
            masked_bytes(spec->input, spec->inputs, spec->input_needs_inputs) +
            masked_bytes(spec->output, spec->outputs, spec->input_needs_outputs) +
            masked_bytes(spec->save, spec->saves, spec->input_needs_saves);
    }
    bytes[CRL_PHASE_WEIGHT] = 0;
    if (spec->params != 0) {
        bytes[CRL_PHASE_WEIGHT] =
            outputs + 2 * gradients +
            masked_bytes(spec->input, spec->inputs, spec->weight_needs_inputs) +
            masked_bytes(spec->output, spec->outputs, spec->weight_needs_outputs) +
            masked_bytes(spec->save, spec->saves, spec->weight_needs_saves);
    }
}
