/*
 * block_shared: K=1024 N=317080 dtype=float32 m=4096 n=512
 * configuration: block_size=128 panel=256 partners_in_flight=2 team=block tile=4 vector_width=4
 */

#define FUNCTION static __device__ __forceinline__
#define GLOBAL
#define LOCAL __shared__
#define BLOCK_ID blockIdx.x
#define LOCAL_ID threadIdx.x
#define BARRIER __syncthreads()
#define PASTE(x, y) x##y
#define REAL(x) PASTE(x, f)
#define W 4u
#define K 1024u
#define LD 1024u
#define ROW_VECTORS 256u
#define Z_FLOOR 1e-12
#define T 128u
#define TILE 4u
#define PARTNERS 2u
#define PANEL 256u
#define SLICE 16u
#define STARS 0
#define LABELS 0

typedef unsigned int u32;
typedef unsigned long long u64;
typedef float real;

struct __align__(16) realv { real s[W]; };

FUNCTION realv operator+(realv x, realv y)
{
    realv r;
    r.s[0] = x.s[0] + y.s[0]; r.s[1] = x.s[1] + y.s[1]; r.s[2] = x.s[2] + y.s[2]; r.s[3] = x.s[3] + y.s[3];
    return r;
}

FUNCTION realv operator-(realv x, realv y)
{
    realv r;
    r.s[0] = x.s[0] - y.s[0]; r.s[1] = x.s[1] - y.s[1]; r.s[2] = x.s[2] - y.s[2]; r.s[3] = x.s[3] - y.s[3];
    return r;
}

FUNCTION realv operator*(realv x, realv y)
{
    realv r;
    r.s[0] = x.s[0] * y.s[0]; r.s[1] = x.s[1] * y.s[1]; r.s[2] = x.s[2] * y.s[2]; r.s[3] = x.s[3] * y.s[3];
    return r;
}

FUNCTION realv fma(realv x, realv y, realv z)
{
    realv r;
    r.s[0] = fma(x.s[0], y.s[0], z.s[0]);
    r.s[1] = fma(x.s[1], y.s[1], z.s[1]);
    r.s[2] = fma(x.s[2], y.s[2], z.s[2]);
    r.s[3] = fma(x.s[3], y.s[3], z.s[3]);
    return r;
}

FUNCTION realv v_splat(real x)
{
    realv r;
    r.s[0] = x; r.s[1] = x; r.s[2] = x; r.s[3] = x;
    return r;
}

FUNCTION real v_sum(realv x)
{
    return ((x.s[0] + x.s[1]) + (x.s[2] + x.s[3]));
}

#if STARS
#define SLOT_OF(place) slots[drawn[place]]
#else
#define SLOT_OF(place) shared[place]
#endif
/* Z of a pair by its weight, which is negative where links are marked. */
#if LABELS
#define Z_OF(weight, dot) (weight < REAL(0.0) ? delta + dot : (REAL(1.0) - delta) - dot)
#else
#define Z_OF(weight, dot) (REAL(1.0) - delta) - dot
#endif
#define ALIGNED_LOCAL LOCAL __align__(16)
/* scales is local memory of a block, or private to a work-item. */
#define SCALES real*

/* Where a vertex is among the panel's partners, the pair's weight becomes 0. */
FUNCTION void strike(
    SCALES scales, GLOBAL const u32* places, GLOBAL const u32* drawn,
    u32 vertex, u32 begin, u32 size)
{
    const u32 p = places[vertex];
    if (p - begin < size && drawn[p] == vertex) scales[(p - begin) * TILE] = REAL(0.0);
}

#if LABELS
#define LINK label

/* Where it is a link, the weight changes its sign. */
FUNCTION void label(
    SCALES scales, GLOBAL const u32* places, GLOBAL const u32* drawn,
    u32 vertex, u32 begin, u32 size)
{
    const u32 p = places[vertex];
    if (p - begin < size && drawn[p] == vertex) scales[(p - begin) * TILE] *= REAL(-1.0);
}

#else
#define LINK strike
#endif

