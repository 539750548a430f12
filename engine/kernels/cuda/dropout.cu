/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dropout: element i of a sample is kept when the i-th uniform number of its stream is at least p.
 * The numbers are those of engine/base/rng.h [salmon11], one Philox block for the four elements of
 * a thread, so masks and results have the CPU's bits. Refuses to store a mask.
 *
 *     grid (ceil(n_per_sample / 1024), samples) · block 256
 *     bytes 4 + 4 per element, 8 + 4 adding · flops 1, and ~30 integer operations
 */
#include "engine/kernels/cuda/device_internal.h"
#include "engine/kernels/cuda/stream_internal.h"

#include <math.h>

namespace {

struct Dropout {
    uint32_t key[2], sample, step, purpose;
    uint32_t threshold; /* kept: the number's 24 bits are at least this */
    float scale;
    bool accumulate;
    int64_t samples, n; /* n: elements of a sample */
};

__device__ void draw(const Dropout &d, uint32_t block, uint32_t sample, uint32_t word[4]) {
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

__global__ void __launch_bounds__(CRL_CUDA_THREADS)
    dropout_kernel(Dropout d, const float *x, float *y, bool vector) {
    const int64_t block = (int64_t)blockIdx.x * CRL_CUDA_THREADS + threadIdx.x;
    const int64_t i = block * CRL_CUDA_VECTOR;
    if (i >= d.n)
        return;
    for (int64_t s = blockIdx.y; s < d.samples; s += gridDim.y) {
        uint32_t word[4];
        float in[CRL_CUDA_VECTOR], out[CRL_CUDA_VECTOR] = {0};
        draw(d, (uint32_t)block, d.sample + (uint32_t)s, word);
        crl_cuda_load(x + s * d.n, i, d.n, vector, in);
        if (d.accumulate)
            crl_cuda_load(y + s * d.n, i, d.n, vector, out);
#pragma unroll
        for (int k = 0; k < CRL_CUDA_VECTOR; k++) {
            const float kept = (word[k] >> 8) >= d.threshold ? in[k] * d.scale : 0.0f;
            out[k] = d.accumulate ? out[k] + kept : kept;
        }
        crl_cuda_store(y + s * d.n, i, d.n, vector, out);
    }
}

} // namespace

extern "C" crl_status crl_cuda_dropout(crl_stream *stream, const crl_rng *rng, double p,
                                       const void *x_, void *y_, int64_t samples,
                                       int64_t n_per_sample, bool accumulate) {
    const float *const x = static_cast<const float *>(x_);
    float *const y = static_cast<float *>(y_);
    if (!(p >= 0 && p < 1))
        return CRL_FAIL(INVALID, "dropout: probability is %g, expected 0 <= p < 1", p);
    if (p == 0)
        return crl_eltwise_cuda.copy(stream, x, y, samples * n_per_sample, accumulate);
    if (samples == 0 || n_per_sample == 0)
        return CRL_STATUS_OK;
    CRL_ASSERT(rng->layer >> 24 == 0 && n_per_sample <= (int64_t)CRL_CUDA_VECTOR << 32);
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
    const int64_t tiles = crl_cuda_ceil_div(n_per_sample, CRL_CUDA_THREADS * CRL_CUDA_VECTOR);
    const int64_t rows = crl_cuda_min(samples, CRL_CUDA_GRID_Y);
    CRL_LAUNCH(dropout_kernel, dim3(crl_cuda_grid(tiles, CRL_CUDA_GRID_X), (unsigned)rows),
               CRL_CUDA_THREADS, 0, stream->handle, d, x, y,
               crl_cuda_aligned(n_per_sample, x, y, nullptr));
    return crl_cuda_launched("dropout");
}
