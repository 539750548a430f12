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

/* Starts `run(argument)`, to be joined. The thread has the starter's allocation watch and error
 * rank. NOMEM. */
CRL_NODISCARD crl_status crl_thread_start(crl_thread **out, crl_thread_fn run, void *argument);
/* Blocks until the end, frees the handle, returns what `run` returned; a failure's record becomes
 * the caller's. NULL is OK. */
crl_status crl_thread_join(crl_thread *thread);

/* Nanoseconds since some start; never runs backwards, the same for all threads. */
int64_t crl_clock_ns(void);
/* Blocks for at least that long; not at all when it is 0 or less. */
void crl_clock_sleep_ns(int64_t duration_ns);
/* Cores this process may run on. */
int crl_cpu_count(void);

#ifdef __cplusplus
}
#endif
