/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders of a profile's units. Stages are ranges of one topological order; where units branch there
 * are many, and which one is cut decides what has to cross. Pure.
 */
#pragma once

#include "engine/ir/profile.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A way to choose the next unit among those whose inputs are all there. */
typedef struct crl_order {
    const char *name;
    const char *help;
    /* Of two units that could be next: true when a comes before b. `since` tells when each became
     * possible, `grows_bytes` what has to be kept the more for readers after it. */
    bool (*before)(const int since[2], const double grows_bytes[2], const int unit[2]);
} crl_order;

/* Ends with a row whose name is NULL. */
extern const crl_order crl_orders[];

/* The units in that order. `order` NULL: in one that `shuffle` decides, another number another
 * order. NOMEM. */
CRL_NODISCARD crl_status crl_order_make(int *out, /* (units) */
                                        const crl_profile *profile, const crl_order *order,
                                        unsigned shuffle);
/* What crosses a cut after the j-th unit of an order, one direction. NOMEM. */
CRL_NODISCARD crl_status crl_order_crossing(double *out, /* (units) */
                                            const crl_profile *profile, const int *order);

#ifdef __cplusplus
}
#endif
