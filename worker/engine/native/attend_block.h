/* The attention of up to 12 queries to a block of 64 tokens: scores, softmax with a running maximum, weighed values. */
#ifndef NARRATIVE_GRAVITY_ATTEND_BLOCK_H
#define NARRATIVE_GRAVITY_ATTEND_BLOCK_H

#include <math.h>

#include "tiles.h"

enum {
    BLOCK = 4 * LANES, /* tokens */
    HALF = BLOCK / 2,
    PAIR = 2 * LANES, /* dimensions in one vector of bf16 */
    MAX_DIMS = 128,
    MAX_QUERIES = MAX_ROWS,
};

/* What a query has seen so far. ``sums`` holds the even dimensions of each 32 before the odd ones. */
typedef struct {
    float largest; /* score */
    float total; /* of e^(score - largest) */
    float sums[MAX_DIMS];
} State;

/* Turn 16 rows of 16 words: word j of all rows becomes vector j. */
AVX512 static inline void transpose(const __m512i rows[LANES], __m512i columns[LANES]) {
    __m512i a[LANES], b[LANES];
    UNROLLED
    for (int i = 0; i < LANES; i += 2) {
        a[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    UNROLLED
    for (int i = 0; i < LANES; i += 4) {
        b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
        b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
        b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
        b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    UNROLLED
    for (int i = 0; i < 4; i++) {
        const __m512i left_low = _mm512_shuffle_i32x4(b[i], b[i + 4], 0x88);
        const __m512i left_high = _mm512_shuffle_i32x4(b[i], b[i + 4], 0xdd);
        const __m512i right_low = _mm512_shuffle_i32x4(b[i + 8], b[i + 12], 0x88);
        const __m512i right_high = _mm512_shuffle_i32x4(b[i + 8], b[i + 12], 0xdd);
        columns[i] = _mm512_shuffle_i32x4(left_low, right_low, 0x88);
        columns[i + 4] = _mm512_shuffle_i32x4(left_high, right_high, 0x88);
        columns[i + 8] = _mm512_shuffle_i32x4(left_low, right_low, 0xdd);
        columns[i + 12] = _mm512_shuffle_i32x4(left_high, right_high, 0xdd);
    }
}

/* Memory that is wanted next, fetched a few lines at a time, in its order: pieces of one size, one distance apart. */
typedef struct {
    const char *at;
    ptrdiff_t offset; /* in the piece */
    ptrdiff_t size;
    ptrdiff_t distance;
    int64_t num_pieces; /* left */
    int lines; /* at a time */
} Ahead;

AVX512 static inline void fetch_ahead(Ahead *ahead) {
    for (int i = 0; i < ahead->lines && ahead->num_pieces > 0; i++) {
        _mm_prefetch(ahead->at + ahead->offset, _MM_HINT_T0);
        ahead->offset += LINE;
        if (ahead->offset >= ahead->size) {
            ahead->offset = 0;
            ahead->at += ahead->distance;
            ahead->num_pieces--;
        }
    }
}

/* How often turning a block fetches. */
#define FETCHES(dims) (BLOCK / LANES * (1 + (dims) / PAIR))

/* turned [dims][BLOCK] float32 of the first ``size`` keys of a block, which are there up to a multiple of 16. */
AVX512 static inline __attribute__((always_inline)) void turn_keys(
    const bf16 *keys, ptrdiff_t stride, const int size, Ahead *ahead, float *turned, const int dims) {
    for (int token = 0; token < BLOCK; token += LANES) {
        fetch_ahead(ahead);
        if (token >= size) { /* no keys: any number will do */
            for (int dim = 0; dim < dims; dim++) _mm512_storeu_ps(turned + dim * BLOCK + token, _mm512_setzero_ps());
            continue;
        }
        for (int dim = 0; dim < dims; dim += PAIR) {
            fetch_ahead(ahead);
            __m512i rows[LANES], columns[LANES];
            UNROLLED
            for (int i = 0; i < LANES; i++) rows[i] = _mm512_loadu_si512(keys + (token + i) * stride + dim);
            transpose(rows, columns);
            UNROLLED
            for (int i = 0; i < LANES; i++) {
                _mm512_storeu_ps(turned + (dim + 2 * i) * BLOCK + token, low_halves(columns[i]));
                _mm512_storeu_ps(turned + (dim + 2 * i + 1) * BLOCK + token, high_halves(columns[i]));
            }
        }
    }
}

/* A block of tokens, for the queries that see it. */
typedef struct {
    const float *keys; /* turned */
    const bf16 *values;
    ptrdiff_t stride; /* of values */
    int size;
    float scale;
} Block;

/* scores [num][BLOCK] of half a block. */
AVX512 static inline __attribute__((always_inline)) void score_half(
    const float *key, const float *const *queries, float (*scores)[BLOCK], const int num, const int dims) {
    __m512 sums[MAX_QUERIES][2];
    UNROLLED
    for (int i = 0; i < num; i++) sums[i][0] = sums[i][1] = _mm512_setzero_ps();
    for (int dim = 0; dim < dims; dim++, key += BLOCK) {
        const __m512 first = _mm512_loadu_ps(key), second = _mm512_loadu_ps(key + LANES);
        UNROLLED
        for (int i = 0; i < num; i++) {
            const __m512 q = _mm512_set1_ps(queries[i][dim]);
            sums[i][0] = _mm512_fmadd_ps(first, q, sums[i][0]);
            sums[i][1] = _mm512_fmadd_ps(second, q, sums[i][1]);
        }
    }
    UNROLLED
    for (int i = 0; i < num; i++) {
        _mm512_storeu_ps(scores[i], sums[i][0]);
        _mm512_storeu_ps(scores[i] + LANES, sums[i][1]);
    }
}

/* Turn the scores of a query into weights, and shrink what it has seen before if they are larger. */
AVX512 static inline __attribute__((always_inline)) void weigh(
    float *scores, int seen, float scale, State *state, const int dims) {
    const uint64_t visible = seen >= BLOCK ? ~0ull : (1ull << seen) - 1;
    __m512 each[BLOCK / LANES], highest = _mm512_set1_ps(-INFINITY);
    UNROLLED
    for (int i = 0; i < BLOCK / LANES; i++) {
        const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(scores + i * LANES), _mm512_set1_ps(scale));
        each[i] = _mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), (__mmask16)(visible >> (i * LANES)), scaled);
        highest = _mm512_max_ps(highest, each[i]);
    }
    const float largest = _mm512_reduce_max_ps(highest);
    if (largest > state->largest) {
        const __m512 shrink = exponential(_mm512_set1_ps(state->largest - largest));
        state->total *= _mm512_cvtss_f32(shrink);
        for (int dim = 0; dim < dims; dim += LANES)
            _mm512_storeu_ps(state->sums + dim, _mm512_mul_ps(_mm512_loadu_ps(state->sums + dim), shrink));
        state->largest = largest;
    }
    __m512 total = _mm512_setzero_ps();
    UNROLLED
    for (int i = 0; i < BLOCK / LANES; i++) {
        const __m512 weight = exponential(_mm512_sub_ps(each[i], _mm512_set1_ps(state->largest)));
        _mm512_storeu_ps(scores + i * LANES, weight);
        total = _mm512_add_ps(total, weight);
    }
    state->total += _mm512_reduce_add_ps(total);
}

