/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Schedules that keep a memory limit know what micro-batches hold, not what else a rank reserves
 * while it runs. They are given less until the whole reservation fits. Pure: all ranks come to the
 * same.
 */
#include "engine/run/layout_internal.h"

enum { TRIES = 8 };

bool crl_layout_keeps_limit(const crl_layout *layout) {
    return layout->settings->parallel.memory_limit_bytes > 0 && layout->schedule &&
           layout->schedule->keeps_limit;
}

static crl_status most_reserved(double *out, const crl_layout *layout) {
    const int pipeline = crl_layout_fullest_pipeline(layout);
    *out = 0;
    for (int row = 0; row < crl_mesh_rows(&layout->mesh); row++) {
        crl_memory_report report;
        CRL_TRY(crl_layout_memory(&report, layout,
                                  crl_mesh_rank_of_row(&layout->mesh, pipeline, row)));
        *out = (double)report.total_bytes > *out ? (double)report.total_bytes : *out;
    }
    return CRL_STATUS_OK;
}

crl_status crl_layout_fit(crl_layout *layout) {
    const double limit_bytes = (double)layout->settings->parallel.memory_limit_bytes;
    if (!crl_layout_keeps_limit(layout)) {
        return CRL_STATUS_OK;
    }
    for (int i = 0; i < TRIES && layout->activation_limit_bytes > 0; i++) {
        double reserved_bytes;
        CRL_TRY(most_reserved(&reserved_bytes, layout));
        const double over_bytes = reserved_bytes - limit_bytes;
        /* Steps that grow: a byte less than enough may change nothing. */
        const double step_bytes = layout->activation_limit_bytes / (1 << (TRIES - i));
        const double less_bytes = over_bytes > step_bytes ? over_bytes : step_bytes;
        if (over_bytes <= 0 || less_bytes >= layout->activation_limit_bytes) {
            return CRL_STATUS_OK; /* fits, or cannot: whoever reserves says so */
        }
        layout->activation_limit_bytes -= less_bytes;
    }
    return CRL_STATUS_OK;
}
