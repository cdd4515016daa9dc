/*
 * shared_partners: N=317080 dtype=float32 n=512
 * configuration: block_size=512
 */

#define FUNCTION static __device__ __forceinline__
#define LOCAL __shared__
#define LOCAL_ID threadIdx.x
#define MUL_HI32 __umulhi
#define MUL_HI64 __umul64hi
#define PASTE(x, y) x##y
#define REAL(x) PASTE(x, f)
#define ROOM 512u
#define BLOCK_SIZE 512u
#define PURPOSE_SHARED_PARTNER 4u

typedef unsigned int u32;
typedef unsigned long long u64;
typedef float real;
typedef float realv;

typedef struct { u32 w[4]; } words4;

FUNCTION words4 philox(u64 seed, u32 c0, u32 c1, u32 c2, u32 c3)
{
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
    for (int round = 0; round < 7; ++round) {
        const u32 h0 = MUL_HI32(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
        const u32 h1 = MUL_HI32(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
        c0 = h1 ^ c1 ^ k0;
        c1 = l1;
        c2 = h0 ^ c3 ^ k1;
        c3 = l0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    words4 r;
    r.w[0] = c0; r.w[1] = c1; r.w[2] = c2; r.w[3] = c3;
    return r;
}

/* The upper 23 bits of a word as a number in (0, 1): exact in float and in double, so both draw alike. */
FUNCTION real unit(u32 word)
{
    return ((real)(word >> 9) + REAL(0.5)) * REAL(1.1920928955078125e-07);
}

typedef words4 wordsx;

/* The two uniforms of each of the coordinates k, k + 1, ... of one vector; k is a multiple of its width. */
FUNCTION void uniforms(
    u64 seed, u32 k, u32 vertex, u32 iteration, u32 purpose, realv* u1, realv* u2)
{
    const words4 r = philox(seed, k >> 1, vertex, iteration, purpose << 24);
    *u1 = unit((k & 1u) ? r.w[2] : r.w[0]);
    *u2 = unit((k & 1u) ? r.w[3] : r.w[1]);
}

/* Draw number j of a vertex, in [0, bound): two 64-bit draws a call; the bias is bound / 2^64. */
FUNCTION u32 draw_below(u64 seed, u32 j, u32 vertex, u32 iteration, u32 purpose, u64 bound)
{
    const words4 r = philox(seed, j >> 1, vertex, iteration, purpose << 24);
    const u64 word = (j & 1u) ? ((u64)r.w[2] << 32) | r.w[3] : ((u64)r.w[0] << 32) | r.w[1];
    return (u32)MUL_HI64(word, bound);
}

#define UNPLACED 0x80000000u /* with the number of a draw: no place, as there are fewer draws */

extern "C" __global__ __launch_bounds__(512)
void shared_partners(
    const u32* __restrict__ slots,               /* [N] slot of a vertex's row */
    u32* __restrict__ draws,                     /* [n] every draw */
    u32* __restrict__ times,                     /* [n] how often each distinct vertex was drawn */
    u32* __restrict__ drawn,                     /* [n] the distinct vertices, in the order of their first draws */
    u32* __restrict__ places,                    /* [N] where a vertex is among them; anything for others */
    u32* __restrict__ shared,                    /* [room] slots of their rows */
    real* __restrict__ shared_weights,           /* [room] weights; 0 from n_shared on */
    u32* __restrict__ n_shared,                  /* [1] how many distinct vertices there are */
    const u32 n_partners,                        /* n, draws of the block */
    const u32 n_total,                           /* N */
    const u64 seed,
    const u32 iteration
)
{
    LOCAL u32 firsts[BLOCK_SIZE];
    const u32 lane = LOCAL_ID;
    for (u32 j = lane; j < n_partners; j += BLOCK_SIZE) {
        const u32 vertex = draw_below(seed, j, 0xFFFFFFFFu, iteration, PURPOSE_SHARED_PARTNER, n_total);
        draws[j] = vertex;
        places[vertex] = 0xFFFFFFFFu;
        times[j] = 0u;
    }
    __syncthreads();
    for (u32 j = lane; j < n_partners; j += BLOCK_SIZE) atomicMin(places + draws[j], UNPLACED | j);
    __syncthreads();

    /* Each work-item counts the first draws in its stretch, and then knows where its own begin. */
    const u32 stretch = (n_partners + (BLOCK_SIZE - 1u)) / BLOCK_SIZE;
    const u32 begin = lane * stretch < n_partners ? lane * stretch : n_partners;
    const u32 end = begin + stretch < n_partners ? begin + stretch : n_partners;
    u32 found = 0u;
    for (u32 j = begin; j < end; ++j) found += places[draws[j]] == (UNPLACED | j);
    firsts[lane] = found;
    __syncthreads();
    u32 place = 0u, count = 0u;
    for (u32 i = 0; i < BLOCK_SIZE; ++i) {
        place += i < lane ? firsts[i] : 0u;
        count += firsts[i];
    }
    for (u32 j = begin; j < end; ++j) {
        const u32 vertex = draws[j];
        if (places[vertex] != (UNPLACED | j)) continue;
        drawn[place] = vertex;
        places[vertex] = place++;
    }
    __syncthreads();
    for (u32 j = lane; j < n_partners; j += BLOCK_SIZE) atomicAdd(times + places[draws[j]], 1u);
    __syncthreads();

    const real weight = (real)((double)n_total / n_partners);
    for (u32 p = lane; p < ROOM; p += BLOCK_SIZE) {
        shared[p] = slots[drawn[p < count ? p : 0u]];
        shared_weights[p] = p < count ? times[p] * weight : REAL(0.0);
    }
    if (lane == 0u) n_shared[0] = count;
}
