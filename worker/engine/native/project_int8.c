/* y = x W^T in 8-bit integers: rows of x are rounded as they come, products and sums are exact (AVX-512 VNNI).
 *
 * Panels and tiles are those of project.c, with four inputs to a 32-bit word: panels lie [inputs / 4][32][4].
 */
#include <math.h>

#include "tiles.h"

#define VNNI __attribute__((target("avx512f,avx512vnni")))

enum {
    QUAD = 4, /* inputs */
    ZERO_POINT = 128, /* the instruction takes one factor without sign */
    LARGEST_CODE = 127,
};

/* One stage of Hadamard's butterfly inside each vector: lanes that differ in bit ``distance``. */
AVX512 static inline __m512 butterfly(__m512 x, int distance) {
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i bit = _mm512_set1_epi32(distance);
    const __m512 other = _mm512_permutexvar_ps(_mm512_xor_si512(lane, bit), x);
    const __mmask16 is_upper = _mm512_test_epi32_mask(lane, bit);
    return _mm512_mask_sub_ps(_mm512_add_ps(x, other), is_upper, other, x);
}

/* Multiply 32 numbers by Sylvester's matrix. */
AVX512 static inline void spread(__m512 *low, __m512 *high) {
    const __m512 sum = _mm512_add_ps(*low, *high), difference = _mm512_sub_ps(*low, *high);
    *low = butterfly(butterfly(butterfly(butterfly(sum, 8), 4), 2), 1);
    *high = butterfly(butterfly(butterfly(butterfly(difference, 8), 4), 2), 1);
}

/* Round each row of x [rows][inputs] to codes of one scale, its largest magnitude 127; stored as code + 128. x is
 * written over if is_spread: blocks of 32 are mixed first. With eps_length >= 0 the scales are those of rows divided by
 * sqrt(|x|^2 + eps_length^2). inputs is a multiple of 32 if is_spread. */
AVX512 EXPORTED void ng_round_rows(
    float *x, int rows, ptrdiff_t inputs, int is_spread, float eps_length, uint8_t *codes, float *scales) {
    for (int row = 0; row < rows; row++, x += inputs, codes += inputs) {
        __m512 squares = _mm512_setzero_ps(), largest = _mm512_setzero_ps();
        __mmask16 is_nan = 0;
        for (ptrdiff_t k = 0; is_spread && k < inputs; k += 2 * LANES) {
            __m512 low = _mm512_loadu_ps(x + k), high = _mm512_loadu_ps(x + k + LANES);
            spread(&low, &high);
            _mm512_storeu_ps(x + k, low);
            _mm512_storeu_ps(x + k + LANES, high);
        }
        for (ptrdiff_t k = 0; k < inputs; k += LANES) {
            const __m512 values = _mm512_maskz_loadu_ps(lanes_left(inputs - k), x + k);
            squares = _mm512_fmadd_ps(values, values, squares);
            largest = _mm512_max_ps(largest, _mm512_abs_ps(values));
            is_nan |= _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
        }
        const float scale = 1e-30f + _mm512_reduce_max_ps(largest) * (1.0f / LARGEST_CODE);
        const __m512 inverse = _mm512_set1_ps(1.0f / scale);
        for (ptrdiff_t k = 0; k < inputs; k += LANES) {
            const __mmask16 mask = lanes_left(inputs - k);
            const __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + k), inverse);
            const __m512i code = _mm512_add_epi32(_mm512_cvtps_epi32(scaled), _mm512_set1_epi32(ZERO_POINT));
            _mm512_mask_cvtusepi32_storeu_epi8(codes + k, mask, _mm512_max_epi32(code, _mm512_setzero_si512()));
        }
        const float length = eps_length < 0 ? 1.0f : sqrtf(_mm512_reduce_add_ps(squares) + eps_length * eps_length);
        scales[row] = is_nan ? NAN : scale / length;
    }
}

typedef struct {
    const uint8_t *codes;
    const float *scales; /* of each row */
    const int8_t *weights;
    float *y;
    Fetch next;
    ptrdiff_t inputs;
    ptrdiff_t outputs;
    __mmask16 masks[2];
    __m512 output_scales[2];
    __m512i offsets[2]; /* ZERO_POINT times the sum of each output's weights */
    __m512 bias[2];
} Tile;

