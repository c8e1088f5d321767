/* Causal attention over keys and values in bf16, read where they lie: softmax(q K^T * scale) V in float32, in
 * blocks of 64 tokens with a running maximum (Milakov and Gimelshein 2018, arXiv:1805.02867).
 *
 * A block of keys is turned once for all queries that see it, so that a vector holds one dimension of 16 tokens;
 * then up to 12 queries are multiplied with it at a time, as in project.c. Every sum runs in the same order
 * whatever the number of queries: a query's result does not depend on what is beside it.
 */
#include <string.h>

#include "attend_block.h"

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

/* The keys and values of ``num`` tokens and ``num_kv`` heads, fetched while a block is turned for each head. */
AVX512 static inline Ahead memory_ahead(const Call *call, const bf16 *keys, int64_t num, int num_kv, int dims) {
    const ptrdiff_t head = dims * (ptrdiff_t)sizeof(bf16), heads = call->kv_heads * head;
    /* All heads of a token lie side by side; of one head there are its key and its value in turn. */
    Ahead joint = {.at = (const char *)keys, .size = num * 2 * heads, .num_pieces = num > 0};
    Ahead apart = {.at = (const char *)keys, .size = head, .distance = heads, .num_pieces = 2 * num};
    Ahead ahead = num_kv == call->kv_heads ? joint : apart;
    ahead.lines = (int)(ahead.num_pieces * ahead.size / LINE / (num_kv * FETCHES(dims))) + 1;
    return ahead;
}

/* ``num`` rows of a piece, from row ``begin`` on, for ``num_kv`` heads of keys from ``first_kv`` on and all heads of
 * queries that share them. Queries are in the order of their key head, then of their row. ``following`` is what is read
 * after them, or NULL. */
AVX512 static inline __attribute__((always_inline)) void attend_rows(
    const Call *call, const Piece *piece, int first_kv, int num_kv, int64_t begin, int num,
    const bf16 *following, const int dims) {
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
        const int64_t left = longest - token - size;
        const bf16 *next = left ? keys + BLOCK * stride : following;
        const int64_t num_next = left > 0 && left < BLOCK ? left : BLOCK;
        Ahead ahead = memory_ahead(call, next, next ? num_next : 0, num_kv, dims);
        const int num_ended = token < shortest ? 0 : (int)(token - shortest + 1) * group;
        for (int kv = 0; kv < num_kv; kv++) {
            const bf16 *key = keys + (ptrdiff_t)kv * dims;
            if (size == BLOCK) {
                turn_keys(key, stride, BLOCK, &ahead, turned, dims);
            } else {
                bf16 padded[BLOCK * MAX_DIMS] = {0};
                for (int i = 0; i < size; i++) memcpy(padded + i * dims, key + i * stride, dims * sizeof(bf16));
                turn_keys(padded, dims, size, &ahead, turned, dims);
            }
            const Block block = {turned, key + to_values, stride, size, call->scale};
            for (int query = num_ended; query < share; query += MAX_QUERIES) {
                const int tile = share - query < MAX_QUERIES ? share - query : MAX_QUERIES;
                int seen[MAX_QUERIES];
                for (int i = 0; i < tile; i++) {
                    const int64_t visible = shortest + (query + i) / group - token;
                    seen[i] = visible < BLOCK ? (int)visible : BLOCK;
                }
                const int index = kv * share + query;
                attend_queries(&block, queries + index, seen, states + index, tile, dims);
            }
        }
    }
    for (int i = 0; i < num_kv * share; i++) finish(states + i, dims, outs[i]);
}

AVX512 static void attend_rows_64(const Call *call, const Piece *piece, int first_kv, int num_kv, int64_t begin, int num,
    const bf16 *following) {
    attend_rows(call, piece, first_kv, num_kv, begin, num, following, 64);
}

AVX512 static void attend_rows_any(const Call *call, const Piece *piece, int first_kv, int num_kv, int64_t begin, int num,
    const bf16 *following) {
    attend_rows(call, piece, first_kv, num_kv, begin, num, following, call->dims);
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
            const bf16 *following = is_joint && index + 1 < num_pieces
                ? tokens + piece[1].first_token * 2 * (ptrdiff_t)kv_heads * dims : NULL;
            const int num_kv = is_joint ? kv_heads : 1, rows_at_once = QUERIES_AT_ONCE / (num_kv * group);
            for (int64_t row = 0; row < piece->num_rows; row += rows_at_once) {
                const int64_t left = piece->num_rows - row;
                const int num = left < rows_at_once ? (int)left : rows_at_once;
                (dims == 64 ? attend_rows_64 : attend_rows_any)(&call, piece, kv, num_kv, row, num, following);
            }
        }
    }
}
