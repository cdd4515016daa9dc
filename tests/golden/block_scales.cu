/*
 * block_scales: K=100 N=317080 dtype=float32 m=4096 n=512
 * configuration: block_size=256 depth=32 instruction=mma stages=3 tile_columns=128 tile_rows=128
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

/* Where chunk c of row r of a slice is, in bytes. */
static __device__ __forceinline__ u32 at_a(u32 r, u32 c)
{
    return 16u * (r * 4u + (c ^ (r >> 1 & 3u)));
}

static __device__ __forceinline__ u32 at_b(u32 r, u32 c)
{
    return at_a(r, c);
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
    u32 a_to[2], b_to[2], a_bytes[2], b_bytes[2];
} copies;

static __device__ __forceinline__ copies copies_of(factors f)
{
    copies mine;
    const u32 a_row = threadIdx.x / 4u, a_chunk = threadIdx.x % 4u;
    const u32 b_row = threadIdx.x / 4u, b_chunk = threadIdx.x % 4u;
    mine.a = (const char*)(f.a + (u64)(f.first_row + a_row) * 64u + 4u * a_chunk);
    #pragma unroll
    for (u32 i = 0; i < 2u; ++i) {
        const u32 r = a_row + i * 64u;
        mine.a_to[i] = at_a(r, a_chunk);
        mine.a_bytes[i] = f.first_row + r < f.a_rows ? 16u : 0u;
    }
    mine.b = (const char*)(f.b + (u64)(f.first_column + b_row) * 64u + 4u * b_chunk);
    #pragma unroll
    for (u32 i = 0; i < 2u; ++i) {
        const u32 r = b_row + i * 64u;
        mine.b_to[i] = 8192u + at_b(r, b_chunk);
        mine.b_bytes[i] = f.first_column + r < f.b_rows ? 16u : 0u;
    }
    return mine;
}

/* Ask for the next slice of both tiles. */
static __device__ __forceinline__ void copy_slice(copies& mine, u32 stage)
{
    #pragma unroll
    for (u32 i = 0; i < 2u; ++i)
        copy_chunk(stage + mine.a_to[i], mine.a + i * 16384u, mine.a_bytes[i]);
    #pragma unroll
    for (u32 i = 0; i < 2u; ++i)
        copy_chunk(stage + mine.b_to[i], mine.b + i * 16384u, mine.b_bytes[i]);
    mine.a += 64u;
    mine.b += 64u;
}

static __device__ __forceinline__ uint4 load_fragments(u32 from)
{
    uint4 f;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 { %0, %1, %2, %3 }, [%4];"
        : "=r"(f.x), "=r"(f.y), "=r"(f.z), "=r"(f.w) : "r"(from));
    return f;
}

static __device__ __forceinline__ void multiply(float* sums, uint4 a, u32 b_first, u32 b_second)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{ %0, %1, %2, %3 }, { %4, %5, %6, %7 }, { %8, %9 }, { %0, %1, %2, %3 };"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b_first), "r"(b_second));
}

static __device__ __forceinline__ void multiply_tile(float (&sums)[4][4][4], factors f, u32 depth)
{
    extern __shared__ __align__(128) uint4 ring[]; /* as much as the launch gives */
    const u32 begin = (u32)__cvta_generic_to_shared(ring);
    const u32 lane = threadIdx.x % 32u, warp = threadIdx.x / 32u;
    const u32 row = warp / 4u * 64u + lane % 16u;
    const u32 column = warp % 4u * 32u;
    const u32 slices = depth / 32u;
    copies mine = copies_of(f);

    /* Where a lane's fragments are in a stage; rows 16 further down are a constant away, as chunks are exchanged alike. */
    u32 a_at[2], b_at[2];
    #pragma unroll
    for (u32 k = 0; k < 2u; ++k) a_at[k] = at_a(row, 2u * k + lane / 16u);
    #pragma unroll
    for (u32 k = 0; k < 2u; ++k)
        b_at[k] = 8192u + at_b(column + lane % 8u + lane / 16u * 8u, 2u * k + lane / 8u % 2u);

    #pragma unroll
    for (u32 s = 0; s < 2u; ++s) {
        if (s < slices) copy_slice(mine, begin + s * 16384u);
        asm volatile("cp.async.commit_group;");
    }
    u32 stage = begin, next_stage = begin + 32768u;
    for (u32 s = 0; s < slices; ++s) {
        asm volatile("cp.async.wait_group 1;");
        __syncthreads(); /* this slice is there for all, and none reads the one that is overwritten next */
        if (s + 2u < slices) copy_slice(mine, next_stage);
        asm volatile("cp.async.commit_group;");
        uint4 left[2][4], right[2][2]; /* the next step's fragments come while one is multiplied */
        #pragma unroll
        for (u32 k = 0; k <= 2u; ++k) {
            if (k < 2u) {
                #pragma unroll
                for (u32 m = 0; m < 4u; ++m) left[k % 2u][m] = load_fragments(stage + a_at[k] + m * 1024u);
                #pragma unroll
                for (u32 n = 0; n < 2u; ++n)
                    right[k % 2u][n] = load_fragments(stage + b_at[k] + n * 1024u);
            }
            if (k == 0u) continue;
            const u32 now = (k - 1u) % 2u;
            #pragma unroll
            for (u32 m = 0; m < 4u; ++m) {
                #pragma unroll
                for (u32 n = 0; n < 2u; ++n) {
                    multiply(sums[m][2u * n], left[now][m], right[now][n].x, right[now][n].y);
                    multiply(sums[m][2u * n + 1u], left[now][m], right[now][n].z, right[now][n].w);
                }
            }
        }
        stage = stage == begin + 32768u ? begin : stage + 16384u;
        next_stage = next_stage == begin + 32768u ? begin : next_stage + 16384u;
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
