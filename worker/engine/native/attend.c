/* Causal attention over keys and values in bf16, read where they lie: softmax(q K^T * scale) V in float32, in
 * blocks of 64 tokens with a running maximum (Milakov and Gimelshein 2018, arXiv:1805.02867).
 *
 * A block of keys is turned once for all queries that see it, so that a vector holds one dimension of 16 tokens;
 * then up to 12 queries are multiplied with it at a time, as in project.c. Every sum runs in the same order
 * whatever the number of queries: a query's result does not depend on what is beside it.
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "vectors.h"

enum {
    BLOCK = 4 * LANES, /* tokens */
    HALF = BLOCK / 2,
    PAIR = 2 * LANES, /* dimensions in one vector of bf16 */
    MAX_DIMS = 128,
    MAX_QUERIES = 12,
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

/* turned [dims][BLOCK] float32 of a block of keys. ``num_next`` keys from ``next`` on are fetched meanwhile, and what
 * lies ``to_values`` behind each. */
AVX512 static inline __attribute__((always_inline)) void turn_keys(
    const bf16 *keys, ptrdiff_t stride, const bf16 *next, int num_next, ptrdiff_t next_stride, ptrdiff_t to_values,
    float *turned, const int dims) {
    for (int token = 0; token < BLOCK; token += LANES) {
        for (int i = token; i < token + LANES && i < num_next; i++) {
            const bf16 *key = next + i * next_stride;
            for (int dim = 0; dim < dims; dim += PAIR) {
                _mm_prefetch((const char *)(key + dim), _MM_HINT_T1);
                _mm_prefetch((const char *)(key + dim + to_values), _MM_HINT_T1);
            }
        }
        for (int dim = 0; dim < dims; dim += PAIR) {
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
    switch (num) {
        case 1: attend_tile(block, queries, seen, states, 1, dims); break;
        case 2: attend_tile(block, queries, seen, states, 2, dims); break;
        case 3: attend_tile(block, queries, seen, states, 3, dims); break;
        case 4: attend_tile(block, queries, seen, states, 4, dims); break;
        case 5: attend_tile(block, queries, seen, states, 5, dims); break;
        case 6: attend_tile(block, queries, seen, states, 6, dims); break;
        case 7: attend_tile(block, queries, seen, states, 7, dims); break;
        case 8: attend_tile(block, queries, seen, states, 8, dims); break;
        case 9: attend_tile(block, queries, seen, states, 9, dims); break;
        case 10: attend_tile(block, queries, seen, states, 10, dims); break;
        case 11: attend_tile(block, queries, seen, states, 11, dims); break;
        default: attend_tile(block, queries, seen, states, 12, dims); break;
    }
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

/* Consecutive tokens of one sequence. */
typedef struct {
    int64_t first_row; /* of the queries */
    int64_t num_rows;
    int64_t first_token; /* of the sequence, among all tokens */
    int64_t start; /* position of the first row: it sees start + 1 tokens, the next one more */
} Piece;

enum { QUERIES_AT_ONCE = 96 }; /* whose states stay in the second-level cache while all blocks pass */

typedef struct {
    const float *queries;
    ptrdiff_t query_stride;
    const bf16 *tokens;
    float *out;
    int heads;
    int kv_heads;
    int dims;
    float scale;
} Call;

/* ``num`` rows of a piece, from row ``begin`` on, for ``num_kv`` heads of keys from ``first_kv`` on and all heads of
 * queries that share them. Queries are in the order of their key head, then of their row. */
AVX512 static inline __attribute__((always_inline)) void attend_rows(
    const Call *call, const Piece *piece, int first_kv, int num_kv, int64_t begin, int num, const int dims) {
    const int group = call->heads / call->kv_heads;
    const ptrdiff_t to_values = (ptrdiff_t)call->kv_heads * dims, stride = 2 * to_values;
    const bf16 *keys = call->tokens + piece->first_token * stride + (ptrdiff_t)first_kv * dims;
    const int share = num * group; /* queries of one key head */
    State states[QUERIES_AT_ONCE];
    const float *queries[QUERIES_AT_ONCE];
    float *outs[QUERIES_AT_ONCE];
    float turned[MAX_DIMS * BLOCK];
    for (int i = 0; i < num_kv * share; i++) {
        const int64_t row = piece->first_row + begin + i % share / group;
        const ptrdiff_t head = (ptrdiff_t)(first_kv + i / share) * group + i % group;
        queries[i] = call->queries + row * call->query_stride + head * dims;
        outs[i] = call->out + (row * call->heads + head) * dims;
        states[i].largest = -INFINITY;
        states[i].total = 0.0f;
        for (int dim = 0; dim < dims; dim++) states[i].sums[dim] = 0.0f;
    }
    const int64_t shortest = piece->start + begin + 1, longest = shortest + num - 1;
    for (int64_t token = 0; token < longest; token += BLOCK, keys += BLOCK * stride) {
        const int size = longest - token < BLOCK ? (int)(longest - token) : BLOCK;
        const int64_t rest = longest - token - size;
        const int num_next = rest < BLOCK ? (int)rest : BLOCK;
        const int num_ended = token < shortest ? 0 : (int)(token - shortest + 1) * group;
        for (int kv = 0; kv < num_kv; kv++) {
            const bf16 *key = keys + (ptrdiff_t)kv * dims;
            const bf16 *next = key + BLOCK * stride;
            if (size == BLOCK) {
                turn_keys(key, stride, next, num_next, stride, to_values, turned, dims);
            } else {
                bf16 padded[BLOCK * MAX_DIMS] = {0};
                for (int i = 0; i < size; i++) memcpy(padded + i * dims, key + i * stride, dims * sizeof(bf16));
                turn_keys(padded, dims, next, num_next, stride, to_values, turned, dims);
            }
            const Block block = {turned, key + to_values, stride, size, call->scale};
            for (int query = num_ended; query < share; query += MAX_QUERIES) {
                const int tile = share - query < MAX_QUERIES ? share - query : MAX_QUERIES;
                int seen[MAX_QUERIES];
                for (int i = 0; i < tile; i++) {
                    const int64_t rest = shortest + (query + i) / group - token;
                    seen[i] = rest < BLOCK ? (int)rest : BLOCK;
                }
                const int index = kv * share + query;
                attend_queries(&block, queries + index, seen, states + index, tile, dims);
            }
        }
    }
    for (int i = 0; i < num_kv * share; i++) finish(states + i, dims, outs[i]);
}

AVX512 static void attend_rows_64(const Call *call, const Piece *piece, int first_kv, int num_kv, int64_t begin, int num) {
    attend_rows(call, piece, first_kv, num_kv, begin, num, 64);
}

AVX512 static void attend_rows_any(const Call *call, const Piece *piece, int first_kv, int num_kv, int64_t begin, int num) {
    attend_rows(call, piece, first_kv, num_kv, begin, num, call->dims);
}

/* out [rows, heads * dims] of all pieces. queries: rows ``query_stride`` floats apart, [heads][dims] each.
 * tokens [any][2 * kv_heads][dims] hold keys before values, those of the pieces' own tokens included. dims is a
 * multiple of 32 up to 128; heads is a multiple of kv_heads, at most 96 times. */
AVX512 EXPORTED void ng_attend(
    const float *queries, ptrdiff_t query_stride, int heads, int kv_heads, int dims, const bf16 *tokens,
    const Piece *pieces, int num_pieces, float scale, int threads, float *out) {
    const Call call = {queries, query_stride, tokens, out, heads, kv_heads, dims, scale};
    const int group = heads / kv_heads;
#pragma omp parallel for schedule(dynamic) collapse(2) num_threads(threads) if (threads > 1)
    for (int index = 0; index < num_pieces; index++) {
        for (int kv = 0; kv < kv_heads; kv++) {
            const Piece *piece = pieces + index;
            /* All heads of a token lie side by side: those of a few rows are read together. */
            const int is_joint = piece->num_rows * heads <= QUERIES_AT_ONCE && num_pieces >= threads;
            if (is_joint && kv > 0) continue;
            const int num_kv = is_joint ? kv_heads : 1, rows_at_once = QUERIES_AT_ONCE / (num_kv * group);
            for (int64_t row = 0; row < piece->num_rows; row += rows_at_once) {
                const int64_t left = piece->num_rows - row;
                const int num = left < rows_at_once ? (int)left : rows_at_once;
                (dims == 64 ? attend_rows_64 : attend_rows_any)(&call, piece, kv, num_kv, row, num);
            }
        }
    }
}
