/* SPDX-License-Identifier: Apache-2.0 */
/* The descriptor list, as the graph builder reads it. */
#pragma once

#include "engine/base/arena.h"
#include "engine/carole.h"

struct crl_model {
    crl_arena arena; /* all texts */
    int layers, capacity;
    crl_layer_desc *layer;
    bool exhausted; /* a crl_model_text could not get memory */
};
