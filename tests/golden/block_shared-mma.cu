/*
 * block_shared: K=100 N=317080 dtype=float32 m=4096 n=512
 * configuration: block_size=256 panel=256 partners_in_flight=4 product=mma team=block tile=32 vector_width=4
 */

typedef unsigned int u32;
typedef unsigned long long u64;
typedef float real;

struct __align__(16) realv { real s[4]; };

static __device__ __forceinline__ realv operator+(realv x, realv y)
{
    realv r;
    r.s[0] = x.s[0] + y.s[0]; r.s[1] = x.s[1] + y.s[1]; r.s[2] = x.s[2] + y.s[2]; r.s[3] = x.s[3] + y.s[3];
    return r;
}

static __device__ __forceinline__ realv operator-(realv x, realv y)
{
    realv r;
    r.s[0] = x.s[0] - y.s[0]; r.s[1] = x.s[1] - y.s[1]; r.s[2] = x.s[2] - y.s[2]; r.s[3] = x.s[3] - y.s[3];
    return r;
}

static __device__ __forceinline__ realv operator*(realv x, realv y)
{
    realv r;
    r.s[0] = x.s[0] * y.s[0]; r.s[1] = x.s[1] * y.s[1]; r.s[2] = x.s[2] * y.s[2]; r.s[3] = x.s[3] * y.s[3];
    return r;
}

static __device__ __forceinline__ realv fma(realv x, realv y, realv z)
{
    realv r;
    r.s[0] = fma(x.s[0], y.s[0], z.s[0]);
    r.s[1] = fma(x.s[1], y.s[1], z.s[1]);
    r.s[2] = fma(x.s[2], y.s[2], z.s[2]);
    r.s[3] = fma(x.s[3], y.s[3], z.s[3]);
    return r;
}

static __device__ __forceinline__ realv v_splat(real x)
{
    realv r;
    r.s[0] = x; r.s[1] = x; r.s[2] = x; r.s[3] = x;
    return r;
}

static __device__ __forceinline__ real v_sum(realv x)
{
    return ((x.s[0] + x.s[1]) + (x.s[2] + x.s[3]));
}

/* Two bfloat16, the first in the lower half. */
static __device__ __forceinline__ u32 pack(float first, float second)
{
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
}

/* sums[16][8] += a[16][16] b[16][8]; a: this lane's four terms of rows group and group + 8, b: of column group. */
static __device__ __forceinline__ void multiply(float* sums, uint2 a, uint2 a_below, u32 b_first, u32 b_second)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{ %0, %1, %2, %3 }, { %4, %5, %6, %7 }, { %8, %9 }, { %0, %1, %2, %3 };"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a.x), "r"(a_below.x), "r"(a.y), "r"(a_below.y), "r"(b_first), "r"(b_second));
}

/* Where a vertex is among the panel's partners, the pair is struck out. */
static __device__ __forceinline__ void strike(
    u32* struck, const u32* places, const u32* drawn, u32 vertex, u32 i, u32 begin, u32 size)
{
    const u32 p = places[vertex];
    if (p - begin < size && drawn[p] == vertex)
        atomicOr(struck + (p - begin) * 1u + i / 32u, 1u << (i % 32u));
}

static __device__ __forceinline__ float scale_of(const u32* struck, float weight, float dot, u32 p, u32 i, float delta)
{
    const bool out = struck[p * 1u + i / 32u] >> (i % 32u) & 1u;
    return out ? 0.0f : -weight / fmax((1.0f - delta) - dot, 1e-12f);
}

static __device__ __forceinline__ void add_to(float* row, bool more, float x, float y, float z, float w)
{
    float4* there = (float4*)row;
    const float4 before = more ? *there : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    *there = make_float4(before.x + x, before.y + y, before.z + z, before.w + w);
}

