/* SPDX-License-Identifier: Apache-2.0 */
/* Threads near their GPU, through hwloc. Refuses to undo what a launcher did: only a thread that
 * may run on the whole machine is moved. */
#include "engine/device/cuda_internal.h"

#include <hwloc.h>

/* The cores of the smallest part of the machine that holds the PCI device; NULL: unknown. */
static hwloc_const_cpuset_t cores_near(hwloc_topology_t topology, const char *pci_bus_id) {
    const hwloc_obj_t gpu = hwloc_get_pcidev_by_busidstring(topology, pci_bus_id);
    const hwloc_obj_t part = gpu ? hwloc_get_non_io_ancestor_obj(topology, gpu) : NULL;
    return part ? part->cpuset : NULL;
}

static void bind_thread(hwloc_topology_t topology, hwloc_const_cpuset_t near) {
    const hwloc_cpuset_t now = hwloc_bitmap_alloc();
    if (now && hwloc_get_cpubind(topology, now, HWLOC_CPUBIND_THREAD) == 0 &&
        hwloc_bitmap_isincluded(hwloc_topology_get_topology_cpuset(topology), now))
        (void)hwloc_set_cpubind(topology, near, HWLOC_CPUBIND_THREAD);
    hwloc_bitmap_free(now);
}

void crl_cuda_bind_near(const char *pci_bus_id) {
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0)
        return;
    if (hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) == 0 &&
        hwloc_topology_load(topology) == 0) {
        const hwloc_const_cpuset_t near = cores_near(topology, pci_bus_id);
        if (near && !hwloc_bitmap_iszero(near))
            bind_thread(topology, near);
    }
    hwloc_topology_destroy(topology);
}
