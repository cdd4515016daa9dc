/*
 * star_factors: K=100 N=317080 dtype=float32 m=4096 n=256 partners=shared-uniform
 * configuration: block_size=128
 */

typedef unsigned int u32;
typedef unsigned long long u64;
typedef float real;
typedef float realv;

/* Toward zero: a dot of factors rounded up could reach 1, and a scale without bound follow from it. */
static __device__ __forceinline__ u32 two_float16(float first, float second)
{
    u32 both;
    asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
}

static __device__ __forceinline__ u32 two_bfloat16(float first, float second)
{
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
}

/* The place of a vertex among the partners, or 256 where it is none. */
static __device__ __forceinline__ u32 place_of(const u32* places, const u32* drawn, u32 count, u32 vertex)
{
    const u32 p = places[vertex];
    return p < count && drawn[p] == vertex ? p : 256u;
}

/* A vertex of one warp: the partners that the products must not weigh. */
static __device__ __forceinline__ void mark_pairs(
    u32* marks, unsigned short* scale, const float* pi, const u32* slots, const float* beta, const u32* drawn,
    const u32* places, const float* weights, u32 count, u32 vertex, const u64* neighbour_offsets, const u32* neighbours,
    const u64* held_offsets, const u32* held_neighbours, float delta)
{
    const u32 lane = threadIdx.x % 32u;
    const u64 links_at = neighbour_offsets[vertex], held_at = held_offsets[vertex];
    const u32 n_links = (u32)(neighbour_offsets[vertex + 1u] - links_at);
    const u32 others = 1u + (u32)(held_offsets[vertex + 1u] - held_at);
    for (u32 word = lane; word < 8u; word += 32u) marks[word] = 0u;
    __syncwarp();
    for (u32 j = lane; j < others; j += 32u) {
        const u32 p = place_of(places, drawn, count, j ? held_neighbours[held_at + j - 1u] : vertex);
        if (p == 256u) continue;
        scale[p] = 0;
        atomicOr(marks + p / 32u, 1u << p % 32u);
    }
    for (u32 first = 0; first < n_links; first += 128u) {
        u32 at[4]; /* places of several links a lane, looked up side by side: a hub has hundreds */
        #pragma unroll
        for (u32 b = 0; b < 4u; ++b) {
            const u32 j = first + 32u * b + lane;
            at[b] = j < n_links ? place_of(places, drawn, count, neighbours[links_at + j]) : 256u;
        }
        #pragma unroll
        for (u32 b = 0; b < 4u; ++b) {
            const u32 p = at[b];
            /* The warp does the dots of the links that it has found, one after another: there are few. */
            for (u32 found = __ballot_sync(0xFFFFFFFFu, p < 256u); found; found &= found - 1u) {
                const u32 here = __shfl_sync(0xFFFFFFFFu, p, __ffs(found) - 1);
                const float4* own = (const float4*)(pi + (u64)slots[vertex] * 112u);
                const float4* other = (const float4*)(pi + (u64)slots[drawn[here]] * 112u);
                float dot = 0.0f;
                for (u32 v = lane; v < 28u; v += 32u) {
                    const float4 x = own[v], y = other[v], strength = ((const float4*)beta)[v];
                    dot = fmaf(x.x * (strength.x - delta), y.x, dot);
                    dot = fmaf(x.y * (strength.y - delta), y.y, dot);
                    dot = fmaf(x.z * (strength.z - delta), y.z, dot);
                    dot = fmaf(x.w * (strength.w - delta), y.w, dot);
                }
                for (int lanes = 16; lanes > 0; lanes /= 2) dot += __shfl_xor_sync(0xFFFFFFFFu, dot, lanes);
                if (lane) continue;
                const float labelled = weights[here] / fmaxf(delta + dot, 1e-12f);
                scale[here] = (unsigned short)two_bfloat16(labelled, 0.0f);
                atomicOr(marks + here / 32u, 1u << here % 32u);
            }
        }
    }
}

