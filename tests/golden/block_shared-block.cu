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

/* Where a vertex is among the panel's partners, the pair's weight becomes 0. */
FUNCTION void strike(
    real* scales, GLOBAL const u32* places, GLOBAL const u32* drawn,
    u32 vertex, u32 begin, u32 size)
{
    const u32 p = places[vertex];
    if (p - begin < size && drawn[p] == vertex) scales[(p - begin) * TILE] = REAL(0.0);
}

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
    LOCAL __align__(16) real scales[1024];
    LOCAL __align__(16) real own_slice[64];
    LOCAL real row_slice[4352]; /* one element apart, so that lanes meet different banks */
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
                strike(scales + i, places, drawn, neighbours[l], begin, size);
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
                    const realv x = ((GLOBAL const realv*)(pi + (u64)shared[p < count ? p : begin] * LD + k0))[c];
                    row_slice[r * 17u + c * 4u] = x.s[0];
                    row_slice[r * 17u + c * 4u + 1u] = x.s[1];
                    row_slice[r * 17u + c * 4u + 2u] = x.s[2];
                    row_slice[r * 17u + c * 4u + 3u] = x.s[3];
                }
                BARRIER;
                for (u32 k = 0; k < SLICE; ++k) {
                    const real x0 = row_slice[lane * (SLICE + 1u) + k];
                    const real x1 = row_slice[(lane + 128u) * (SLICE + 1u) + k];
                    const real w0 = own_slice[k * 4u];
                    dot0_0 = fma(w0, x0, dot0_0);
                    dot1_0 = fma(w0, x1, dot1_0);
                    const real w1 = own_slice[k * 4u + 1u];
                    dot0_1 = fma(w1, x0, dot0_1);
                    dot1_1 = fma(w1, x1, dot1_1);
                    const real w2 = own_slice[k * 4u + 2u];
                    dot0_2 = fma(w2, x0, dot0_2);
                    dot1_2 = fma(w2, x1, dot1_2);
                    const real w3 = own_slice[k * 4u + 3u];
                    dot0_3 = fma(w3, x0, dot0_3);
                    dot1_3 = fma(w3, x1, dot1_3);
                }
            }
            if (start + lane < size) {
                const u32 at = (start + lane) * TILE;
                scales[at] = -scales[at] / fmax((1.0f - delta) - dot0_0, REAL(Z_FLOOR));
                scales[at + 1u] = -scales[at + 1u] / fmax((1.0f - delta) - dot0_1, REAL(Z_FLOOR));
                scales[at + 2u] = -scales[at + 2u] / fmax((1.0f - delta) - dot0_2, REAL(Z_FLOOR));
                scales[at + 3u] = -scales[at + 3u] / fmax((1.0f - delta) - dot0_3, REAL(Z_FLOOR));
            }
            if (start + lane + 128u < size) {
                const u32 at = (start + lane + 128u) * TILE;
                scales[at] = -scales[at] / fmax((1.0f - delta) - dot1_0, REAL(Z_FLOOR));
                scales[at + 1u] = -scales[at + 1u] / fmax((1.0f - delta) - dot1_1, REAL(Z_FLOOR));
                scales[at + 2u] = -scales[at + 2u] / fmax((1.0f - delta) - dot1_2, REAL(Z_FLOOR));
                scales[at + 3u] = -scales[at + 3u] / fmax((1.0f - delta) - dot1_3, REAL(Z_FLOOR));
            }
        }
        BARRIER;
        for (u32 v = lane; v < ROW_VECTORS; v += T) {
            realv acc0_0 = v_splat(REAL(0.0));
            realv acc1_0 = v_splat(REAL(0.0));
            realv acc2_0 = v_splat(REAL(0.0));
            realv acc3_0 = v_splat(REAL(0.0));
            for (u32 p = 0; p < size; ++p) {
                GLOBAL const realv* row = (GLOBAL const realv*)(pi + (u64)shared[begin + p] * LD) + v;
                const realv x0 = row[0];
                const realv scale0 = v_splat(scales[p * 4u]);
                acc0_0 = fma(scale0, x0, acc0_0);
                const realv scale1 = v_splat(scales[p * 4u + 1u]);
                acc1_0 = fma(scale1, x0, acc1_0);
                const realv scale2 = v_splat(scales[p * 4u + 2u]);
                acc2_0 = fma(scale2, x0, acc2_0);
                const realv scale3 = v_splat(scales[p * 4u + 3u]);
                acc3_0 = fma(scale3, x0, acc3_0);
            }
            {
                GLOBAL realv* out = (GLOBAL realv*)(pi + (u64)spares[first] * LD) + v;
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
