/*
 * block_sums: K=1024 N=317080 dtype=float32 m=4096 n=512
 * configuration: block_size=128 depth=64 instruction=mma stages=2 tile_columns=64 tile_rows=128
 */

#define BLOCK_ID blockIdx.x
#define LOCAL_ID threadIdx.x
#define K 1024u
#define LD 1024u
#define HROOM 512u
#define HD 1024u
#define TM 128u
#define TN 64u
#define DEPTH 64u
#define STAGES 2u
#define WARPS_M 2u
#define WARPS_N 2u
#define TILES 16u
#define BLOCK_SIZE 128u

typedef unsigned int u32;
typedef unsigned long long u64;
typedef float real;
typedef float realv;

#define A_WORDS (HROOM / 2u)
#define B_WORDS (HD / 2u)
#define B_IN_ROWS 1
#define WGMMA 0
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

static __device__ __forceinline__ uint4 load_fragments(u32 from)
{
    uint4 f;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 { %0, %1, %2, %3 }, [%4];"
        : "=r"(f.x), "=r"(f.y), "=r"(f.z), "=r"(f.w) : "r"(from));
    return f;
}

#if B_IN_ROWS

static __device__ __forceinline__ uint4 load_turned(u32 from)
{
    uint4 f;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 { %0, %1, %2, %3 }, [%4];"
        : "=r"(f.x), "=r"(f.y), "=r"(f.z), "=r"(f.w) : "r"(from));
    return f;
}

#endif

static __device__ __forceinline__ void multiply(float* sums, uint4 a, u32 b_first, u32 b_second)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{ %0, %1, %2, %3 }, { %4, %5, %6, %7 }, { %8, %9 }, { %0, %1, %2, %3 };"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b_first), "r"(b_second));
}

static __device__ __forceinline__ void multiply_tile(float (&sums)[FM][FN][4], factors f, u32 depth)
{
    extern __shared__ __align__(128) uint4 ring[]; /* as much as the launch gives */
    const u32 begin = (u32)__cvta_generic_to_shared(ring);
    const u32 lane = LOCAL_ID % 32u, warp = LOCAL_ID / 32u;
    const u32 row = warp / WARPS_N * WARP_ROWS + lane % 16u;
    const u32 column = warp % WARPS_N * WARP_COLUMNS;
    const u32 slices = depth / DEPTH;
    copies mine = copies_of(f);

    /* Where a lane's fragments are in a stage; rows 16 further down are a constant away, as chunks are exchanged alike. */
    u32 a_at[DEPTH / 16u], b_at[B_IN_ROWS ? FN / 2u : DEPTH / 16u];
    #pragma unroll
    for (u32 k = 0; k < (DEPTH / 16u); ++k) a_at[k] = at_a(row, 2u * k + lane / 16u);
    #if B_IN_ROWS
    #pragma unroll
    for (u32 n = 0; n < (FN / 2u); ++n)
        b_at[n] = A_BYTES + at_b(lane % 16u, column / 8u + 2u * n + lane / 16u);
    #else
    #pragma unroll
    for (u32 k = 0; k < (DEPTH / 16u); ++k)
        b_at[k] = A_BYTES + at_b(column + lane % 8u + lane / 16u * 8u, 2u * k + lane / 8u % 2u);
    #endif

    #pragma unroll
    for (u32 s = 0; s < (STAGES - 1u); ++s) {
        if (s < slices) copy_slice(mine, begin + s * STAGE_BYTES);
        asm volatile("cp.async.commit_group;");
    }
    u32 stage = begin, next_stage = begin + ((STAGES - 1u) * STAGE_BYTES);
    for (u32 s = 0; s < slices; ++s) {
        asm volatile("cp.async.wait_group 0;");
        __syncthreads(); /* this slice is there for all, and none reads the one that is overwritten next */
        if (s + (STAGES - 1u) < slices) copy_slice(mine, next_stage);
        asm volatile("cp.async.commit_group;");
        uint4 left[2][FM], right[2][(FN / 2u)]; /* the next step's fragments come while one is multiplied */
        #pragma unroll
        for (u32 k = 0; k <= (DEPTH / 16u); ++k) {
            if (k < (DEPTH / 16u)) {
                #pragma unroll
                for (u32 m = 0; m < FM; ++m) left[k % 2u][m] = load_fragments(stage + a_at[k] + m * (16u * A_CHUNKS * 16u));
                #pragma unroll
                for (u32 n = 0; n < (FN / 2u); ++n)
                    #if B_IN_ROWS
                    right[k % 2u][n] = load_turned(stage + b_at[n] + k * (16u * B_CHUNKS * 16u));
                #else
                right[k % 2u][n] = load_fragments(stage + b_at[k] + n * (16u * A_CHUNKS * 16u));
                #endif
            }
            if (k == 0u) continue;
            const u32 now = (k - 1u) % 2u;
            #pragma unroll
            for (u32 m = 0; m < FM; ++m) {
                #pragma unroll
                for (u32 n = 0; n < (FN / 2u); ++n) {
                    multiply(sums[m][2u * n], left[now][m], right[now][n].x, right[now][n].y);
                    multiply(sums[m][2u * n + 1u], left[now][m], right[now][n].z, right[now][n].w);
                }
            }
        }
        stage = stage == begin + ((STAGES - 1u) * STAGE_BYTES) ? begin : stage + STAGE_BYTES;
        next_stage = next_stage == begin + ((STAGES - 1u) * STAGE_BYTES) ? begin : next_stage + STAGE_BYTES;
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
