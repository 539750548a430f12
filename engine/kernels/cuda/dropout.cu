/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dropout: element i of a sample is kept when the i-th uniform number of its stream is at least p.
 * The numbers are those of engine/base/rng.h [salmon11], a Philox block for every four elements, so
 * masks and results have the CPU's bits. Refuses to store a mask.
 *
 *     grid (ceil(n_per_sample / (256 width)), samples) · block 256
 *     arrays read + written 1 + 1, 2 + 1 adding · flops 1, and ~30 integer operations
 */
#include "engine/kernels/cuda/device_internal.h"
#include "engine/kernels/cuda/stream_internal.h"

#include <math.h>

namespace {

enum { WORDS = 4 }; /* of a Philox block */

struct Dropout {
    uint32_t key[2], sample, step, purpose;
    uint32_t threshold; /* kept: the number's 24 bits are at least this */
    float scale;
    bool accumulate;
    int64_t samples, n; /* n: elements of a sample */
};

__device__ void draw(const Dropout &d, uint32_t block, uint32_t sample, uint32_t word[WORDS]) {
    uint32_t x0 = block, x1 = sample, x2 = d.step, x3 = d.purpose, k0 = d.key[0], k1 = d.key[1];
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint32_t high0 = __umulhi(0xD2511F53u, x0), low0 = 0xD2511F53u * x0;
        const uint32_t high1 = __umulhi(0xCD9E8D57u, x2), low1 = 0xCD9E8D57u * x2;
        x0 = high1 ^ x1 ^ k0;
        x1 = low1;
        x2 = high0 ^ x3 ^ k1;
        x3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    word[0] = x0;
    word[1] = x1;
    word[2] = x2;
    word[3] = x3;
}

template <typename T>
__global__ void __launch_bounds__(CRL_CUDA_THREADS)
    dropout_kernel(Dropout d, const T *x, T *y, bool vector) {
    constexpr int V = crl_cuda_width<T>;
    const int64_t thread = (int64_t)blockIdx.x * CRL_CUDA_THREADS + threadIdx.x;
    const int64_t i = thread * V;
    if (i >= d.n)
        return;
    for (int64_t s = blockIdx.y; s < d.samples; s += gridDim.y) {
        float in[V], out[V] = {0};
        crl_cuda_load(x + s * d.n, i, d.n, vector, in);
        if (d.accumulate)
            crl_cuda_load(y + s * d.n, i, d.n, vector, out);
#pragma unroll
        for (int block = 0; block < V / WORDS; block++) {
            uint32_t word[WORDS];
            draw(d, (uint32_t)(thread * (V / WORDS) + block), d.sample + (uint32_t)s, word);
#pragma unroll
            for (int w = 0; w < WORDS; w++) {
                const int k = block * WORDS + w;
                const float kept = (word[w] >> 8) >= d.threshold ? in[k] * d.scale : 0.0f;
                out[k] = d.accumulate ? out[k] + kept : kept;
            }
        }
        crl_cuda_store(y + s * d.n, i, d.n, vector, out);
    }
}

} // namespace

template <typename T>
crl_status crl_cuda_dropout(crl_stream *stream, const crl_rng *rng, double p, const void *x_,
                            void *y_, int64_t samples, int64_t n_per_sample, bool accumulate) {
    constexpr int V = crl_cuda_width<T>;
    const T *const x = static_cast<const T *>(x_);
    T *const y = static_cast<T *>(y_);
    if (!(p >= 0 && p < 1))
        return CRL_FAIL(INVALID, "dropout: probability is %g, expected 0 <= p < 1", p);
    if (samples == 0 || n_per_sample == 0)
        return CRL_STATUS_OK;
    CRL_ASSERT(rng->layer >> 24 == 0 && n_per_sample <= (int64_t)WORDS << 32);
    const Dropout d = {
        {(uint32_t)rng->seed, (uint32_t)(rng->seed >> 32)},
        rng->sample,
        rng->step,
        rng->purpose << 24 | rng->layer,
        (uint32_t)ceil(p * 0x1p24),
        (float)(1.0 / (1.0 - p)),
        accumulate,
        samples,
        n_per_sample,
    };
    const int64_t tiles = crl_cuda_ceil_div(n_per_sample, CRL_CUDA_THREADS * V);
    const int64_t rows = crl_cuda_min(samples, CRL_CUDA_GRID_Y);
    CRL_LAUNCH(dropout_kernel<T>, dim3(crl_cuda_grid(tiles, CRL_CUDA_GRID_X), (unsigned)rows),
               CRL_CUDA_THREADS, 0, stream->handle, d, x, y,
               crl_cuda_aligned<V>(n_per_sample, x, y));
    return crl_cuda_launched("dropout");
}

#define INSTANCE(T)                                                                                \
    template crl_status crl_cuda_dropout<T>(crl_stream *, const crl_rng *, double, const void *,   \
                                            void *, int64_t, int64_t, bool)
INSTANCE(float);
INSTANCE(__nv_bfloat16);
INSTANCE(__half);
