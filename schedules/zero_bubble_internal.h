/* SPDX-License-Identifier: Apache-2.0 */
/* What zb-h1 and zb-h2 share: 1F1B with I and W apart, the one with twice the lead of the other. */
#pragma once

#include "engine/ir/schedule.h"

/* Stage s runs lead·(P-s-1) forwards ahead, then F and I in turn, and W lead·s micro-batches
 * behind I. NOMEM. */
crl_status crl_zero_bubble_emit(crl_program *program, int lead);
