/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes a schedule is asked for. */
#include "schedules/request_internal.h"

crl_status crl_schedule_check_request(const char *name, const crl_schedule_request *request,
                                      bool virtual_stages) {
    const int positions = request->positions, stages = request->stages;
    if (positions < 1 || stages < 1 || request->micro_batches < 1) {
        return CRL_FAIL(INVALID,
                        "%s: %d positions, %d stages, %d micro-batches, expected 1 or more", name,
                        positions, stages, request->micro_batches);
    }
    if (!virtual_stages && stages != positions) {
        return CRL_FAIL(INVALID, "%s: %d stages on %d positions, expected one stage each", name,
                        stages, positions);
    }
    if (virtual_stages && (stages == positions || stages % positions != 0)) {
        return CRL_FAIL(INVALID,
                        "%s: %d stages on %d positions, expected 2 or more virtual stages "
                        "on each",
                        name, stages, positions);
    }
    for (int s = 1; request->widths && s < stages; s++) {
        if (request->widths[s] != request->widths[0]) {
            return CRL_FAIL(INVALID, "%s: stage %d has %d replicas, expected %d as stage 0", name,
                            s, request->widths[s], request->widths[0]);
        }
    }
    return CRL_STATUS_OK;
}
