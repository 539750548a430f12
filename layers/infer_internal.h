/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the shape inference of every layer does: check inputs, append outputs, parameters and saved
 * tensors with overflow-checked sizes, and count bytes. `type` is the layer's name and begins every
 * message. All are pure; failures are INVALID, one line each.
 */
#pragma once

#include "engine/ir/layer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Clears what inference fills and checks that there are `least` to `most` inputs. */
CRL_NODISCARD crl_status crl_infer_begin(crl_layer_spec *spec, const char *type, int least,
                                         int most);
/* Input `input` has this type and at least `dimensions` dimensions, the first being the batch. */
CRL_NODISCARD crl_status crl_infer_input(const crl_layer_spec *spec, const char *type, int input,
                                         crl_dtype dtype, int dimensions);
/* Input `input` is exactly `expected`. */
CRL_NODISCARD crl_status crl_infer_input_is(const crl_layer_spec *spec, const char *type, int input,
                                            const crl_tensor_spec *expected);
/* Append to the spec. */
CRL_NODISCARD crl_status crl_infer_output(crl_layer_spec *spec, const char *type, crl_dtype dtype,
                                          crl_shape shape);
CRL_NODISCARD crl_status crl_infer_save(crl_layer_spec *spec, const char *type, crl_dtype dtype,
                                        crl_shape shape);
CRL_NODISCARD crl_status crl_infer_param(crl_layer_spec *spec, const char *type,
                                         const crl_param_spec *param);

/* Size of the last dimension, and the number of rows of that size. */
int64_t crl_infer_last(const crl_tensor_spec *tensor);
int64_t crl_infer_rows(const crl_tensor_spec *tensor);
double crl_infer_elements(const crl_tensor_spec *tensor);

/* Bytes of a parameter as calls read it. */
double crl_infer_param_bytes(const crl_layer_spec *spec, int param);
/* Fills cost.bytes from the needs-masks: everything declared is read once, every result is written
 * once, and weight gradients are read as well (they are added to). Call it last.
 * `input_reads_params`: the input gradient reads the parameters. */
void crl_infer_bytes(crl_layer_spec *spec, bool input_reads_params);

#ifdef __cplusplus
}
#endif
