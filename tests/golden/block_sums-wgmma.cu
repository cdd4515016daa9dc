/*
 * block_sums: K=1024 N=317080 dtype=float32 m=4096 n=512
 * configuration: block_size=128 depth=64 instruction=wgmma stages=3 tile_columns=64 tile_rows=64
 */

#define BLOCK_ID blockIdx.x
#define LOCAL_ID threadIdx.x
#define K 1024u
#define LD 1024u
#define HROOM 512u
#define HD 1024u
#define TM 64u
#define TN 64u
#define DEPTH 64u
#define STAGES 3u
#define WARPS_M 4u
#define WARPS_N 1u
#define TILES 16u
#define BLOCK_SIZE 128u

typedef unsigned int u32;
typedef unsigned long long u64;
typedef float real;
typedef float realv;

#define A_WORDS (HROOM / 2u)
#define B_WORDS (HD / 2u)
#define B_IN_ROWS 1
#define WGMMA 1
#define WARP_ROWS (TM / WARPS_M)
#define WARP_COLUMNS (TN / WARPS_N)
#define FM (WARP_ROWS / 16u) /* fragments of a warp */
#define FN (WARP_COLUMNS / 8u)
#define A_CHUNKS (DEPTH / 8u) /* of a row of a slice */
#if B_IN_ROWS
#define B_CHUNKS (TN / 8u)
#define B_STEP (DEPTH * B_WORDS * 4u) /* bytes from a slice to the next */
#else
#define B_CHUNKS A_CHUNKS
#define B_STEP (2u * DEPTH)
#endif
#define A_COPIES (TM * A_CHUNKS / BLOCK_SIZE) /* chunks that a work-item copies */
#define B_COPIES (TN * A_CHUNKS / BLOCK_SIZE)
#define A_BYTES (2u * TM * DEPTH)
#define STAGE_BYTES (A_BYTES + 2u * TN * DEPTH)
/* Where chunk c of row r of a slice is, in bytes. */
static __device__ __forceinline__ u32 at_a(u32 r, u32 c)
{
    #if DEPTH == 32
    return 16u * (r * A_CHUNKS + (c ^ (r >> 1 & 3u)));
    #else
    return 16u * (r * A_CHUNKS + (c ^ (r & 7u)));
    #endif
}

static __device__ __forceinline__ u32 at_b(u32 r, u32 c)
{
    #if !B_IN_ROWS
    return at_a(r, c);
    #elif WGMMA
    return 16u * ((c / 8u * DEPTH + r) * 8u + (c % 8u ^ (r & 7u)));
    #else
    return 16u * (r * B_CHUNKS + (c ^ (r & 7u)));
    #endif
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
    u32 a_to[A_COPIES], b_to[B_COPIES], a_bytes[A_COPIES], b_bytes[B_COPIES];
} copies;

static __device__ __forceinline__ copies copies_of(factors f)
{
    copies mine;
    const u32 a_row = LOCAL_ID / A_CHUNKS, a_chunk = LOCAL_ID % A_CHUNKS;
    const u32 b_row = LOCAL_ID / B_CHUNKS, b_chunk = LOCAL_ID % B_CHUNKS;
    mine.a = (const char*)(f.a + (u64)(f.first_row + a_row) * A_WORDS + 4u * a_chunk);
    #pragma unroll
    for (u32 i = 0; i < A_COPIES; ++i) {
        const u32 r = a_row + i * (BLOCK_SIZE / A_CHUNKS);
        mine.a_to[i] = at_a(r, a_chunk);
        mine.a_bytes[i] = f.first_row + r < f.a_rows ? 16u : 0u;
    }
    #if B_IN_ROWS
    mine.b = (const char*)(f.b + (u64)b_row * B_WORDS + f.first_column / 2u + 4u * b_chunk);
    #else
    mine.b = (const char*)(f.b + (u64)(f.first_column + b_row) * B_WORDS + 4u * b_chunk);
    #endif
    #pragma unroll
    for (u32 i = 0; i < B_COPIES; ++i) {
        const u32 r = b_row + i * (BLOCK_SIZE / B_CHUNKS);
        mine.b_to[i] = A_BYTES + at_b(r, b_chunk);
        #if B_IN_ROWS
        mine.b_bytes[i] = f.first_column + 8u * b_chunk < (2u * B_WORDS) ? 16u : 0u;
        #else
        mine.b_bytes[i] = f.first_column + r < f.b_rows ? 16u : 0u;
        #endif
    }
    return mine;
}

/* Ask for the next slice of A's tile, and of B's. */
static __device__ __forceinline__ void copy_a(copies& mine, u32 stage)
{
    #pragma unroll
    for (u32 i = 0; i < A_COPIES; ++i)
        copy_chunk(stage + mine.a_to[i], mine.a + i * (BLOCK_SIZE / A_CHUNKS * A_WORDS * 4u), mine.a_bytes[i]);
    mine.a += (2u * DEPTH);
}

