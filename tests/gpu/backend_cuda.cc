/* SPDX-License-Identifier: Apache-2.0 */
/* The layers' tests on CUDA. */
#include "tests/layers/guarded.h"

namespace layer_test {

const crl_backend *backend() {
    return &crl_backend_cuda;
}

} // namespace layer_test
