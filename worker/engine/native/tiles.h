/* How rows are dealt out: a panel of 32 outputs is multiplied with up to 12 rows at a time, while the next one is
 * fetched. */
#ifndef NARRATIVE_GRAVITY_TILES_H
#define NARRATIVE_GRAVITY_TILES_H

#include "vectors.h"

enum {
    PANEL = 2 * LANES, /* outputs */
    MAX_ROWS = 12, /* two sums of each stay in registers */
    LINE = 64, /* bytes of the cache */
    NEXT_STEP = 2 * LINE, /* bytes of a panel that are read at once, by either kernel */
};

/* CALL(n) for the constant n that ``num`` is, up to MAX_ROWS: the compiler unrolls each. */
#define WITH_CONSTANT(num, CALL) \
    switch (num) { \
        case 1: CALL(1); break; \
        case 2: CALL(2); break; \
        case 3: CALL(3); break; \
        case 4: CALL(4); break; \
        case 5: CALL(5); break; \
        case 6: CALL(6); break; \
        case 7: CALL(7); break; \
        case 8: CALL(8); break; \
        case 9: CALL(9); break; \
        case 10: CALL(10); break; \
        case 11: CALL(11); break; \
        default: CALL(12); break; \
    }

static inline int num_tiles_of(int rows) { return (rows + MAX_ROWS - 1) / MAX_ROWS; }

/* Rows of the next of ``tiles_left`` tiles, as even as can be: 13 rows are 7 and 6. */
static inline int tile_size(int rows_left, int tiles_left) { return (rows_left + tiles_left - 1) / tiles_left; }

/* The part of the next panel that a tile fetches, so much of it a step; the tiles share it. */
typedef struct {
    const char *at; /* NULL where there is no next panel */
    int step; /* bytes, at most two lines */
} Fetch;

static inline Fetch share_of(const void *next_panel, ptrdiff_t panel_bytes, int tile, int num_tiles) {
    const Fetch none = {0, 0};
    if (!next_panel) return none;
    const Fetch share = {
        (const char *)next_panel + panel_bytes * tile / num_tiles, (NEXT_STEP + num_tiles - 1) / num_tiles};
    return share;
}

AVX512 static inline void fetch_some(Fetch *fetch) {
    if (!fetch->at) return;
    _mm_prefetch(fetch->at, _MM_HINT_T0);
    if (fetch->step > LINE) _mm_prefetch(fetch->at + LINE, _MM_HINT_T0);
    fetch->at += fetch->step;
}

#endif
