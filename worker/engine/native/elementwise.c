/* What lies between the products of a layer, each in one pass: rotation with the writing of keys and values, and
 * the gate. */
#include <stddef.h>

#include "vectors.h"

/* To the nearest bf16, ties to even; what is no number stays none. */
AVX512 static inline __m256i rounded(__m512 x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i nearest = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i kept = _mm512_mask_mov_epi32(nearest, is_nan, _mm512_set1_epi32(0x7fc00000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16));
}

/* Rotate one head: x[d] cos[d] + x[d + dims / 2] sin[d], whose first half of sin has its minus already. */
AVX512 static inline void rotate(const float *x, const float *cosine, const float *sine, int dims, float *out) {
    const int half = dims / 2;
    for (int dim = 0; dim < half; dim += LANES) {
        const __m512 first = _mm512_loadu_ps(x + dim), second = _mm512_loadu_ps(x + half + dim);
        const __m512 low = _mm512_mul_ps(first, _mm512_loadu_ps(cosine + dim));
        const __m512 high = _mm512_mul_ps(second, _mm512_loadu_ps(cosine + half + dim));
        _mm512_storeu_ps(out + dim, _mm512_fmadd_ps(second, _mm512_loadu_ps(sine + dim), low));
        _mm512_storeu_ps(out + half + dim, _mm512_fmadd_ps(first, _mm512_loadu_ps(sine + half + dim), high));
    }
}

/* Rotate the queries and keys of fused [rows][heads + 2 kv_heads][dims] in place, and write keys and values, rounded
 * to bf16, to the places of tokens [any][2 * kv_heads][dims]. cosines and sines are [positions][dims]; dims is a
 * multiple of 32. */
AVX512 EXPORTED void ng_rotate_and_store(
    float *fused, int rows, int heads, int kv_heads, int dims, const float *cosines, const float *sines,
    const int64_t *positions, const int64_t *places, bf16 *tokens) {
    const ptrdiff_t width = (ptrdiff_t)2 * kv_heads * dims;
    for (int row = 0; row < rows; row++) {
        const float *cosine = cosines + positions[row] * dims, *sine = sines + positions[row] * dims;
        for (int head = 0; head < heads + kv_heads; head++, fused += dims) rotate(fused, cosine, sine, dims, fused);
        fused += (ptrdiff_t)kv_heads * dims;
        bf16 *token = tokens + places[row] * width;
        for (ptrdiff_t i = 0; i < width; i += LANES)
            _mm256_storeu_si256((__m256i *)(token + i), rounded(_mm512_loadu_ps(fused - width + i)));
    }
}

/* out [rows][inner] = silu(gate) * up, of gate_up [rows][2][inner]; silu(x) = x / (1 + e^-x). */
AVX512 EXPORTED void ng_gate(const float *gate_up, int rows, ptrdiff_t inner, float *out) {
    const __m512 one = _mm512_set1_ps(1.0f);
    for (int row = 0; row < rows; row++, gate_up += 2 * inner, out += inner) {
        for (ptrdiff_t i = 0; i < inner; i += LANES) {
            const __mmask16 mask = lanes_left(inner - i);
            const __m512 gate = _mm512_maskz_loadu_ps(mask, gate_up + i);
            const __m512 up = _mm512_maskz_loadu_ps(mask, gate_up + inner + i);
            const __m512 minus = _mm512_sub_ps(_mm512_setzero_ps(), gate);
            /* Beyond 88 e^-x is infinite, and the quotient 0, as it should be. */
            const __m512 each = _mm512_div_ps(gate, _mm512_add_ps(one, exponential(minus)));
            _mm512_mask_storeu_ps(out + i, mask, _mm512_mul_ps(each, up));
        }
    }
}
