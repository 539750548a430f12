/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that inherit what a carole thread carries (allocation watch, error rank), and the clock.
 */
#pragma once

#include <stdint.h>

#include "engine/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_thread crl_thread;
typedef crl_status (*crl_thread_fn)(void *argument);

/* Starts `run(argument)`. The thread has the starter's allocation watch and error rank. */
CRL_NODISCARD crl_status crl_thread_start(crl_thread **out, crl_thread_fn run, void *argument);
/* Waits for the end, frees the handle, returns what `run` returned; a failure's record becomes the
 * caller's. NULL is OK. */
crl_status crl_thread_join(crl_thread *thread);

int64_t crl_clock_ns(void); /* monotonic */
void crl_clock_sleep_ns(int64_t duration_ns);
int crl_cpu_count(void); /* cores this process may run on */

#ifdef __cplusplus
}
#endif
