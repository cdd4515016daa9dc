/*
 * block_scales: K=100 N=317080 dtype=float32 m=4096 n=512
 * configuration: block_size=256 depth=32 stages=3 tile_columns=128 tile_rows=128
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

#define A_CHUNKS 4u
#define B_CHUNKS 4u

/* Where chunk c of row r is. */
static __device__ __forceinline__ u32 at_a(u32 r, u32 c)
{
    return r * A_CHUNKS + (c ^ (r >> 1 & 3u));
}

static __device__ __forceinline__ u32 at_b(u32 r, u32 c)
{
    return at_a(r, c);
}

static __device__ __forceinline__ void copy_chunk(uint4* to, const void* from, bool there)
{
    const u32 address = (u32)__cvta_generic_to_shared(to), bytes = there ? 16u : 0u; /* the rest is filled with 0 */
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(address), "l"(from), "r"(bytes));
}

static __device__ __forceinline__ uint4 load_fragments(const uint4* from)
{
    uint4 f;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 { %0, %1, %2, %3 }, [%4];"
        : "=r"(f.x), "=r"(f.y), "=r"(f.z), "=r"(f.w) : "r"((u32)__cvta_generic_to_shared(from)));
    return f;
}

static __device__ __forceinline__ void multiply(float* sums, uint4 a, u32 b_first, u32 b_second)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{ %0, %1, %2, %3 }, { %4, %5, %6, %7 }, { %8, %9 }, { %0, %1, %2, %3 };"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b_first), "r"(b_second));
}

typedef struct {
    const u32 *a, *b; /* both factors, and how many rows of them there are */
    u32 a_rows, b_rows, first_row, first_column; /* where the tile begins */
} factors;

/* Ask for a slice of both tiles. */
static __device__ __forceinline__ void copy_slice(uint4* a_slice, uint4* b_slice, factors f, u32 from)
{
    #pragma unroll
    for (u32 e = threadIdx.x; e < 512u; e += 256u) {
        const u32 r = e / A_CHUNKS, c = e % A_CHUNKS;
        const bool there = f.first_row + r < f.a_rows;
        const u32* row = f.a + (u64)(there ? f.first_row + r : 0u) * 64u;
        copy_chunk(a_slice + at_a(r, c), row + from / 2u + 4u * c, there);
    }
    #pragma unroll
    for (u32 e = threadIdx.x; e < 512u; e += 256u) {
        const u32 r = e / B_CHUNKS, c = e % B_CHUNKS;
        const bool there = f.first_column + r < f.b_rows;
        const u32* row = f.b + (u64)(there ? f.first_column + r : 0u) * 64u;
        copy_chunk(b_slice + at_b(r, c), row + from / 2u + 4u * c, there);
    }
    asm volatile("cp.async.commit_group;");
}

static __device__ __forceinline__ void multiply_tile(float (&sums)[4][4][4], factors f, u32 depth)
{
    __shared__ __align__(128) uint4 a_slices[3][512];
    __shared__ __align__(128) uint4 b_slices[3][512];
    const u32 lane = threadIdx.x % 32u, warp = threadIdx.x / 32u;
    const u32 row = warp / 4u * 64u + lane % 16u;
    const u32 column = warp % 4u * 32u;
    const u32 slices = depth / 32u;
    #pragma unroll
    for (u32 s = 0; s < 2u; ++s) {
        if (s < slices) copy_slice(a_slices[s], b_slices[s], f, s * 32u);
        else asm volatile("cp.async.commit_group;");
    }
    u32 place = 0u, next_place = 2u;
    for (u32 s = 0; s < slices; ++s) {
        asm volatile("cp.async.wait_group 1;");
        __syncthreads(); /* this slice is there for all, and none reads the one that is overwritten next */
        if (s + 2u < slices)
            copy_slice(a_slices[next_place], b_slices[next_place], f, (s + 2u) * 32u);
        else asm volatile("cp.async.commit_group;");
        const uint4* a_slice = a_slices[place];
        const uint4* b_slice = b_slices[place];
        #pragma unroll
        for (u32 k = 0; k < 4u; k += 2u) {
            uint4 left[4], right[2];
            #pragma unroll
            for (u32 m = 0; m < 4u; ++m) left[m] = load_fragments(a_slice + at_a(row + 16u * m, k + lane / 16u));
            #pragma unroll
            for (u32 n = 0; n < 2u; ++n)
                right[n] = load_fragments(b_slice + at_b(column + 16u * n + lane % 8u + lane / 16u * 8u, k + lane / 8u % 2u));
            #pragma unroll
            for (u32 m = 0; m < 4u; ++m) {
                #pragma unroll
                for (u32 n = 0; n < 2u; ++n) {
                    multiply(sums[m][2u * n], left[m], right[n].x, right[n].y);
                    multiply(sums[m][2u * n + 1u], left[m], right[n].z, right[n].w);
                }
            }
        }
        place = place + 1u == 3u ? 0u : place + 1u;
        next_place = next_place + 1u == 3u ? 0u : next_place + 1u;
    }
}

static __device__ __forceinline__ u32 scales_of(const float* weights, const float* dots, float delta)
{
    const float first = -weights[0] / fmax((1.0f - delta) - dots[0], 1e-06f);
    const float second = -weights[1] / fmax((1.0f - delta) - dots[1], 1e-06f);
    return two_bfloat16(first, second);
}

extern "C" __global__ __launch_bounds__(256)
void block_scales(
    const u32* __restrict__ own_factors,         /* [m, row / 2] pi (beta - delta), two float16 a word */
    const u32* __restrict__ shared_factors,      /* [room, row / 2] partners' rows, two float16 a word */
    const real* __restrict__ shared_weights,     /* [room] weights; 0 from n_shared on */
    u32* __restrict__ scales,                    /* [m, room / 2] what a partner's row counts, two bfloat16 a word */
    const u32 n_vertices,                        /* vertices of the mini-batch */
    const real delta                             /* probability of a link across communities */
)
{
    const u32 first_row = blockIdx.x / 4u * 128u, first_column = blockIdx.x % 4u * 128u;
    if (first_row >= n_vertices) return;
    float dots[4][4][4] = {};
    const factors both = {own_factors, shared_factors, n_vertices, 512u, first_row, first_column};
    multiply_tile(dots, both, 128u);

    const u32 lane = threadIdx.x % 32u, warp = threadIdx.x / 32u, group = lane / 4u, part = lane % 4u;
    const u32 row = first_row + warp / 4u * 64u + group;
    const u32 column = first_column + warp % 4u * 32u + 2u * part;
    #pragma unroll
    for (u32 n = 0; n < 4u; ++n) {
        const u32 p = column + 8u * n;
        if (p >= 512u) continue;
        const float weights[2] = {p < 512u ? shared_weights[p] : 0.0f, p + 1u < 512u ? shared_weights[p + 1u] : 0.0f};
        #pragma unroll
        for (u32 m = 0; m < 4u; ++m) {
            #pragma unroll
            for (u32 half = 0; half < 2u; ++half) {
                const u32 i = row + 16u * m + 8u * half;
                if (i < n_vertices)
                    scales[(u64)i * 256u + p / 2u] = scales_of(weights, dots[m][n] + 2u * half, delta);
            }
        }
    }
}