extern "C" __global__ __launch_bounds__(256)
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
    __shared__ __align__(16) u32 scales[32][136];
    __shared__ __align__(16) u32 own_slice[32][40];
    __shared__ u32 struck[256];
    const u32 lane = threadIdx.x, warp = lane / 32u, group = lane % 32u / 4u, part = lane % 4u;
    const u32 first = blockIdx.x * 32u;
    if (first >= n_vertices) return;
    const u32 count = n_shared[0];
    for (u32 begin = 0; begin < count; begin += 256u) {
        const u32 size = count - begin < 256u ? count - begin : 256u;
        __syncthreads(); /* the last panel's scales may still be read */
        for (u32 e = lane; e < 256u; e += 256u) struck[e] = 0u;
        __syncthreads();
        for (u32 i = 0; i < 32u && first + i < n_vertices; ++i) {
            const u32 vertex = vertices[first + i];
            if (lane == 0u) strike(struck, places, drawn, vertex, i, begin, size);
            for (u64 l = neighbour_offsets[vertex] + lane; l < neighbour_offsets[vertex + 1u]; l += 256u)
                strike(struck, places, drawn, neighbours[l], i, begin, size);
            for (u64 l = held_offsets[vertex] + lane; l < held_offsets[vertex + 1u]; l += 256u)
                strike(struck, places, drawn, held_neighbours[l], i, begin, size);
        }

        for (u32 start = 0; start < size; start += 256u) {
            const u32 from = start + 32u * warp; /* this warp's partners */
            const u32 place0 = from + group;
            const u32 slot0 = shared[begin + (place0 < size ? place0 : 0u)];
            const float* row0 = pi + (u64)slot0 * 112u + 4u * part;
            const u32 place1 = from + group + 8u;
            const u32 slot1 = shared[begin + (place1 < size ? place1 : 0u)];
            const float* row1 = pi + (u64)slot1 * 112u + 4u * part;
            const u32 place2 = from + group + 16u;
            const u32 slot2 = shared[begin + (place2 < size ? place2 : 0u)];
            const float* row2 = pi + (u64)slot2 * 112u + 4u * part;
            const u32 place3 = from + group + 24u;
            const u32 slot3 = shared[begin + (place3 < size ? place3 : 0u)];
            const float* row3 = pi + (u64)slot3 * 112u + 4u * part;
            float dot0_0[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            float dot0_1[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            float dot0_2[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            float dot0_3[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            float dot1_0[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            float dot1_1[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            float dot1_2[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            float dot1_3[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            for (u32 k0 = 0; k0 < 112u; k0 += 64u) {
                __syncthreads();
                for (u32 e = lane; e < 512u; e += 256u) {
                    const u32 i = e / 16u, k = k0 + e % 16u * 4u;
                    if (k < 112u) {
                        const u32 vertex = vertices[first + i < n_vertices ? first + i : first];
                        const float4 own = *(const float4*)(pi + (u64)slots[vertex] * 112u + k);
                        const float4 strength = *(const float4*)(beta + k);
                        const u32 at = (k - k0) / 2u;
                        own_slice[i][at] = pack(own.x * (strength.x - delta), own.y * (strength.y - delta));
                        own_slice[i][at + 1u] = pack(own.z * (strength.z - delta), own.w * (strength.w - delta));
                    }
                }
                __syncthreads();
                if (from >= size) continue;
                #pragma unroll 2
                for (u32 k = 0; k < 64u && k0 + k < 112u; k += 16u) {
                    const float4 x0 = *(const float4*)(row0 + k0 + k);
                    const u32 b0 = pack(x0.x, x0.y), c0 = pack(x0.z, x0.w);
                    const float4 x1 = *(const float4*)(row1 + k0 + k);
                    const u32 b1 = pack(x1.x, x1.y), c1 = pack(x1.z, x1.w);
                    const float4 x2 = *(const float4*)(row2 + k0 + k);
                    const u32 b2 = pack(x2.x, x2.y), c2 = pack(x2.z, x2.w);
                    const float4 x3 = *(const float4*)(row3 + k0 + k);
                    const u32 b3 = pack(x3.x, x3.y), c3 = pack(x3.z, x3.w);
                    const u32 at = k / 2u + 2u * part;
                    const uint2 a0 = *(const uint2*)&own_slice[group][at];
                    const uint2 a0_below = *(const uint2*)&own_slice[group + 8u][at];
                    multiply(dot0_0, a0, a0_below, b0, c0);
                    multiply(dot0_1, a0, a0_below, b1, c1);
                    multiply(dot0_2, a0, a0_below, b2, c2);
                    multiply(dot0_3, a0, a0_below, b3, c3);
                    const uint2 a1 = *(const uint2*)&own_slice[group + 16u][at];
                    const uint2 a1_below = *(const uint2*)&own_slice[group + 24u][at];
                    multiply(dot1_0, a1, a1_below, b0, c0);
                    multiply(dot1_1, a1, a1_below, b1, c1);
                    multiply(dot1_2, a1, a1_below, b2, c2);
                    multiply(dot1_3, a1, a1_below, b3, c3);
                }
            }
            if (from < size) { /* a lane has the dots of rows group and group + 8 with partners 2 part and 2 part + 1 */
                {
                    const u32 p = from + 2u * part, next = p + 1u;
                    const float weight = p < size ? shared_weights[begin + p] : 0.0f;
                    const float next_weight = next < size ? shared_weights[begin + next] : 0.0f;
                    {
                        const u32 i = group;
                        scales[i][p / 2u] = pack(
                            scale_of(struck, weight, dot0_0[0], p, i, delta),
                            scale_of(struck, next_weight, dot0_0[1], next, i, delta));
                    }
                    {
                        const u32 i = group + 8u;
                        scales[i][p / 2u] = pack(
                            scale_of(struck, weight, dot0_0[2], p, i, delta),
                            scale_of(struck, next_weight, dot0_0[3], next, i, delta));
                    }
                    {
                        const u32 i = group + 16u;
                        scales[i][p / 2u] = pack(
                            scale_of(struck, weight, dot1_0[0], p, i, delta),
                            scale_of(struck, next_weight, dot1_0[1], next, i, delta));
                    }
                    {
                        const u32 i = group + 24u;
                        scales[i][p / 2u] = pack(
                            scale_of(struck, weight, dot1_0[2], p, i, delta),
                            scale_of(struck, next_weight, dot1_0[3], next, i, delta));
                    }
                }
                {
                    const u32 p = from + 2u * part + 8u, next = p + 1u;
                    const float weight = p < size ? shared_weights[begin + p] : 0.0f;
                    const float next_weight = next < size ? shared_weights[begin + next] : 0.0f;
                    {
                        const u32 i = group;
                        scales[i][p / 2u] = pack(
                            scale_of(struck, weight, dot0_1[0], p, i, delta),
                            scale_of(struck, next_weight, dot0_1[1], next, i, delta));
                    }
                    {
                        const u32 i = group + 8u;
                        scales[i][p / 2u] = pack(
                            scale_of(struck, weight, dot0_1[2], p, i, delta),
                            scale_of(struck, next_weight, dot0_1[3], next, i, delta));
                    }
                    {
                        const u32 i = group + 16u;
                        scales[i][p / 2u] = pack(
                            scale_of(struck, weight, dot1_1[0], p, i, delta),
                            scale_of(struck, next_weight, dot1_1[1], next, i, delta));
                    }
                    {
                        const u32 i = group + 24u;
                        scales[i][p / 2u] = pack(
                            scale_of(struck, weight, dot1_1[2], p, i, delta),
                            scale_of(struck, next_weight, dot1_1[3], next, i, delta));
                    }
                }
                {
                    const u32 p = from + 2u * part + 16u, next = p + 1u;
                    const float weight = p < size ? shared_weights[begin + p] : 0.0f;
                    const float next_weight = next < size ? shared_weights[begin + next] : 0.0f;
                    {
                        const u32 i = group;
                        scales[i][p / 2u] = pack(
                            scale_of(struck, weight, dot0_2[0], p, i, delta),
                            scale_of(struck, next_weight, dot0_2[1], next, i, delta));
                    }
                    {
                        const u32 i = group + 8u;
                        scales[i][p / 2u] = pack(
                            scale_of(struck, weight, dot0_2[2], p, i, delta),
                            scale_of(struck, next_weight, dot0_2[3], next, i, delta));
                    }
                    {
                        const u32 i = group + 16u;
                        scales[i][p / 2u] = pack(
                            scale_of(struck, weight, dot1_2[0], p, i, delta),
                            scale_of(struck, next_weight, dot1_2[1], next, i, delta));
                    }
                    {
                        const u32 i = group + 24u;
                        scales[i][p / 2u] = pack(
                            scale_of(struck, weight, dot1_2[2], p, i, delta),
                            scale_of(struck, next_weight, dot1_2[3], next, i, delta));
                    }
                }
                {
                    const u32 p = from + 2u * part + 24u, next = p + 1u;
                    const float weight = p < size ? shared_weights[begin + p] : 0.0f;
                    const float next_weight = next < size ? shared_weights[begin + next] : 0.0f;
                    {
                        const u32 i = group;
                        scales[i][p / 2u] = pack(
                            scale_of(struck, weight, dot0_3[0], p, i, delta),
                            scale_of(struck, next_weight, dot0_3[1], next, i, delta));
                    }
                    {
                        const u32 i = group + 8u;
                        scales[i][p / 2u] = pack(
                            scale_of(struck, weight, dot0_3[2], p, i, delta),
                            scale_of(struck, next_weight, dot0_3[3], next, i, delta));
                    }
                    {
                        const u32 i = group + 16u;
                        scales[i][p / 2u] = pack(
                            scale_of(struck, weight, dot1_3[0], p, i, delta),
                            scale_of(struck, next_weight, dot1_3[1], next, i, delta));
                    }
                    {
                        const u32 i = group + 24u;
                        scales[i][p / 2u] = pack(
                            scale_of(struck, weight, dot1_3[2], p, i, delta),
                            scale_of(struck, next_weight, dot1_3[3], next, i, delta));
                    }
                }
            }
        }
        __syncthreads();

        for (u32 k = 32u * warp; k < 112u; k += 256u) { /* this warp's coordinates */
            const u32 own_k = k + 4u * group < 112u ? k + 4u * group : k;
            float acc0_0[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            float acc0_1[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            float acc0_2[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            float acc0_3[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            float acc1_0[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            float acc1_1[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            float acc1_2[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            float acc1_3[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            for (u32 p = 0; p < size; p += 16u) {
                const u32 place0 = p + 4u * part; /* past size its scales are 0 */
                const u32 slot0 = shared[begin + (place0 < size ? place0 : 0u)];
                const float4 x0 = *(const float4*)(pi + (u64)slot0 * 112u + own_k);
                const u32 place1 = p + 4u * part + 1u;
                const u32 slot1 = shared[begin + (place1 < size ? place1 : 0u)];
                const float4 x1 = *(const float4*)(pi + (u64)slot1 * 112u + own_k);
                const u32 place2 = p + 4u * part + 2u;
                const u32 slot2 = shared[begin + (place2 < size ? place2 : 0u)];
                const float4 x2 = *(const float4*)(pi + (u64)slot2 * 112u + own_k);
                const u32 place3 = p + 4u * part + 3u;
                const u32 slot3 = shared[begin + (place3 < size ? place3 : 0u)];
                const float4 x3 = *(const float4*)(pi + (u64)slot3 * 112u + own_k);
                const u32 b0 = pack(x0.x, x1.x), c0 = pack(x2.x, x3.x);
                const u32 b1 = pack(x0.y, x1.y), c1 = pack(x2.y, x3.y);
                const u32 b2 = pack(x0.z, x1.z), c2 = pack(x2.z, x3.z);
                const u32 b3 = pack(x0.w, x1.w), c3 = pack(x2.w, x3.w);
                const u32 at = p / 2u + 2u * part;
                const uint2 a0 = *(const uint2*)&scales[group][at];
                const uint2 a0_below = *(const uint2*)&scales[group + 8u][at];
                multiply(acc0_0, a0, a0_below, b0, c0);
                multiply(acc0_1, a0, a0_below, b1, c1);
                multiply(acc0_2, a0, a0_below, b2, c2);
                multiply(acc0_3, a0, a0_below, b3, c3);
                const uint2 a1 = *(const uint2*)&scales[group + 16u][at];
                const uint2 a1_below = *(const uint2*)&scales[group + 24u][at];
                multiply(acc1_0, a1, a1_below, b0, c0);
                multiply(acc1_1, a1, a1_below, b1, c1);
                multiply(acc1_2, a1, a1_below, b2, c2);
                multiply(acc1_3, a1, a1_below, b3, c3);
            }
            /* Column c of sums j is coordinate 4 c + j: those of a lane lie side by side. */
            {
                const u32 i = first + group;
                if (i < n_vertices) {
                    float* out = pi + (u64)spares[i] * 112u + k + 8u * part;
                    if (k + 8u * part < 112u)
                        add_to(out, begin > 0u, acc0_0[0], acc0_1[0], acc0_2[0], acc0_3[0]);
                    if (k + 8u * part + 4u < 112u)
                        add_to(out + 4, begin > 0u, acc0_0[1], acc0_1[1], acc0_2[1], acc0_3[1]);
                }
            }
            {
                const u32 i = first + group + 8u;
                if (i < n_vertices) {
                    float* out = pi + (u64)spares[i] * 112u + k + 8u * part;
                    if (k + 8u * part < 112u)
                        add_to(out, begin > 0u, acc0_0[2], acc0_1[2], acc0_2[2], acc0_3[2]);
                    if (k + 8u * part + 4u < 112u)
                        add_to(out + 4, begin > 0u, acc0_0[3], acc0_1[3], acc0_2[3], acc0_3[3]);
                }
            }
            {
                const u32 i = first + group + 16u;
                if (i < n_vertices) {
                    float* out = pi + (u64)spares[i] * 112u + k + 8u * part;
                    if (k + 8u * part < 112u)
                        add_to(out, begin > 0u, acc1_0[0], acc1_1[0], acc1_2[0], acc1_3[0]);
                    if (k + 8u * part + 4u < 112u)
                        add_to(out + 4, begin > 0u, acc1_0[1], acc1_1[1], acc1_2[1], acc1_3[1]);
                }
            }
            {
                const u32 i = first + group + 24u;
                if (i < n_vertices) {
                    float* out = pi + (u64)spares[i] * 112u + k + 8u * part;
                    if (k + 8u * part < 112u)
                        add_to(out, begin > 0u, acc1_0[2], acc1_1[2], acc1_2[2], acc1_3[2]);
                    if (k + 8u * part + 4u < 112u)
                        add_to(out + 4, begin > 0u, acc1_0[3], acc1_1[3], acc1_2[3], acc1_3[3]);
                }
            }
        }
    }
}
