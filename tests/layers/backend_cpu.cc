/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/layers/guarded.h"

namespace layer_test {

const crl_backend *backend() {
    return &crl_backend_cpu;
}

} // namespace layer_test
