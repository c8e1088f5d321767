/* What the kernels share: AVX-512F arithmetic on vectors of 16 floats, and bf16 widened in registers.
 *
 * Weights, keys and values lie in memory as bf16, two a 32-bit word; they are widened as they are read, one
 * instruction for 16 of them, and multiplied in float32. Processors without AMX multiply float32 twice as fast
 * as bf16, and 16 bits are what memory has to deliver: so each is used for what it is good at.
 */
#ifndef NARRATIVE_GRAVITY_VECTORS_H
#define NARRATIVE_GRAVITY_VECTORS_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define AVX512 __attribute__((target("avx512f")))
#define UNROLLED _Pragma("GCC unroll 16")
#define EXPORTED __attribute__((visibility("default")))

enum { LANES = 16 };

typedef uint16_t bf16;

/* The lanes of a vector of which ``num`` numbers are left. */
static inline __mmask16 lanes_left(ptrdiff_t num) {
    return num >= LANES ? 0xffff : num <= 0 ? 0 : (__mmask16)((1u << num) - 1);
}

/* The first of each pair. */
AVX512 static inline __m512 low_halves(__m512i pairs) { return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)); }

/* The second of each pair. */
AVX512 static inline __m512 high_halves(__m512i pairs) {
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000)));
}

/* e^x to about two units in the last place, 0 below -87.3, infinite beyond 88.7 and NaN of NaN: argument reduction by
 * ln 2 in two parts, then the Taylor polynomial of degree 6 on [-ln 2 / 2, ln 2 / 2], whose remainder is below 2^-22. */
AVX512 static inline __m512 exponential(__m512 x) {
    const __mmask16 is_kept = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.3f), _CMP_NLT_UQ);
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.0f / 720);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_maskz_scalef_ps(is_kept, p, n);
}

#endif