/* Add the values of a block, each by its weight, in 32 dimensions. */
AVX512 static inline __attribute__((always_inline)) void add_values(
    const Block *block, int dim, float (*weights)[BLOCK], State *states, const int num) {
    __m512 sums[MAX_QUERIES][2];
    UNROLLED
    for (int i = 0; i < num; i++) {
        sums[i][0] = _mm512_loadu_ps(states[i].sums + dim);
        sums[i][1] = _mm512_loadu_ps(states[i].sums + dim + LANES);
    }
    const bf16 *value = block->values + dim;
    for (int token = 0; token < block->size; token++, value += block->stride) {
        const __m512i both = _mm512_loadu_si512(value);
        const __m512 even = low_halves(both), odd = high_halves(both);
        UNROLLED
        for (int i = 0; i < num; i++) {
            const __m512 weight = _mm512_set1_ps(weights[i][token]);
            sums[i][0] = _mm512_fmadd_ps(weight, even, sums[i][0]);
            sums[i][1] = _mm512_fmadd_ps(weight, odd, sums[i][1]);
        }
    }
    UNROLLED
    for (int i = 0; i < num; i++) {
        _mm512_storeu_ps(states[i].sums + dim, sums[i][0]);
        _mm512_storeu_ps(states[i].sums + dim + LANES, sums[i][1]);
    }
}

/* Take a block into the states of ``num`` queries, of which query i sees the first seen[i] >= 1 tokens. */
AVX512 static inline __attribute__((always_inline)) void attend_tile(
    const Block *block, const float *const *queries, const int *seen, State *states, const int num, const int dims) {
    float weights[MAX_QUERIES][BLOCK];
    score_half(block->keys, queries, weights, num, dims);
    score_half(block->keys + HALF, queries, (float (*)[BLOCK])(weights[0] + HALF), num, dims);
    for (int i = 0; i < num; i++) weigh(weights[i], seen[i], block->scale, states + i, dims);
    for (int dim = 0; dim < dims; dim += PAIR) add_values(block, dim, weights, states, num);
}

AVX512 static inline __attribute__((always_inline)) void attend_queries(
    const Block *block, const float *const *queries, const int *seen, State *states, int num, const int dims) {
#define CALL(n) attend_tile(block, queries, seen, states, n, dims)
    WITH_CONSTANT(num, CALL)
#undef CALL
}

/* Write what a query has seen, its dimensions in their order again. */
AVX512 static void finish(const State *state, int dims, float *out) {
    const __m512i first = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i second = _mm512_set_epi32(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8);
    const __m512 inverse = _mm512_set1_ps(1.0f / state->total);
    for (int dim = 0; dim < dims; dim += PAIR) {
        const __m512 even = _mm512_mul_ps(_mm512_loadu_ps(state->sums + dim), inverse);
        const __m512 odd = _mm512_mul_ps(_mm512_loadu_ps(state->sums + dim + LANES), inverse);
        _mm512_storeu_ps(out + dim, _mm512_permutex2var_ps(even, first, odd));
        _mm512_storeu_ps(out + dim + LANES, _mm512_permutex2var_ps(even, second, odd));
    }
}

#endif