extern "C" __global__ __launch_bounds__(128)
void block_shared(
    real* __restrict__ pi,                       /* [N + m, LD] rows by slot */
    const u32* __restrict__ slots,               /* [N] slot of a vertex's row */
    const u32* __restrict__ spares,              /* [m] free slots; they receive the new rows */
    const real* __restrict__ beta,               /* [LD] community strengths */
    const u32* __restrict__ vertices,            /* [.., m] distinct vertices of the mini-batch, from first_vertex on */
    const u32* __restrict__ shared,              /* [room] slots of the shared partners' rows */
    const real* __restrict__ shared_weights,     /* [room] weights; 0 from n_shared on */
    const u32* __restrict__ n_shared,            /* [1] how many shared partners there are */
    const u32* __restrict__ drawn,               /* [n] the shared partners */
    const u32* __restrict__ places,              /* [N] where a vertex is among them, if it is */
    const u64* __restrict__ neighbour_offsets,   /* [N + 1] begin of each vertex's training links */
    const u32* __restrict__ neighbours,          /* [2 E] their other ends, ascending */
    const u64* __restrict__ held_offsets,        /* [N + 1] begin of each vertex's held-out pairs */
    const u32* __restrict__ held_neighbours,     /* [2 H] their other ends, ascending */
    const u32 n_vertices,                        /* vertices of the mini-batch */
    const u32 first_vertex,                      /* place of the first of them */
    const real delta                             /* probability of a link across communities */
)
{
    ALIGNED_LOCAL real scales[PANEL * TILE];
    ALIGNED_LOCAL real own_slice[SLICE * TILE];
    LOCAL real row_slice[T * PARTNERS * (SLICE + 1u)]; /* one element apart, so that lanes meet different banks */
    const u32 lane = LOCAL_ID, first = BLOCK_ID * TILE;
    if (first >= n_vertices) return;
    const u32 count = n_shared[0];
    for (u32 begin = 0; begin < count; begin += PANEL) {
        const u32 size = count - begin < PANEL ? count - begin : PANEL;
        BARRIER; /* the last panel's scales may still be read */
        for (u32 e = lane; e < (PANEL * TILE); e += T) {
            const u32 p = e / TILE;
            scales[e] = p < size ? shared_weights[begin + p] : REAL(0.0);
        }
        BARRIER;
        for (u32 i = 0; i < TILE && first + i < n_vertices; ++i) {
            const u32 vertex = vertices[first_vertex + first + i];
            if (lane == 0u) strike(scales + i, places, drawn, vertex, begin, size);
            for (u64 l = neighbour_offsets[vertex] + lane; l < neighbour_offsets[vertex + 1u]; l += T)
                LINK(scales + i, places, drawn, neighbours[l], begin, size);
            for (u64 l = held_offsets[vertex] + lane; l < held_offsets[vertex + 1u]; l += T)
                strike(scales + i, places, drawn, held_neighbours[l], begin, size);
        }

        for (u32 start = 0; start < size; start += (T * PARTNERS)) { /* a lane has the partners start + lane + 128 j */
            real dot0_0 = REAL(0.0), dot0_1 = REAL(0.0), dot0_2 = REAL(0.0), dot0_3 = REAL(0.0);
            real dot1_0 = REAL(0.0), dot1_1 = REAL(0.0), dot1_2 = REAL(0.0), dot1_3 = REAL(0.0);
            for (u32 k0 = 0; k0 < LD; k0 += SLICE) {
                BARRIER;
                for (u32 e = lane; e < (SLICE * TILE); e += T) {
                    const u32 k = e % SLICE, i = e / SLICE;
                    const u32 vertex = vertices[first_vertex + (first + i < n_vertices ? first + i : first)];
                    own_slice[k * TILE + i] = pi[(u64)slots[vertex] * LD + k0 + k] * (beta[k0 + k] - delta);
                }
                for (u32 e = lane; e < (T * PARTNERS * SLICE / W); e += T) {
                    const u32 r = e / (SLICE / W), c = e % (SLICE / W), p = begin + start + r;
                    const realv x = ((GLOBAL const realv*)(pi + (u64)SLOT_OF(p < count ? p : begin) * LD + k0))[c];
                    row_slice[r * (SLICE + 1u) + c * W + 0u] = x.s[0];
                    row_slice[r * (SLICE + 1u) + c * W + 1u] = x.s[1];
                    row_slice[r * (SLICE + 1u) + c * W + 2u] = x.s[2];
                    row_slice[r * (SLICE + 1u) + c * W + 3u] = x.s[3];
                }
                BARRIER;
                for (u32 k = 0; k < SLICE; ++k) {
                    const real x0 = row_slice[(lane + 0u * T) * (SLICE + 1u) + k];
                    const real x1 = row_slice[(lane + 1u * T) * (SLICE + 1u) + k];
                    const real w0 = own_slice[k * TILE + 0u];
                    dot0_0 = fma(w0, x0, dot0_0);
                    dot1_0 = fma(w0, x1, dot1_0);
                    const real w1 = own_slice[k * TILE + 1u];
                    dot0_1 = fma(w1, x0, dot0_1);
                    dot1_1 = fma(w1, x1, dot1_1);
                    const real w2 = own_slice[k * TILE + 2u];
                    dot0_2 = fma(w2, x0, dot0_2);
                    dot1_2 = fma(w2, x1, dot1_2);
                    const real w3 = own_slice[k * TILE + 3u];
                    dot0_3 = fma(w3, x0, dot0_3);
                    dot1_3 = fma(w3, x1, dot1_3);
                }
            }
            if (start + lane + 0u * T < size) {
                const u32 at = (start + lane + 0u * T) * TILE;
                scales[at + 0u] = -scales[at + 0u] / fmax(Z_OF(scales[at + 0u], dot0_0), REAL(Z_FLOOR));
                scales[at + 1u] = -scales[at + 1u] / fmax(Z_OF(scales[at + 1u], dot0_1), REAL(Z_FLOOR));
                scales[at + 2u] = -scales[at + 2u] / fmax(Z_OF(scales[at + 2u], dot0_2), REAL(Z_FLOOR));
                scales[at + 3u] = -scales[at + 3u] / fmax(Z_OF(scales[at + 3u], dot0_3), REAL(Z_FLOOR));
            }
            if (start + lane + 1u * T < size) {
                const u32 at = (start + lane + 1u * T) * TILE;
                scales[at + 0u] = -scales[at + 0u] / fmax(Z_OF(scales[at + 0u], dot1_0), REAL(Z_FLOOR));
                scales[at + 1u] = -scales[at + 1u] / fmax(Z_OF(scales[at + 1u], dot1_1), REAL(Z_FLOOR));
                scales[at + 2u] = -scales[at + 2u] / fmax(Z_OF(scales[at + 2u], dot1_2), REAL(Z_FLOOR));
                scales[at + 3u] = -scales[at + 3u] / fmax(Z_OF(scales[at + 3u], dot1_3), REAL(Z_FLOOR));
            }
        }
        BARRIER;
        for (u32 v = lane; v < ROW_VECTORS; v += T) {
            realv acc0_0 = v_splat(REAL(0.0));
            realv acc1_0 = v_splat(REAL(0.0));
            realv acc2_0 = v_splat(REAL(0.0));
            realv acc3_0 = v_splat(REAL(0.0));
            for (u32 p = 0; p < size; ++p) {
                GLOBAL const realv* row = (GLOBAL const realv*)(pi + (u64)SLOT_OF(begin + p) * LD) + v;
                const realv x0 = row[0];
                const realv scale0 = v_splat(scales[p * TILE + 0u]);
                acc0_0 = fma(scale0, x0, acc0_0);
                const realv scale1 = v_splat(scales[p * TILE + 1u]);
                acc1_0 = fma(scale1, x0, acc1_0);
                const realv scale2 = v_splat(scales[p * TILE + 2u]);
                acc2_0 = fma(scale2, x0, acc2_0);
                const realv scale3 = v_splat(scales[p * TILE + 3u]);
                acc3_0 = fma(scale3, x0, acc3_0);
            }
            {
                GLOBAL realv* out = (GLOBAL realv*)(pi + (u64)spares[first + 0u] * LD) + v;
                out[0] = begin > 0u ? out[0] + acc0_0 : acc0_0;
            }
            if (first + 1u < n_vertices) {
                GLOBAL realv* out = (GLOBAL realv*)(pi + (u64)spares[first + 1u] * LD) + v;
                out[0] = begin > 0u ? out[0] + acc1_0 : acc1_0;
            }
            if (first + 2u < n_vertices) {
                GLOBAL realv* out = (GLOBAL realv*)(pi + (u64)spares[first + 2u] * LD) + v;
                out[0] = begin > 0u ? out[0] + acc2_0 : acc2_0;
            }
            if (first + 3u < n_vertices) {
                GLOBAL realv* out = (GLOBAL realv*)(pi + (u64)spares[first + 3u] * LD) + v;
                out[0] = begin > 0u ? out[0] + acc3_0 : acc3_0;
            }
        }
    }
}
