/*
 * block_sums: K=1024 N=317080 dtype=float32 m=4096 n=512
 * configuration: block_size=128 depth=64 instruction=wgmma stages=3 tile_columns=64 tile_rows=64
 */

typedef unsigned int u32;
typedef unsigned long long u64;
typedef float real;
typedef float realv;

/* Where chunk c of row r of a slice is, in bytes. */
static __device__ __forceinline__ u32 at_a(u32 r, u32 c)
{
    return 16u * (r * 8u + (c ^ (r & 7u)));
}

static __device__ __forceinline__ u32 at_b(u32 r, u32 c)
{
    return 16u * ((c / 8u * 64u + r) * 8u + (c % 8u ^ (r & 7u)));
}

/* Addresses to are of shared memory; what is not there, bytes = 0, is filled with 0. */
static __device__ __forceinline__ void copy_chunk(u32 to, const char* from, u32 bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(bytes));
}

typedef struct {
    const u32 *a, *b; /* both factors, and how many rows of them there are */
    u32 a_rows, b_rows, first_row, first_column; /* where the tile begins */
} factors;

/* What one work-item copies of every slice: chunks of 16 bytes, from where, to where in the ring's stage. */
typedef struct {
    const char *a, *b;
    u32 a_to[4], b_to[4], a_bytes[4], b_bytes[4];
} copies;

static __device__ __forceinline__ copies copies_of(factors f)
{
    copies mine;
    const u32 a_row = threadIdx.x / 8u, a_chunk = threadIdx.x % 8u;
    const u32 b_row = threadIdx.x / 8u, b_chunk = threadIdx.x % 8u;
    mine.a = (const char*)(f.a + (u64)(f.first_row + a_row) * 256u + 4u * a_chunk);
    #pragma unroll
    for (u32 i = 0; i < 4u; ++i) {
        const u32 r = a_row + i * 16u;
        mine.a_to[i] = at_a(r, a_chunk);
        mine.a_bytes[i] = f.first_row + r < f.a_rows ? 16u : 0u;
    }
    mine.b = (const char*)(f.b + (u64)b_row * 512u + f.first_column / 2u + 4u * b_chunk);
    #pragma unroll
    for (u32 i = 0; i < 4u; ++i) {
        const u32 r = b_row + i * 16u;
        mine.b_to[i] = 8192u + at_b(r, b_chunk);
        mine.b_bytes[i] = f.first_column + 8u * b_chunk < 1024u ? 16u : 0u;
    }
    return mine;
}

/* Ask for the next slice of both tiles. */
static __device__ __forceinline__ void copy_slice(copies& mine, u32 stage)
{
    #pragma unroll
    for (u32 i = 0; i < 4u; ++i)
        copy_chunk(stage + mine.a_to[i], mine.a + i * 16384u, mine.a_bytes[i]);
    #pragma unroll
    for (u32 i = 0; i < 4u; ++i)
        copy_chunk(stage + mine.b_to[i], mine.b + i * 32768u, mine.b_bytes[i]);
    mine.a += 128u;
    mine.b += 131072u;
}

/* Where a factor's slice is, for wgmma: rows, or columns, of 128 bytes in groups of eight, exchanged by the 128-byte
   swizzle; `leading` bytes from 64 columns to the next 64, where the factor lies in rows. */
static __device__ __forceinline__ u64 descriptor(u32 at, u32 leading)
{
    return (u64)((at & 0x3ffffu) >> 4) | (u64)(leading >> 4) << 16 | (u64)(1024u >> 4) << 32 | (u64)1 << 62;
}

