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

extern "C" __global__ __launch_bounds__(128)
void star_factors(
    const real* __restrict__ pi,                 /* [N + m, LD] rows by slot */
    const u32* __restrict__ slots,               /* [N] slot of a vertex's row */
    const real* __restrict__ beta,               /* [LD] community strengths */
    const u32* __restrict__ vertices,            /* [.., m] distinct vertices of the mini-batch, from first_vertex on */
    const u32* __restrict__ drawn,               /* [R, room] the shared partners of R iterations */
    const real* __restrict__ shared_weights,     /* [R, room] their weights; 0 from n_shared on */
    const u32* __restrict__ n_shared,            /* [R] how many there are */
    const u32* __restrict__ labelled,            /* [R, stride, room / 32] a bit for each link with a scale of its own */
    u32* __restrict__ own_factors,               /* [m, row / 2] pi (beta - delta), two float16 a word */
    u32* __restrict__ shared_factors,            /* [room, row / 2] partners' rows, two float16 a word */
    u32* __restrict__ shared_rows,               /* [room, row / 2] partners' rows, two bfloat16 a word */
    u32* __restrict__ scales,                    /* [m, room / 2] what a partner's row counts, two bfloat16 a word */
    const u32 n_vertices,                        /* vertices of the mini-batch */
    const u32 first_vertex,                      /* place of the first of them */
    const u32 shared_round,                      /* place of the iteration among those whose partners are drawn */
    const real delta                             /* probability of a link across communities */
)
{
    const u32 lane = threadIdx.x % 32u, warp = blockIdx.x * 4u + threadIdx.x / 32u;
    drawn += (u64)shared_round * 256u;
    const u32 count = n_shared[shared_round];
    const u32 words = n_vertices * 8u, label_warps = (words + 31u) / 32u;
    const bool labelling = warp < label_warps;
    const u32 row = labelling ? 0u : warp - label_warps;
    const bool partner = row >= n_vertices;
    const u32 r = partner ? row - n_vertices : row;
    const bool empty = partner && r >= count;
    const u32 vertex = empty ? 0u : partner ? drawn[r] : vertices[first_vertex + r];
    const u32 slot = slots[vertex]; /* stays what it is, as rows end in place */
    /* Up to here nothing is read that the launch before writes. */
    if (labelling) {
        const u32 at = 32u * warp + lane;
        const u32 word = at < words ? labelled[(u64)first_vertex * 8u + at] : 0u;
        for (u32 holders = __ballot_sync(0xFFFFFFFFu, word != 0u); holders; holders &= holders - 1u) {
            const u32 holder = __ffs(holders) - 1, place = 32u * warp + holder, i = place / 8u;
            const float4* own = (const float4*)(pi + (u64)slots[vertices[first_vertex + i]] * 112u);
            for (u32 bits = __shfl_sync(0xFFFFFFFFu, word, holder); bits; bits &= bits - 1u) {
                const u32 p = 32u * (place % 8u) + __ffs(bits) - 1u;
                const float4* other = (const float4*)(pi + (u64)slots[drawn[p]] * 112u);
                float dot = 0.0f;
                #pragma unroll 8
                for (u32 b = 0; b < 1u; ++b) {
                    const u32 v = 32u * b + lane;
                    if (v >= 28u) break;
                    const float4 x = own[v], y = other[v], strength = ((const float4*)beta)[v];
                    dot = fmaf(x.x * (strength.x - delta), y.x, dot);
                    dot = fmaf(x.y * (strength.y - delta), y.y, dot);
                    dot = fmaf(x.z * (strength.z - delta), y.z, dot);
                    dot = fmaf(x.w * (strength.w - delta), y.w, dot);
                }
                for (int lanes = 16; lanes > 0; lanes /= 2) dot += __shfl_xor_sync(0xFFFFFFFFu, dot, lanes);
                const float given = shared_weights[(u64)shared_round * 256u + p] / fmaxf(delta + dot, 1e-12f);
                unsigned short* scale = (unsigned short*)(scales + (u64)i * 128u);
                if (!lane) scale[p] = (unsigned short)two_bfloat16(given, 0.0f);
            }
        }
        return;
    }
    if (partner && r >= 256u) return;
    const float4* source = (const float4*)(pi + (u64)slot * 112u);
    uint2* out = (uint2*)(partner ? shared_factors + (u64)r * 64u : own_factors + (u64)r * 64u);
    uint2* wide = (uint2*)(shared_rows + (u64)(partner ? r : 0u) * 64u);
    for (u32 base = 0; base < 32u; base += 256u) {
        float4 x[8]; /* all of them on their way before the first is used */
        #pragma unroll
        for (u32 b = 0; b < 8u; ++b) {
            const u32 v = base + 32u * b + lane;
            x[b] = empty || v >= 28u ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : source[v];
        }
        #pragma unroll
        for (u32 b = 0; b < 8u; ++b) {
            const u32 v = base + 32u * b + lane;
            if (v >= 32u) break;
            if (partner) {
                wide[v] = make_uint2(two_bfloat16(x[b].x, x[b].y), two_bfloat16(x[b].z, x[b].w));
            } else if (v < 28u) {
                const float4 strength = ((const float4*)beta)[v];
                x[b].x *= strength.x - delta;
                x[b].y *= strength.y - delta;
                x[b].z *= strength.z - delta;
                x[b].w *= strength.w - delta;
            }
            out[v] = make_uint2(two_float16(x[b].x, x[b].y), two_float16(x[b].z, x[b].w));
        }
    }
}
