/* SPDX-License-Identifier: Apache-2.0 */
/* What backward makes again instead of keeping. The bits are those of keeping everything. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CRL_RECOMPUTE_NONE = 0,
    CRL_RECOMPUTE_SELECTIVE, /* results that are cheap to make and large to keep [korthikanti22] */
    CRL_RECOMPUTE_FULL,      /* everything inside a block: its inputs are kept [chen16] */
    CRL_RECOMPUTES
};

#ifdef __cplusplus
}
#endif
