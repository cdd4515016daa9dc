/*
 * block_shared: K=100 N=317080 dtype=float32 m=4096 n=200
 * configuration: block_size=1 panel=256 partners_in_flight=2 team=item tile=2 vector_width=4
 */

#define FUNCTION static inline
#define GLOBAL __global
#define BLOCK_ID (uint)get_group_id(0)
#define OPENCL 1
#define PASTE(x, y) x##y
#define REAL(x) PASTE(x, f)
#define W 4u
#define K 100u
#define LD 112u
#define ROW_VECTORS 28u
#define Z_FLOOR 1e-12
#define T 1u
#define TILE 2u
#define PARTNERS 2u
#define PANEL 256u
#define STARS 0
#define LABELS 0
#define FLIGHT 2u

#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef uint u32;
typedef ulong u64;
typedef float real;
typedef float4 realv;

FUNCTION realv v_splat(real x)
{
    return (realv)(x);
}

FUNCTION real v_sum(realv x)
{
    return ((x.s0 + x.s1) + (x.s2 + x.s3));
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
#define VLOAD(from) vload4(0, from)
#define VSTORE(x, to) vstore4(x, 0, to)
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

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void block_shared(
    __global real* restrict pi,                  /* [N + m, LD] rows by slot */
    __global const u32* restrict slots,          /* [N] slot of a vertex's row */
    __global const u32* restrict spares,         /* [m] free slots; they receive the new rows */
    __global const real* restrict beta,          /* [LD] community strengths */
    __global const u32* restrict vertices,       /* [.., m] distinct vertices of the mini-batch, from first_vertex on */
    __global const u32* restrict shared,         /* [room] slots of the shared partners' rows */
    __global const real* restrict shared_weights, /* [room] weights; 0 from n_shared on */
    __global const u32* restrict n_shared,       /* [1] how many shared partners there are */
    __global const u32* restrict drawn,          /* [n] the shared partners */
    __global const u32* restrict places,         /* [N] where a vertex is among them, if it is */
    __global const u64* restrict neighbour_offsets, /* [N + 1] begin of each vertex's training links */
    __global const u32* restrict neighbours,     /* [2 E] their other ends, ascending */
    __global const u64* restrict held_offsets,   /* [N + 1] begin of each vertex's held-out pairs */
    __global const u32* restrict held_neighbours, /* [2 H] their other ends, ascending */
    const u32 n_vertices,                        /* vertices of the mini-batch */
    const u32 first_vertex,                      /* place of the first of them */
    const real delta                             /* probability of a link across communities */
)
{
    real scales[PANEL * TILE];
    realv w[TILE * ROW_VECTORS];
    const u32 lane = 0u, first = BLOCK_ID * TILE;
    if (first >= n_vertices) return;
    GLOBAL const realv* strength = (GLOBAL const realv*)beta;
    {
        const u32 vertex = vertices[first_vertex + first];
        GLOBAL const realv* own = (GLOBAL const realv*)(pi + (u64)slots[vertex] * LD);
        for (u32 v = 0; v < ROW_VECTORS; ++v) w[v + 0u * ROW_VECTORS] = own[v] * (strength[v] - v_splat(delta));
    }
    {
        const u32 vertex = vertices[first_vertex + (first + 1u < n_vertices ? first + 1u : first)];
        GLOBAL const realv* own = (GLOBAL const realv*)(pi + (u64)slots[vertex] * LD);
        for (u32 v = 0; v < ROW_VECTORS; ++v) w[v + 1u * ROW_VECTORS] = own[v] * (strength[v] - v_splat(delta));
    }
    const u32 count = n_shared[0];
    for (u32 begin = 0; begin < count; begin += PANEL) {
        const u32 size = count - begin < PANEL ? count - begin : PANEL;
        for (u32 e = lane; e < (PANEL * TILE); e += T) {
            const u32 p = e / TILE;
            scales[e] = p < size ? shared_weights[begin + p] : REAL(0.0);
        }
        for (u32 i = 0; i < TILE && first + i < n_vertices; ++i) {
            const u32 vertex = vertices[first_vertex + first + i];
            if (lane == 0u) strike(scales + i, places, drawn, vertex, begin, size);
            for (u64 l = neighbour_offsets[vertex] + lane; l < neighbour_offsets[vertex + 1u]; l += T)
                LINK(scales + i, places, drawn, neighbours[l], begin, size);
            for (u64 l = held_offsets[vertex] + lane; l < held_offsets[vertex + 1u]; l += T)
                strike(scales + i, places, drawn, held_neighbours[l], begin, size);
        }

        for (u32 p = 0; p < size; p += PARTNERS) { /* past size there are slots to read, and weights of 0 */
            GLOBAL const realv* row0 = (GLOBAL const realv*)(pi + (u64)SLOT_OF(begin + p + 0u) * LD);
            realv dot0_0 = v_splat(REAL(0.0));
            realv dot0_1 = v_splat(REAL(0.0));
            GLOBAL const realv* row1 = (GLOBAL const realv*)(pi + (u64)SLOT_OF(begin + p + 1u) * LD);
            realv dot1_0 = v_splat(REAL(0.0));
            realv dot1_1 = v_splat(REAL(0.0));
            for (u32 v = 0; v < ROW_VECTORS; ++v) {
                const realv w0 = w[v + 0u * ROW_VECTORS];
                const realv w1 = w[v + 1u * ROW_VECTORS];
                const realv x0 = row0[v];
                dot0_0 = fma(w0, x0, dot0_0);
                dot0_1 = fma(w1, x0, dot0_1);
                const realv x1 = row1[v];
                dot1_0 = fma(w0, x1, dot1_0);
                dot1_1 = fma(w1, x1, dot1_1);
            }
            {
                const realv fold4_0 = (realv)(dot0_0.even, dot0_1.even) + (realv)(dot0_0.odd, dot0_1.odd);
                const realv fold4_1 = (realv)(dot1_0.even, dot1_1.even) + (realv)(dot1_0.odd, dot1_1.odd);
                const realv fold2_0 = (realv)(fold4_0.even, fold4_1.even) + (realv)(fold4_0.odd, fold4_1.odd);
                const realv dots = fold2_0;
                real* scale = scales + p * TILE + 0u * W;
                #if LABELS
                const realv weights = VLOAD(scale);
                const realv of_pairs = weights < v_splat(REAL(0.0)) ? v_splat(delta) + dots : v_splat(REAL(1.0) - delta) - dots;
                const realv z = fmax(of_pairs, v_splat(REAL(Z_FLOOR)));
                VSTORE(-weights / z, scale);
                #else
                const realv z = fmax(v_splat(REAL(1.0) - delta) - dots, v_splat(REAL(Z_FLOOR)));
                VSTORE(-VLOAD(scale) / z, scale);
                #endif
            }
        }
        for (u32 v = 0; v + (FLIGHT - 1u) < ROW_VECTORS; v += FLIGHT) {
            realv acc0_0 = v_splat(REAL(0.0)), acc0_1 = v_splat(REAL(0.0));
            realv acc1_0 = v_splat(REAL(0.0)), acc1_1 = v_splat(REAL(0.0));
            for (u32 p = 0; p < size; ++p) {
                GLOBAL const realv* row = (GLOBAL const realv*)(pi + (u64)SLOT_OF(begin + p) * LD) + v;
                const realv x0 = row[0];
                const realv x1 = row[1];
                const realv scale0 = v_splat(scales[p * TILE + 0u]);
                acc0_0 = fma(scale0, x0, acc0_0);
                acc0_1 = fma(scale0, x1, acc0_1);
                const realv scale1 = v_splat(scales[p * TILE + 1u]);
                acc1_0 = fma(scale1, x0, acc1_0);
                acc1_1 = fma(scale1, x1, acc1_1);
            }
            {
                GLOBAL realv* out = (GLOBAL realv*)(pi + (u64)spares[first + 0u] * LD) + v;
                out[0] = begin > 0u ? out[0] + acc0_0 : acc0_0;
                out[1] = begin > 0u ? out[1] + acc0_1 : acc0_1;
            }
            if (first + 1u < n_vertices) {
                GLOBAL realv* out = (GLOBAL realv*)(pi + (u64)spares[first + 1u] * LD) + v;
                out[0] = begin > 0u ? out[0] + acc1_0 : acc1_0;
                out[1] = begin > 0u ? out[1] + acc1_1 : acc1_1;
            }
        }
    }
}
