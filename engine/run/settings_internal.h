/* SPDX-License-Identifier: Apache-2.0 */
/* What the tables of the settings (settings_tables.c) and their checks (settings.c) share. */
#pragma once

#include "engine/run/settings.h"

enum { CRL_SETTINGS_SECTIONS = 8 };

/* What the selecting sections need: registries in, chosen kinds out. */
typedef struct crl_settings_selection {
    const crl_registries *registries;
    const crl_model_def *own_model;
    crl_settings *settings;
} crl_settings_selection;

/* The sections, filling select->settings. The user's own model is the default for model.type: a
 * copy of the row with that default, in `own_model_table`. */
void crl_settings_sections(crl_config_section section[CRL_SETTINGS_SECTIONS + 1],
                           crl_option own_model_table[2], crl_settings_selection *select);
