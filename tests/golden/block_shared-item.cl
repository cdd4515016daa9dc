/*
 * block_shared: K=100 N=317080 dtype=float32 m=4096 n=200
 * configuration: block_size=1 panel=256 partners_in_flight=2 team=item tile=2 vector_width=4
 */

#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef uint u32;
typedef ulong u64;
typedef float real;
typedef float4 realv;

static inline realv v_splat(real x)
{
    return (realv)(x);
}

static inline real v_sum(realv x)
{
    return ((x.s0 + x.s1) + (x.s2 + x.s3));
}

/* Where a vertex is among the panel's partners, the pair's weight becomes 0. */
static inline void strike(
    real* scales, __global const u32* places, __global const u32* drawn,
    u32 vertex, u32 begin, u32 size)
{
    const u32 p = places[vertex];
    if (p - begin < size && drawn[p] == vertex) scales[(p - begin) * 2u] = 0.0f;
}

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
    real scales[512];
    realv w[56];
    const u32 lane = 0u, first = (uint)get_group_id(0) * 2u;
    if (first >= n_vertices) return;
    __global const realv* strength = (__global const realv*)beta;
    {
        const u32 vertex = vertices[first_vertex + first];
        __global const realv* own = (__global const realv*)(pi + (u64)slots[vertex] * 112u);
        for (u32 v = 0; v < 28u; ++v) w[v] = own[v] * (strength[v] - v_splat(delta));
    }
    {
        const u32 vertex = vertices[first_vertex + (first + 1u < n_vertices ? first + 1u : first)];
        __global const realv* own = (__global const realv*)(pi + (u64)slots[vertex] * 112u);
        for (u32 v = 0; v < 28u; ++v) w[v + 28u] = own[v] * (strength[v] - v_splat(delta));
    }
    const u32 count = n_shared[0];
    for (u32 begin = 0; begin < count; begin += 256u) {
        const u32 size = count - begin < 256u ? count - begin : 256u;
        for (u32 e = lane; e < 512u; e += 1u) {
            const u32 p = e / 2u;
            scales[e] = p < size ? shared_weights[begin + p] : 0.0f;
        }
        for (u32 i = 0; i < 2u && first + i < n_vertices; ++i) {
            const u32 vertex = vertices[first_vertex + first + i];
            if (lane == 0u) strike(scales + i, places, drawn, vertex, begin, size);
            for (u64 l = neighbour_offsets[vertex] + lane; l < neighbour_offsets[vertex + 1u]; l += 1u)
                strike(scales + i, places, drawn, neighbours[l], begin, size);
            for (u64 l = held_offsets[vertex] + lane; l < held_offsets[vertex + 1u]; l += 1u)
                strike(scales + i, places, drawn, held_neighbours[l], begin, size);
        }

        for (u32 p = 0; p < size; p += 2u) { /* past size there are slots to read, and weights of 0 */
            __global const realv* row0 = (__global const realv*)(pi + (u64)shared[begin + p] * 112u);
            realv dot0 = v_splat(0.0f), dot1 = v_splat(0.0f);
            __global const realv* row1 = (__global const realv*)(pi + (u64)shared[begin + p + 1u] * 112u);
            realv dot2 = v_splat(0.0f), dot3 = v_splat(0.0f);
            for (u32 v = 0; v < 28u; ++v) {
                const realv w0 = w[v];
                const realv w1 = w[v + 28u];
                const realv x0 = row0[v];
                dot0 = fma(w0, x0, dot0);
                dot1 = fma(w1, x0, dot1);
                const realv x1 = row1[v];
                dot2 = fma(w0, x1, dot2);
                dot3 = fma(w1, x1, dot3);
            }
            {
                const realv fold4_0 = (realv)(dot0.even, dot1.even) + (realv)(dot0.odd, dot1.odd);
                const realv fold4_1 = (realv)(dot2.even, dot3.even) + (realv)(dot2.odd, dot3.odd);
                const realv fold2_0 = (realv)(fold4_0.even, fold4_1.even) + (realv)(fold4_0.odd, fold4_1.odd);
                const realv dots = fold2_0;
                real* scale = scales + p * 2u;
                const realv z = fmax(v_splat(1.0f - delta) - dots, v_splat(1e-12f));
                vstore4(-vload4(0, scale) / z, 0, scale);
            }
        }
        for (u32 v = 0; v + 1u < 28u; v += 2u) {
            realv acc0_0 = v_splat(0.0f), acc0_1 = v_splat(0.0f);
            realv acc1_0 = v_splat(0.0f), acc1_1 = v_splat(0.0f);
            for (u32 p = 0; p < size; ++p) {
                __global const realv* row = (__global const realv*)(pi + (u64)shared[begin + p] * 112u) + v;
                const realv x0 = row[0];
                const realv x1 = row[1];
                const realv scale0 = v_splat(scales[p * 2u]);
                acc0_0 = fma(scale0, x0, acc0_0);
                acc0_1 = fma(scale0, x1, acc0_1);
                const realv scale1 = v_splat(scales[p * 2u + 1u]);
                acc1_0 = fma(scale1, x0, acc1_0);
                acc1_1 = fma(scale1, x1, acc1_1);
            }
            {
                __global realv* out = (__global realv*)(pi + (u64)spares[first] * 112u) + v;
                out[0] = begin > 0u ? out[0] + acc0_0 : acc0_0;
                out[1] = begin > 0u ? out[1] + acc0_1 : acc0_1;
            }
            if (first + 1u < n_vertices) {
                __global realv* out = (__global realv*)(pi + (u64)spares[first + 1u] * 112u) + v;
                out[0] = begin > 0u ? out[0] + acc1_0 : acc1_0;
                out[1] = begin > 0u ? out[1] + acc1_1 : acc1_1;
            }
        }
    }
}
