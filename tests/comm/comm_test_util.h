/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of engine/comm share, for programs with and without GoogleTest. */
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "engine/base/alloc.h"
#include "engine/comm/agree.h"
#include "engine/comm/collective.h"
#include "engine/comm/comm.h"

namespace comm_test {

/* Plain loops: these tests do not depend on the kernels. */
inline crl_status plain_add(crl_stream *, float *y, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        y[i] += x[i];
    }
    return CRL_STATUS_OK;
}
inline const crl_reduce_ops *plain_reduce() {
    static const crl_reduce_ops ops = {plain_add, nullptr, nullptr, nullptr};
    return &ops;
}

/* Element i of lane `lane`: magnitudes differ so much that the order of a sum shows in its bits. */
inline float lane_value(uint64_t seed, int lane, int64_t i) {
    uint64_t z =
        seed + 0x9e3779b97f4a7c15u * (uint64_t)(lane + 1) + 0xbf58476d1ce4e5b9u * (uint64_t)i;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    const float unit = (float)(int32_t)(z >> 32) / 2147483648.0f;
    return unit * (float)(1 << (z & 15));
}

/* A rank's part of a test: a C++ callable. */
using rank_body = std::function<crl_status(crl_comm *)>;

inline crl_status call_body(void *argument, crl_comm *comm) {
    return (*static_cast<rank_body *>(argument))(comm);
}

inline crl_status launch(const crl_transport *transport, int ranks, int64_t deadline_ns,
                         rank_body body) {
    return crl_comm_launch(transport, ranks, deadline_ns, call_body, &body);
}

/* A claim inside a rank: its failure ends the job with the text. */
#define COMM_CLAIM(condition, ...)                                                                 \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            char claim_text_[400];                                                                 \
            snprintf(claim_text_, sizeof claim_text_, __VA_ARGS__);                                \
            return CRL_FAIL(INTERNAL, "claim (%s) is false: %s", #condition, claim_text_);         \
        }                                                                                          \
    } while (0)

} // namespace comm_test
