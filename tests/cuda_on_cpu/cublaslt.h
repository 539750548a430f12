// SPDX-License-Identifier: Apache-2.0
// What tests say to the emulated cuBLASLt, and hear from it.
#pragma once

#include <string>

namespace cuda_on_cpu {

// Handles and descriptors that were made and not destroyed.
int cublaslt_live();
// The next `count` questions for an algorithm are answered with none.
void cublaslt_refuse(int count);
// Products queued since the last call, a word each: "product", "bias", "gelu", "gelu-bias",
// "dgelu" or "sums", with "-tf32" behind those that may round.
std::string cublaslt_take_products();

} // namespace cuda_on_cpu