static __device__ __forceinline__ void copy_b(copies& mine, u32 stage)
{
    #pragma unroll
    for (u32 i = 0; i < B_COPIES; ++i)
        copy_chunk(stage + mine.b_to[i], mine.b + i * (BLOCK_SIZE / B_CHUNKS * B_WORDS * 4u), mine.b_bytes[i]);
    mine.b += B_STEP;
}

static __device__ __forceinline__ void copy_slice(copies& mine, u32 stage)
{
    copy_a(mine, stage);
    copy_b(mine, stage);
}

/* Where a factor's slice is, for wgmma: rows, or columns, of 128 bytes in groups of eight, exchanged by the 128-byte
   swizzle; `leading` bytes from 64 columns to the next 64, where the factor lies in rows. */
static __device__ __forceinline__ u64 descriptor(u32 at, u32 leading)
{
    return (u64)((at & 0x3ffffu) >> 4) | (u64)(leading >> 4) << 16 | (u64)(1024u >> 4) << 32 | (u64)1 << 62;
}

static __device__ __forceinline__ void multiply(float (&sums)[FN][4], u64 a, u64 b)
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

static __device__ __forceinline__ void multiply_tile(float (&sums)[FM][FN][4], factors f, u32 depth)
{
    extern __shared__ __align__(1024) uint4 ring[]; /* as much as the launch gives */
    const u32 begin = (u32)__cvta_generic_to_shared(ring);
    const u32 slices = depth / DEPTH, a_at = LOCAL_ID / 128u * (64u * 2u * DEPTH);
    copies mine = copies_of(f);

    #pragma unroll
    for (u32 s = 0; s < (STAGES - 2u); ++s) {
        if (s < slices) copy_slice(mine, begin + s * STAGE_BYTES);
        asm volatile("cp.async.commit_group;");
    }
    u32 stage = begin, next_stage = begin + ((STAGES - 2u) * STAGE_BYTES);
    for (u32 s = 0; s < slices; ++s) {
        asm volatile("cp.async.wait_group 0;");
        asm volatile("fence.proxy.async.shared::cta;"); /* wgmma sees what was copied */
        __syncthreads(); /* this slice is there for all, and none multiplies the one of two slices ago */
        const u64 a = descriptor(stage + a_at, 16u), b = descriptor(stage + A_BYTES, B_IN_ROWS ? DEPTH * 128u : 16u);
        asm volatile("wgmma.fence.sync.aligned;");
        #pragma unroll
        for (u32 k = 0; k < (DEPTH / 16u); ++k) multiply(sums[0], a + k * 2u, b + k * (B_IN_ROWS ? 128u : 2u));
        asm volatile("wgmma.commit_group.sync.aligned;");
        if (s + (STAGES - 2u) < slices) copy_slice(mine, next_stage);
        asm volatile("cp.async.commit_group;");
        asm volatile("wgmma.wait_group.sync.aligned 1;");
        stage = stage == begin + ((STAGES - 1u) * STAGE_BYTES) ? begin : stage + STAGE_BYTES;
        next_stage = next_stage == begin + ((STAGES - 1u) * STAGE_BYTES) ? begin : next_stage + STAGE_BYTES;
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
    const u32 first_row = BLOCK_ID / TILES * TM, first_column = BLOCK_ID % TILES * TN;
    if (first_row >= n_vertices) return;
    const u32 count = n_shared[0], depth = (count + (DEPTH - 1u)) / DEPTH * DEPTH; /* past count rows are 0 */
    float acc[FM][FN][4] = {};
    const factors both = {scales, shared_rows, n_vertices, HROOM, first_row, first_column};
    multiply_tile(acc, both, depth);

    const u32 lane = LOCAL_ID % 32u, warp = LOCAL_ID / 32u, group = lane / 4u, part = lane % 4u;
    const u32 row = first_row + warp / WARPS_N * WARP_ROWS + group;
    const u32 column = first_column + warp % WARPS_N * WARP_COLUMNS + 2u * part;
    #pragma unroll
    for (u32 m = 0; m < FM; ++m) {
        #pragma unroll
        for (u32 half = 0; half < 2u; ++half) {
            const u32 i = row + 16u * m + 8u * half;
            if (i >= n_vertices) continue;
            float* out = pi + (u64)spares[i] * LD;
            #pragma unroll
            for (u32 n = 0; n < FN; ++n)
                if (column + 8u * n < LD)
                    *(float2*)(out + column + 8u * n) = make_float2(acc[m][n][2u * half], acc[m][n][2u * half + 1u]);
        }
    }
}
