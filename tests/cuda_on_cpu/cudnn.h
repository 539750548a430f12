// SPDX-License-Identifier: Apache-2.0
// What tests say to the emulated cuDNN, and hear from it.
#pragma once

namespace cuda_on_cpu {

// Handles and descriptors that were made and not destroyed.
int cudnn_live();
// Whether plans are refused from now on, as on a device that has none.
void cudnn_refuse(bool refuse);
// Plans run since the last call.
int cudnn_take_runs();

} // namespace cuda_on_cpu
