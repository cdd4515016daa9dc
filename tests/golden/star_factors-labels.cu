/*
 * star_factors: K=100 N=317080 dtype=float32 m=4096 n=256 partners=shared-uniform
 * configuration: block_size=128
 */

#define BLOCK_ID blockIdx.x
#define LOCAL_ID threadIdx.x
#define PASTE(x, y) x##y
#define REAL(x) PASTE(x, f)
#define K 100u
#define LD 112u
#define Z_FLOOR 1e-12
#define ROOM 256u
#define HROOM 256u
#define HD 128u
#define BLOCK_SIZE 128u

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

#define ROW_BATCH 8u /* quadruples of a row that a lane asks for at once */
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
    const u32 lane = LOCAL_ID % 32u, warp = BLOCK_ID * (BLOCK_SIZE / 32u) + LOCAL_ID / 32u;
    drawn += (u64)shared_round * ROOM;
    const u32 count = n_shared[shared_round];
    const u32 words = n_vertices * (HROOM / 32u), label_warps = (words + 31u) / 32u;
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
        const u32 word = at < words ? labelled[(u64)first_vertex * (HROOM / 32u) + at] : 0u;
        for (u32 holders = __ballot_sync(0xFFFFFFFFu, word != 0u); holders; holders &= holders - 1u) {
            const u32 holder = __ffs(holders) - 1, place = 32u * warp + holder, i = place / (HROOM / 32u);
            const float4* own = (const float4*)(pi + (u64)slots[vertices[first_vertex + i]] * LD);
            for (u32 bits = __shfl_sync(0xFFFFFFFFu, word, holder); bits; bits &= bits - 1u) {
                const u32 p = 32u * (place % (HROOM / 32u)) + __ffs(bits) - 1u;
                const float4* other = (const float4*)(pi + (u64)slots[drawn[p]] * LD);
                float dot = 0.0f;
                #pragma unroll 8
                for (u32 b = 0; b < ((LD / 4u + 31u) / 32u); ++b) {
                    const u32 v = 32u * b + lane;
                    if (v >= (LD / 4u)) break;
                    const float4 x = own[v], y = other[v], strength = ((const float4*)beta)[v];
                    dot = fmaf(x.x * (strength.x - delta), y.x, dot);
                    dot = fmaf(x.y * (strength.y - delta), y.y, dot);
                    dot = fmaf(x.z * (strength.z - delta), y.z, dot);
                    dot = fmaf(x.w * (strength.w - delta), y.w, dot);
                }
                for (int lanes = 16; lanes > 0; lanes /= 2) dot += __shfl_xor_sync(0xFFFFFFFFu, dot, lanes);
                const float given = shared_weights[(u64)shared_round * ROOM + p] / fmaxf(delta + dot, REAL(Z_FLOOR));
                unsigned short* scale = (unsigned short*)(scales + (u64)i * (HROOM / 2u));
                if (!lane) scale[p] = (unsigned short)two_bfloat16(given, 0.0f);
            }
        }
        return;
    }
    if (partner && r >= HROOM) return;
    const float4* source = (const float4*)(pi + (u64)slot * LD);
    uint2* out = (uint2*)(partner ? shared_factors + (u64)r * (HD / 2u) : own_factors + (u64)r * (HD / 2u));
    uint2* wide = (uint2*)(shared_rows + (u64)(partner ? r : 0u) * (HD / 2u));
    for (u32 base = 0; base < (HD / 4u); base += (32u * ROW_BATCH)) {
        float4 x[ROW_BATCH]; /* all of them on their way before the first is used */
        #pragma unroll
        for (u32 b = 0; b < ROW_BATCH; ++b) {
            const u32 v = base + 32u * b + lane;
            x[b] = empty || v >= (LD / 4u) ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : source[v];
        }
        #pragma unroll
        for (u32 b = 0; b < ROW_BATCH; ++b) {
            const u32 v = base + 32u * b + lane;
            if (v >= (HD / 4u)) break;
            if (partner) {
                wide[v] = make_uint2(two_bfloat16(x[b].x, x[b].y), two_bfloat16(x[b].z, x[b].w));
            } else if (v < (LD / 4u)) {
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
