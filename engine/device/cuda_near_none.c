/* SPDX-License-Identifier: Apache-2.0 */
/* Threads stay where they are: the build knows no hwloc. */
#include "engine/device/cuda_internal.h"

void crl_cuda_bind_near(const char *pci_bus_id) {
    (void)pci_bus_id;
}
