/* y = x W^T for a few rows of float32 and weights in bf16: reads each weight once, from memory at its speed.
 *
 * The weights come in panels of 32 outputs, each [inputs / 2][32][2]: two vectors of pairs, so that a vector
 * holds the same two inputs of 16 outputs. A panel is multiplied with up to 12 rows at a time: 24 sums stay in
 * registers. While a panel is multiplied the next one is fetched. Every sum runs over the inputs in their
 * order, whatever the number of rows: a row's result does not depend on what is beside it.
 */
#include <math.h>

#include "tiles.h"

enum { ROWS_AT_ONCE = 240 }; /* of x that stay in the second-level cache while all panels pass */

typedef struct {
    const float *x;
    const bf16 *weights;
    const float *scales; /* of each row, or NULL */
    float *y;
    Fetch next;
    ptrdiff_t inputs;
    ptrdiff_t outputs; /* of y, which is the distance of its rows */
    __mmask16 masks[2]; /* which outputs of the panel there are */
    __m512 bias[2];
} Tile;

/* The sums of ``rows`` rows and one panel, which the compiler unrolls for each number of rows. */
AVX512 static inline __attribute__((always_inline)) void multiply_tile(const Tile *tile, const int rows) {
    const ptrdiff_t inputs = tile->inputs;
    const float *x = tile->x;
    Fetch next = tile->next;
    __m512 sums[MAX_ROWS][2];
    UNROLLED
    for (int row = 0; row < rows; row++) sums[row][0] = sums[row][1] = _mm512_setzero_ps();
    for (ptrdiff_t k = 0; k < inputs; k += 2) {
        const __m512i first = _mm512_loadu_si512(tile->weights + k * PANEL);
        const __m512i second = _mm512_loadu_si512(tile->weights + k * PANEL + PANEL);
        fetch_some(&next);
        const __m512 even[2] = {low_halves(first), low_halves(second)};
        const __m512 odd[2] = {high_halves(first), high_halves(second)};
        UNROLLED
        for (int row = 0; row < rows; row++) {
            const __m512 input = _mm512_set1_ps(x[row * inputs + k]);
            sums[row][0] = _mm512_fmadd_ps(even[0], input, sums[row][0]);
            sums[row][1] = _mm512_fmadd_ps(even[1], input, sums[row][1]);
        }
        UNROLLED
        for (int row = 0; row < rows; row++) {
            const __m512 input = _mm512_set1_ps(x[row * inputs + k + 1]);
            sums[row][0] = _mm512_fmadd_ps(odd[0], input, sums[row][0]);
            sums[row][1] = _mm512_fmadd_ps(odd[1], input, sums[row][1]);
        }
    }
    UNROLLED
    for (int row = 0; row < rows; row++) {
        const __m512 scale = _mm512_set1_ps(tile->scales ? tile->scales[row] : 1.0f);
        float *y = tile->y + row * tile->outputs;
        _mm512_mask_storeu_ps(y, tile->masks[0], _mm512_fmadd_ps(sums[row][0], scale, tile->bias[0]));
        _mm512_mask_storeu_ps(y + LANES, tile->masks[1], _mm512_fmadd_ps(sums[row][1], scale, tile->bias[1]));
    }
}

AVX512 static void multiply(const Tile *tile, int rows) {
#define CALL(n) multiply_tile(tile, n)
    WITH_CONSTANT(rows, CALL)
#undef CALL
}

/* 1 / sqrt(|x|^2 + eps_length^2) of each row. */
AVX512 static void inverse_lengths(const float *x, int rows, ptrdiff_t inputs, float eps_length, float *out) {
    for (int row = 0; row < rows; row++, x += inputs) {
        __m512 squares = _mm512_setzero_ps();
        for (ptrdiff_t k = 0; k < inputs; k += LANES) {
            const __m512 values = _mm512_maskz_loadu_ps(lanes_left(inputs - k), x + k);
            squares = _mm512_fmadd_ps(values, values, squares);
        }
        out[row] = 1.0f / sqrtf(_mm512_reduce_add_ps(squares) + eps_length * eps_length);
    }
}

/* y [rows, outputs] = x [rows, inputs] times the panels, each row divided by its length if eps_length >= 0,
 * plus bias [outputs] unless it is NULL. inputs is even; the last panel is filled up with any finite values. */
AVX512 EXPORTED void ng_project(
    const float *x, int rows, ptrdiff_t inputs, const bf16 *panels, const float *bias, ptrdiff_t outputs,
    float eps_length, int threads, float *y) {
    const ptrdiff_t num_panels = (outputs + PANEL - 1) / PANEL;
    for (int begin = 0; begin < rows; begin += ROWS_AT_ONCE) {
        const int num_rows = rows - begin < ROWS_AT_ONCE ? rows - begin : ROWS_AT_ONCE;
        const int num_tiles = num_tiles_of(num_rows);
        float scales[ROWS_AT_ONCE];
        if (eps_length >= 0) inverse_lengths(x + begin * inputs, num_rows, inputs, eps_length, scales);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
        for (ptrdiff_t panel = 0; panel < num_panels; panel++) {
            const ptrdiff_t output = panel * PANEL;
            Tile tile = {
                .weights = panels + panel * inputs * PANEL,
                .inputs = inputs,
                .outputs = outputs,
                .masks = {lanes_left(outputs - output), lanes_left(outputs - output - LANES)},
                .bias = {_mm512_setzero_ps(), _mm512_setzero_ps()},
            };
            if (bias) {
                tile.bias[0] = _mm512_maskz_loadu_ps(tile.masks[0], bias + output);
                tile.bias[1] = _mm512_maskz_loadu_ps(tile.masks[1], bias + output + LANES);
            }
            const ptrdiff_t panel_size = inputs * PANEL;
            const bf16 *next_panel = panel + 1 < num_panels ? tile.weights + panel_size : NULL;
            int row = 0;
            for (int index = 0; index < num_tiles; index++) {
                const int size = tile_size(num_rows - row, num_tiles - index);
                tile.next = share_of(next_panel, panel_size * (ptrdiff_t)sizeof(bf16), index, num_tiles);
                tile.x = x + (begin + row) * inputs;
                tile.scales = eps_length >= 0 ? scales + row : NULL;
                tile.y = y + (begin + row) * outputs + output;
                multiply(&tile, size);
                row += size;
            }
        }
    }
}

/* Whether this processor can run the kernels. */
EXPORTED int ng_is_supported(void) { return __builtin_cpu_supports("avx512f"); }
