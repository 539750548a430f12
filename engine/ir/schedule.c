/* SPDX-License-Identifier: Apache-2.0 */
/* What can be said of a request by a schedule's table alone, before anything is built. */
#include "engine/ir/schedule.h"

#include <stdio.h>

crl_status crl_schedule_check_stages(const crl_schedule *schedule, int positions, int stages) {
    const int each = stages / positions;
    if (stages % positions == 0 && each >= schedule->least_virtual &&
        (schedule->most_virtual == 0 || each <= schedule->most_virtual)) {
        return CRL_STATUS_OK;
    }
    char most[32] = " or more";
    if (schedule->least_virtual == schedule->most_virtual) {
        most[0] = '\0';
    } else if (schedule->most_virtual > 0) {
        snprintf(most, sizeof most, " to %d", schedule->most_virtual);
    }
    return CRL_FAIL(INVALID, "%s: %d stages on %d positions, expected %d%s virtual stages on each",
                    schedule->name, stages, positions, schedule->least_virtual, most);
}
