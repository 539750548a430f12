/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything built in, by kind: the only place where all registries meet. A program with layers,
 * schedules or formats of its own copies the struct, puts longer lists in, and calls crl_main_with.
 */
#pragma once

#include "engine/carole.h"
#include "engine/run/registries.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Lends a constant. */
CRL_API const crl_registries *crl_builtins(void);

/* crl_main with registries of the caller's instead of the built-in ones. */
CRL_API int crl_main_with(int argc, char **argv, const crl_model_def *model,
                          const crl_registries *registries);

#ifdef __cplusplus
}
#endif
