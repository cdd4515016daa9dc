/*
 * sample_partners: N=317080 dtype=float32 m=4096 n=32 partners=stratified
 * configuration: block_size=1 team=item
 */

#define FUNCTION static inline
#define GLOBAL __global
#define BLOCK_ID (uint)get_group_id(0)
#define LOCAL_ID (uint)get_local_id(0)
#define RESTRICT restrict
#define MUL_HI32 mul_hi
#define MUL_HI64 mul_hi
#define OPENCL 1
#define PASTE(x, y) x##y
#define REAL(x) PASTE(x, f)
#define U64(x) x##ul
#define BLOCK_SIZE 1u
#define PURPOSE_PARTNER 2u
#define PURPOSE_LINK_PARTNER 3u

#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef uint u32;
typedef ulong u64;
typedef float real;
typedef float realv;

typedef struct { u32 w[4]; } words4;

FUNCTION words4 philox(u64 seed, u32 c0, u32 c1, u32 c2, u32 c3)
{
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
    for (int round = 0; round < 7; ++round) {
        const u32 h0 = MUL_HI32(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
        const u32 h1 = MUL_HI32(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
        c0 = h1 ^ c1 ^ k0;
        c1 = l1;
        c2 = h0 ^ c3 ^ k1;
        c3 = l0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    words4 r;
    r.w[0] = c0; r.w[1] = c1; r.w[2] = c2; r.w[3] = c3;
    return r;
}

/* The upper 23 bits of a word as a number in (0, 1): exact in float and in double, so both draw alike. */
FUNCTION real unit(u32 word)
{
    return ((real)(word >> 9) + REAL(0.5)) * REAL(1.1920928955078125e-07);
}

typedef words4 wordsx;

/* The two uniforms of each of the coordinates k, k + 1, ... of one vector; k is a multiple of its width. */
FUNCTION void uniforms(
    u64 seed, u32 k, u32 vertex, u32 iteration, u32 purpose, realv* u1, realv* u2)
{
    const words4 r = philox(seed, k >> 1, vertex, iteration, purpose << 24);
    *u1 = unit((k & 1u) ? r.w[2] : r.w[0]);
    *u2 = unit((k & 1u) ? r.w[3] : r.w[1]);
}

FUNCTION u64 bucket_of(u64 key, u64 seed, u32 n_buckets)
{
    u64 x = key ^ seed;
    x ^= x >> 33;
    x *= U64(0xFF51AFD7ED558CCD);
    x ^= x >> 33;
    x *= U64(0xC4CEB9FE1A85EC53);
    return ((x >> 32) * n_buckets) >> 32;
}

/* Whether the unordered pair {a, b} is in the set: two buckets of four keys, either direction, never a self-pair. */
FUNCTION bool contains(
    GLOBAL const u64* RESTRICT buckets, u32 n_buckets, u64 seed0, u64 seed1, u32 a, u32 b)
{
    if (a == b) return false;
    const u64 key = a < b ? ((u64)a << 32) | b : ((u64)b << 32) | a;
    GLOBAL const u64* first = buckets + 4 * bucket_of(key, seed0, n_buckets);
    GLOBAL const u64* second = buckets + 4 * (n_buckets + bucket_of(key, seed1, n_buckets));
    bool found = false;
    for (int i = 0; i < 4; ++i) found = found || first[i] == key || second[i] == key;
    return found;
}

/* Draw number j of a vertex, in [0, bound): two 64-bit draws a call; the bias is bound / 2^64. */
FUNCTION u32 draw_below(u64 seed, u32 j, u32 vertex, u32 iteration, u32 purpose, u64 bound)
{
    const words4 r = philox(seed, j >> 1, vertex, iteration, purpose << 24);
    const u64 word = (j & 1u) ? ((u64)r.w[2] << 32) | r.w[3] : ((u64)r.w[0] << 32) | r.w[1];
    return (u32)MUL_HI64(word, bound);
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void sample_partners(
    __global const u32* restrict vertices,       /* [R, stride] vertices of the mini-batches of R iterations */
    __global const u32* restrict sizes,          /* [R] how many each has */
    __global const u64* restrict neighbour_offsets, /* [N + 1] begin of each vertex's training links */
    __global const u32* restrict neighbours,     /* [2 E] their other ends, ascending */
    __global const u64* restrict link_buckets,   /* [2 * buckets, 4] edge set of the training links */
    const u32 link_n_buckets,
    const u64 link_seed0,
    const u64 link_seed1,
    __global const u64* restrict held_buckets,   /* [2 * buckets, 4] edge set of the held-out pairs */
    const u32 held_n_buckets,
    const u64 held_seed0,
    const u64 held_seed1,
    __global u32* restrict partners,             /* [R, stride, n] the partners */
    __global real* restrict weights,             /* [R, stride, n] weight, negative for a non-link, 0 to ignore */
    const u32 n_vertices,                        /* R * stride */
    const u32 stride,                            /* places that each iteration has */
    const u32 n_partners,                        /* draws of each vertex */
    const u32 n_link_partners,                   /* of which at most so many are links (stratified) */
    const u32 n_total,                           /* N */
    const u64 seed,
    const u32 iteration
)
{
    const u32 index = BLOCK_ID * BLOCK_SIZE + LOCAL_ID;
    const u32 start = 0u, step = 1u;
    if (index >= n_vertices) return;
    const u32 round = index / stride;
    if (index - round * stride >= sizes[round]) return;
    const u32 vertex = vertices[index], now = iteration + round;
    const u64 first = (u64)index * n_partners;
    const u32 n = n_partners;
    const u64 links_at = neighbour_offsets[vertex];
    const u32 degree = (u32)(neighbour_offsets[vertex + 1u] - links_at);
    const bool strata = n_link_partners > 0u && n != n_total - 1u; /* else links come as all others do */
    const u32 n_links = !strata ? 0u : degree < n_link_partners ? degree : n_link_partners;
    const real link_weight = degree > n_links ? (real)((double)degree / n_links) : REAL(1.0);
    const real weight = (real)((double)(n_total - 1u) / (n - n_links));
    for (u32 j = start; j < n; j += step) {
        u32 other;
        real signed_weight;
        if (j < n_links) {
            const u32 at = degree > n_links ? draw_below(seed, j, vertex, now, PURPOSE_LINK_PARTNER, degree) : j;
            signed_weight = link_weight;
            other = neighbours[links_at + at];
        } else {
            other = n == n_total - 1u ? j : draw_below(seed, j, vertex, now, PURPOSE_PARTNER, n_total - 1u);
            other += other >= vertex;
            const bool link = contains(link_buckets, link_n_buckets, link_seed0, link_seed1, vertex, other);
            const bool held = contains(held_buckets, held_n_buckets, held_seed0, held_seed1, vertex, other);
            signed_weight = held ? REAL(0.0) : link ? weight : -weight;
            if (link && strata) signed_weight = REAL(0.0);
        }
        partners[first + j] = other;
        weights[first + j] = signed_weight;
    }
}