VNNI static inline __attribute__((always_inline)) void multiply_tile(const Tile *tile, const int rows) {
    const ptrdiff_t inputs = tile->inputs;
    const uint8_t *codes = tile->codes;
    Fetch next = tile->next;
    __m512i sums[MAX_ROWS][2];
    UNROLLED
    for (int row = 0; row < rows; row++) sums[row][0] = sums[row][1] = _mm512_setzero_si512();
    for (ptrdiff_t k = 0; k < inputs; k += QUAD) {
        const __m512i first = _mm512_loadu_si512(tile->weights + k * PANEL);
        const __m512i second = _mm512_loadu_si512(tile->weights + k * PANEL + LANES * QUAD);
        fetch_some(&next);
        UNROLLED
        for (int row = 0; row < rows; row++) {
            int quad;
            __builtin_memcpy(&quad, codes + row * inputs + k, sizeof quad);
            const __m512i input = _mm512_set1_epi32(quad);
            sums[row][0] = _mm512_dpbusd_epi32(sums[row][0], input, first);
            sums[row][1] = _mm512_dpbusd_epi32(sums[row][1], input, second);
        }
    }
    UNROLLED
    for (int row = 0; row < rows; row++) {
        UNROLLED
        for (int i = 0; i < 2; i++) {
            const __m512 sum = _mm512_cvtepi32_ps(_mm512_sub_epi32(sums[row][i], tile->offsets[i]));
            const __m512 scale = _mm512_mul_ps(tile->output_scales[i], _mm512_set1_ps(tile->scales[row]));
            float *y = tile->y + row * tile->outputs + i * LANES;
            _mm512_mask_storeu_ps(y, tile->masks[i], _mm512_fmadd_ps(sum, scale, tile->bias[i]));
        }
    }
}

VNNI static void multiply(const Tile *tile, int rows) {
#define CALL(n) multiply_tile(tile, n)
    WITH_CONSTANT(rows, CALL)
#undef CALL
}

/* y [rows, outputs] of rounded rows, plus bias [outputs] unless it is NULL. offsets [outputs] are 128 times the sums of
 * the weights. inputs is a multiple of 4 and at most 65,536; the last panel is filled up with any weights. */
VNNI EXPORTED void ng_project_int8(
    const uint8_t *codes, const float *scales, int rows, ptrdiff_t inputs, const int8_t *panels,
    const float *output_scales, const int32_t *offsets, const float *bias, ptrdiff_t outputs, int threads, float *y) {
    const ptrdiff_t num_panels = (outputs + PANEL - 1) / PANEL;
    const int num_tiles = num_tiles_of(rows);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (ptrdiff_t panel = 0; panel < num_panels; panel++) {
        const ptrdiff_t output = panel * PANEL, panel_bytes = inputs * PANEL;
        Tile tile = {.weights = panels + panel * panel_bytes, .inputs = inputs, .outputs = outputs};
        for (int i = 0; i < 2; i++) {
            const ptrdiff_t first = output + i * LANES;
            const __mmask16 mask = lanes_left(outputs - first);
            tile.masks[i] = mask;
            tile.output_scales[i] = _mm512_maskz_loadu_ps(mask, output_scales + first);
            tile.offsets[i] = _mm512_maskz_loadu_epi32(mask, offsets + first);
            tile.bias[i] = bias ? _mm512_maskz_loadu_ps(mask, bias + first) : _mm512_setzero_ps();
        }
        const int8_t *next_panel = panel + 1 < num_panels ? tile.weights + panel_bytes : NULL;
        int row = 0;
        for (int index = 0; index < num_tiles; index++) {
            const int size = tile_size(rows - row, num_tiles - index);
            tile.next = share_of(next_panel, panel_bytes, index, num_tiles);
            tile.codes = codes + row * inputs;
            tile.scales = scales + row;
            tile.y = y + row * outputs + output;
            multiply(&tile, size);
            row += size;
        }
    }
}

/* Whether this processor can run ng_project_int8. */
EXPORTED int ng_has_int8(void) { return __builtin_cpu_supports("avx512vnni"); }
