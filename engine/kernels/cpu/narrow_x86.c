/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversion by the instructions of AVX-512, where the machine has them: the bits of narrow.c in a
 * fraction of the time. Refuses, by doing nothing, on every other machine. vcvtneps2bf16 takes
 * denormal numbers for zero, so vectors that hold one are left to narrow.c.
 */
#include "engine/kernels/cpu/narrow_internal.h"

#include "engine/kernels/cpu/cpu_internal.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

/* Elements done, from the start on. */
__attribute__((target("avx512f,avx512bw,avx512dq,avx512bf16"))) static int64_t
narrow_bf16(const float *x, uint16_t *y, int64_t n) {
    enum { DENORMAL = 0x20 };
    for (int64_t i = 0; i < n; i += CRL_LANES) {
        const __m512 wide = _mm512_loadu_ps(x + i);
        if (_mm512_fpclass_ps_mask(wide, DENORMAL) != 0)
            return i;
        _mm256_storeu_si256((__m256i *)(void *)(y + i), (__m256i)_mm512_cvtneps_pbh(wide));
    }
    return n;
}

__attribute__((target("avx512f"))) static int64_t narrow_f16(const float *x, uint16_t *y,
                                                             int64_t n) {
    for (int64_t i = 0; i < n; i += CRL_LANES) {
        const __m256i half =
            _mm512_cvtps_ph(_mm512_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm256_storeu_si256((__m256i *)(void *)(y + i), half);
    }
    return n;
}

__attribute__((target("avx512f"))) static int64_t widen_f16(const uint16_t *x, float *y,
                                                            int64_t n) {
    for (int64_t i = 0; i < n; i += CRL_LANES) {
        const __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)(x + i));
        _mm512_storeu_ps(y + i, _mm512_cvtph_ps(half));
    }
    return n;
}

int64_t crl_narrow_x86(crl_dtype type, const float *x, uint16_t *y, int64_t n) {
    if (type == CRL_DTYPE_F16)
        return __builtin_cpu_supports("avx512f") ? narrow_f16(x, y, n) : 0;
    return __builtin_cpu_supports("avx512bf16") ? narrow_bf16(x, y, n) : 0;
}

int64_t crl_widen_x86(crl_dtype type, const uint16_t *x, float *y, int64_t n) {
    return type == CRL_DTYPE_F16 && __builtin_cpu_supports("avx512f") ? widen_f16(x, y, n) : 0;
}
#else
int64_t crl_narrow_x86(crl_dtype type, const float *x, uint16_t *y, int64_t n) {
    (void)type, (void)x, (void)y, (void)n;
    return 0;
}

int64_t crl_widen_x86(crl_dtype type, const uint16_t *x, float *y, int64_t n) {
    (void)type, (void)x, (void)y, (void)n;
    return 0;
}
#endif
