/*
 * block_sums: K=1024 N=317080 dtype=float32 m=4096 n=512
 * configuration: block_size=128 depth=64 stages=2 tile_columns=64 tile_rows=128
 */

typedef unsigned int u32;
typedef unsigned long long u64;
typedef float real;
typedef float realv;

#define A_CHUNKS 8u
#define B_CHUNKS 8u

/* Where chunk c of row r is. */
static __device__ __forceinline__ u32 at_a(u32 r, u32 c)
{
    return r * A_CHUNKS + (c ^ (r & 7u));
}

static __device__ __forceinline__ u32 at_b(u32 r, u32 c)
{
    return r * B_CHUNKS + (c ^ (r & 7u));
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

static __device__ __forceinline__ uint4 load_turned(const uint4* from)
{
    uint4 f;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 { %0, %1, %2, %3 }, [%4];"
        : "=r"(f.x), "=r"(f.y), "=r"(f.z), "=r"(f.w) : "r"((u32)__cvta_generic_to_shared(from)));
    return f;
}

static __device__ __forceinline__ void multiply(float* sums, uint4 a, u32 b_first, u32 b_second)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
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
    for (u32 e = threadIdx.x; e < 1024u; e += 128u) {
        const u32 r = e / A_CHUNKS, c = e % A_CHUNKS;
        const bool there = f.first_row + r < f.a_rows;
        const u32* row = f.a + (u64)(there ? f.first_row + r : 0u) * 256u;
        copy_chunk(a_slice + at_a(r, c), row + from / 2u + 4u * c, there);
    }
    #pragma unroll
    for (u32 e = threadIdx.x; e < 512u; e += 128u) {
        const u32 r = e / B_CHUNKS, c = e % B_CHUNKS;
        const bool there = f.first_column + 8u * c < 1024u;
        const u32* row = f.b + (u64)(from + r) * 512u;
        copy_chunk(b_slice + at_b(r, c), row + (there ? f.first_column / 2u + 4u * c : 0u), there);
    }
    asm volatile("cp.async.commit_group;");
}

static __device__ __forceinline__ void multiply_tile(float (&sums)[4][4][4], factors f, u32 depth)
{
    __shared__ __align__(128) uint4 a_slices[2][1024];
    __shared__ __align__(128) uint4 b_slices[2][512];
    const u32 lane = threadIdx.x % 32u, warp = threadIdx.x / 32u;
    const u32 row = warp / 2u * 64u + lane % 16u;
    const u32 column = warp % 2u * 32u;
    const u32 slices = depth / 64u;
    #pragma unroll
    for (u32 s = 0; s < 1u; ++s) {
        if (s < slices) copy_slice(a_slices[s], b_slices[s], f, s * 64u);
        else asm volatile("cp.async.commit_group;");
    }
    u32 place = 0u, next_place = 1u;
    for (u32 s = 0; s < slices; ++s) {
        asm volatile("cp.async.wait_group 0;");
        __syncthreads(); /* this slice is there for all, and none reads the one that is overwritten next */
        if (s + 1u < slices)
            copy_slice(a_slices[next_place], b_slices[next_place], f, (s + 1u) * 64u);
        else asm volatile("cp.async.commit_group;");
        const uint4* a_slice = a_slices[place];
        const uint4* b_slice = b_slices[place];
        #pragma unroll
        for (u32 k = 0; k < 8u; k += 2u) {
            uint4 left[4], right[2];
            #pragma unroll
            for (u32 m = 0; m < 4u; ++m) left[m] = load_fragments(a_slice + at_a(row + 16u * m, k + lane / 16u));
            #pragma unroll
            for (u32 n = 0; n < 2u; ++n)
                right[n] = load_turned(b_slice + at_b(8u * k + lane % 16u, column / 8u + 2u * n + lane / 16u));
            #pragma unroll
            for (u32 m = 0; m < 4u; ++m) {
                #pragma unroll
                for (u32 n = 0; n < 2u; ++n) {
                    multiply(sums[m][2u * n], left[m], right[n].x, right[n].y);
                    multiply(sums[m][2u * n + 1u], left[m], right[n].z, right[n].w);
                }
            }
        }
        place = place + 1u == 2u ? 0u : place + 1u;
        next_place = next_place + 1u == 2u ? 0u : next_place + 1u;
    }
}

extern "C" __global__ __launch_bounds__(128)
void block_sums(
    real* __restrict__ pi,                       /* [N + m, LD] rows by slot */
    const u32* __restrict__ spares,              /* [m] free slots; they receive the sums */
    const u32* __restrict__ scales,              /* [m, room / 2] what a partner's row counts, two bfloat16 a word */
    const u32* __restrict__ shared_rows,         /* [room, row / 2] partners' rows, two bfloat16 a word */
    const u32* __restrict__ n_shared,            /* [1] how many shared partners there are */
    const u32 n_vertices                         /* vertices of the mini-batch */
)
{
    const u32 first_row = blockIdx.x / 16u * 128u, first_column = blockIdx.x % 16u * 64u;
    if (first_row >= n_vertices) return;
    const u32 count = n_shared[0], depth = (count + 63u) / 64u * 64u; /* past count rows are 0 */
    float acc[4][4][4] = {};
    const factors both = {scales, shared_rows, n_vertices, 512u, first_row, first_column};
    multiply_tile(acc, both, depth);

    const u32 lane = threadIdx.x % 32u, warp = threadIdx.x / 32u, group = lane / 4u, part = lane % 4u;
    const u32 row = first_row + warp / 2u * 64u + group;
    const u32 column = first_column + warp % 2u * 32u + 2u * part;
    #pragma unroll
    for (u32 m = 0; m < 4u; ++m) {
        #pragma unroll
        for (u32 half = 0; half < 2u; ++half) {
            const u32 i = row + 16u * m + 8u * half;
            if (i >= n_vertices) continue;
            float* out = pi + (u64)spares[i] * 1024u;
            #pragma unroll
            for (u32 n = 0; n < 4u; ++n)
                if (column + 8u * n < 1024u)
                    *(float2*)(out + column + 8u * n) = make_float2(acc[m][n][2u * half], acc[m][n][2u * half + 1u]);
        }
    }
}