static __device__ __forceinline__ void multiply(float (&sums)[8][4], u64 a, u64 b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        " %0, %1, %2, %3,"
        " %4, %5, %6, %7,"
        " %8, %9, %10, %11,"
        " %12, %13, %14, %15,"
        " %16, %17, %18, %19,"
        " %20, %21, %22, %23,"
        " %24, %25, %26, %27,"
        " %28, %29, %30, %31"
        "}, %32, %33, 1, 1, 1, 0, 1;"
        :
        "+f"(sums[0][0]), "+f"(sums[0][1]), "+f"(sums[0][2]), "+f"(sums[0][3]),
        "+f"(sums[1][0]), "+f"(sums[1][1]), "+f"(sums[1][2]), "+f"(sums[1][3]),
        "+f"(sums[2][0]), "+f"(sums[2][1]), "+f"(sums[2][2]), "+f"(sums[2][3]),
        "+f"(sums[3][0]), "+f"(sums[3][1]), "+f"(sums[3][2]), "+f"(sums[3][3]),
        "+f"(sums[4][0]), "+f"(sums[4][1]), "+f"(sums[4][2]), "+f"(sums[4][3]),
        "+f"(sums[5][0]), "+f"(sums[5][1]), "+f"(sums[5][2]), "+f"(sums[5][3]),
        "+f"(sums[6][0]), "+f"(sums[6][1]), "+f"(sums[6][2]), "+f"(sums[6][3]),
        "+f"(sums[7][0]), "+f"(sums[7][1]), "+f"(sums[7][2]), "+f"(sums[7][3])
        : "l"(a), "l"(b));
}

static __device__ __forceinline__ void multiply_tile(float (&sums)[1][8][4], factors f, u32 depth)
{
    extern __shared__ __align__(1024) uint4 ring[]; /* as much as the launch gives */
    const u32 begin = (u32)__cvta_generic_to_shared(ring);
    const u32 slices = depth / 64u, a_at = threadIdx.x / 128u * 8192u;
    copies mine = copies_of(f);

    #pragma unroll
    for (u32 s = 0; s < 1u; ++s) {
        if (s < slices) copy_slice(mine, begin + s * 16384u);
        asm volatile("cp.async.commit_group;");
    }
    u32 stage = begin, next_stage = begin + 16384u;
    for (u32 s = 0; s < slices; ++s) {
        asm volatile("cp.async.wait_group 0;");
        asm volatile("fence.proxy.async.shared::cta;"); /* wgmma sees what was copied */
        __syncthreads(); /* this slice is there for all, and none multiplies the one of two slices ago */
        const u64 a = descriptor(stage + a_at, 16u), b = descriptor(stage + 8192u, 8192u);
        asm volatile("wgmma.fence.sync.aligned;");
        #pragma unroll
        for (u32 k = 0; k < 4u; ++k) multiply(sums[0], a + k * 2u, b + k * 128u);
        asm volatile("wgmma.commit_group.sync.aligned;");
        if (s + 1u < slices) copy_slice(mine, next_stage);
        asm volatile("cp.async.commit_group;");
        asm volatile("wgmma.wait_group.sync.aligned 1;");
        stage = stage == begin + 32768u ? begin : stage + 16384u;
        next_stage = next_stage == begin + 32768u ? begin : next_stage + 16384u;
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;");
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
    const u32 first_row = blockIdx.x / 16u * 64u, first_column = blockIdx.x % 16u * 64u;
    if (first_row >= n_vertices) return;
    const u32 count = n_shared[0], depth = (count + 63u) / 64u * 64u; /* past count rows are 0 */
    float acc[1][8][4] = {};
    const factors both = {scales, shared_rows, n_vertices, 512u, first_row, first_column};
    multiply_tile(acc, both, depth);

    const u32 lane = threadIdx.x % 32u, warp = threadIdx.x / 32u, group = lane / 4u, part = lane % 4u;
    const u32 row = first_row + warp / 1u * 16u + group;
    const u32 column = first_column + warp % 1u * 64u + 2u * part;
    #pragma unroll
    for (u32 m = 0; m < 1u; ++m) {
        #pragma unroll
        for (u32 half = 0; half < 2u; ++half) {
            const u32 i = row + 16u * m + 8u * half;
            if (i >= n_vertices) continue;
            float* out = pi + (u64)spares[i] * 1024u;
            #pragma unroll
            for (u32 n = 0; n < 8u; ++n)
                if (column + 8u * n < 1024u)
                    *(float2*)(out + column + 8u * n) = make_float2(acc[m][n][2u * half], acc[m][n][2u * half + 1u]);
        }
    }
}
