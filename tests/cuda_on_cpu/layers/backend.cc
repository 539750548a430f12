// SPDX-License-Identifier: Apache-2.0
// The conformance suite of layers runs on the CUDA backend.
#include "tests/layers/guarded.h"

namespace layer_test {

const crl_backend *backend() {
    return &crl_backend_cuda;
}

} // namespace layer_test