extern "C" __global__ __launch_bounds__(128)
void star_factors(
    const real* __restrict__ pi,                 /* [N + m, LD] rows by slot */
    const u32* __restrict__ slots,               /* [N] slot of a vertex's row */
    const real* __restrict__ beta,               /* [LD] community strengths */
    const u32* __restrict__ vertices,            /* [.., m] distinct vertices of the mini-batch, from first_vertex on */
    const u32* __restrict__ drawn,               /* [R, room] the shared partners of R iterations */
    const u32* __restrict__ places,              /* [R, N] where a vertex is among them, if it is */
    const real* __restrict__ shared_weights,     /* [R, room] their weights; 0 from n_shared on */
    const u32* __restrict__ n_shared,            /* [R] how many there are */
    const u64* __restrict__ neighbour_offsets,   /* [N + 1] begin of each vertex's training links */
    const u32* __restrict__ neighbours,          /* [2 E] their other ends, ascending */
    const u64* __restrict__ held_offsets,        /* [N + 1] begin of each vertex's held-out pairs */
    const u32* __restrict__ held_neighbours,     /* [2 H] their other ends, ascending */
    u32* __restrict__ own_factors,               /* [m, row / 2] pi (beta - delta), two float16 a word */
    u32* __restrict__ shared_factors,            /* [room, row / 2] partners' rows, two float16 a word */
    u32* __restrict__ shared_rows,               /* [room, row / 2] partners' rows, two bfloat16 a word */
    u32* __restrict__ scales,                    /* [m, room / 2] what a partner's row counts, two bfloat16 a word */
    u32* __restrict__ marked,                    /* [m, room / 32] a bit for each pair whose scale is there already */
    const u32 n_vertices,                        /* vertices of the mini-batch */
    const u32 first_vertex,                      /* place of the first of them */
    const u32 shared_round,                      /* place of the iteration among those whose partners are drawn */
    const u32 n_total,                           /* N */
    const real delta                             /* probability of a link across communities */
)
{
    const u32 lane = threadIdx.x, markers = (n_vertices + 3u) / 4u;
    drawn += (u64)shared_round * 256u;
    shared_weights += (u64)shared_round * 256u;
    places += (u64)shared_round * n_total;
    const u32 count = n_shared[shared_round];
    if (blockIdx.x < markers) {
        const u32 i = blockIdx.x * 4u + lane / 32u;
        if (i < n_vertices)
            mark_pairs(marked + (u64)i * 8u, (unsigned short*)(scales + (u64)i * 128u), pi, slots,
                beta, drawn, places, shared_weights, count, vertices[first_vertex + i], neighbour_offsets, neighbours,
                held_offsets, held_neighbours, delta);
        return;
    }

    const u32 row = blockIdx.x - markers;
    const bool partner = row < 256u;
    const u32 i = row - 256u;
    if (!partner && i >= n_vertices) return;
    const bool empty = partner && row >= count;
    const u32 vertex = empty ? 0u : partner ? drawn[row] : vertices[first_vertex + i];
    const float4* source = (const float4*)(pi + (u64)slots[vertex] * 112u);
    uint2* out = (uint2*)(partner ? shared_factors + (u64)row * 64u : own_factors + (u64)i * 64u);
    uint2* wide = (uint2*)(shared_rows + (u64)(partner ? row : 0u) * 64u);
    for (u32 v = lane; v < 32u; v += 128u) {
        float4 x = empty || v >= 28u ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : source[v];
        if (partner) {
            wide[v] = make_uint2(two_bfloat16(x.x, x.y), two_bfloat16(x.z, x.w));
        } else if (v < 28u) {
            const float4 strength = ((const float4*)beta)[v];
            x.x *= strength.x - delta;
            x.y *= strength.y - delta;
            x.z *= strength.z - delta;
            x.w *= strength.w - delta;
        }
        out[v] = make_uint2(two_float16(x.x, x.y), two_float16(x.z, x.w));
    }
}
