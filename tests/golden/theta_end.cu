/*
 * theta_end: K=1024 dtype=float32 m=4096 noise=on theta_step=reflected
 * configuration: block_size=256 share=32
 */

#define FUNCTION static __device__ __forceinline__
#define GLOBAL
#define LOCAL __shared__
#define BLOCK_ID blockIdx.x
#define LOCAL_ID threadIdx.x
#define BARRIER __syncthreads()
#define MUL_HI32 __umulhi
#define PASTE(x, y) x##y
#define REAL(x) PASTE(x, f)
#define K 1024u
#define LD 1024u
#define FLOOR_VALUE 1e-20
#define BETA_FLOOR 1e-06
#define BETA_CEILING 0.999999
#define SHARE 32u
#define COMMUNITIES 8u
#define BLOCK_SIZE 256u
#define PURPOSE_THETA_NORMAL 8u

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

FUNCTION double normal(u64 seed, u32 k, u32 column, u32 iteration)
{
    real u1, u2;
    uniforms(seed, k, column, iteration, PURPOSE_THETA_NORMAL, &u1, &u2);
    return sqrt(-2.0 * log((double)u1)) * cospi(2.0 * (double)u2);
}

extern "C" __global__ __launch_bounds__(256)
void theta_end(
    const real* __restrict__ counts,             /* [groups, 2, LD] counts of every group */
    real* __restrict__ theta,                    /* [2, LD] non-link, link */
    real* __restrict__ beta,                     /* [LD] community strengths */
    const u32 n_groups,                          /* number of groups */
    const double step,                           /* eps, or the gain */
    const double eta_0,                          /* prior pseudo-count of non-links */
    const double eta_1,                          /* prior pseudo-count of links */
    const u64 seed,
    const u32 iteration
)
{
    LOCAL double sums[2][BLOCK_SIZE];
    LOCAL double normals[2][COMMUNITIES];
    const u32 place = LOCAL_ID % COMMUNITIES, member = LOCAL_ID / COMMUNITIES;
    const u32 k = BLOCK_ID * COMMUNITIES + place;
    const u32 groups = (n_groups + (SHARE - 1u)) / SHARE, first = member * groups;
    const u32 last = k >= K ? 0u : first + groups < n_groups ? first + groups : n_groups;
    double non = 0.0, link = 0.0;
    #pragma unroll 8
    for (u32 group = first; group < last; ++group) {
        GLOBAL const real* count = counts + (u64)group * (2u * LD) + k;
        non += (double)count[0];
        link += (double)count[LD];
    }
    sums[0][LOCAL_ID] = non;
    sums[1][LOCAL_ID] = link;
    /* Two work-items draw side by side. */
    if (member < 2u) normals[member][place] = normal(seed, k, member, iteration);
    BARRIER;
    if (member > 0u) return;
    #pragma unroll 8
    for (u32 other = COMMUNITIES; other < BLOCK_SIZE; other += COMMUNITIES) {
        non += sums[0][other + place];
        link += sums[1][other + place];
    }

    if (k >= LD) return;
    const double theta_0 = theta[k], theta_1 = theta[LD + k];
    const double sum = theta_0 + theta_1;
    const double strength = theta_1 / sum;
    const double gain_1 = (1.0 - strength) * link - strength * non, gain_0 = -gain_1;
    double next_0 = theta_0 + 0.5 * step * (eta_0 - theta_0 + gain_0);
    double next_1 = theta_1 + 0.5 * step * (eta_1 - theta_1 + gain_1);
    next_0 += sqrt(step * theta_0) * normals[0][place];
    next_1 += sqrt(step * theta_1) * normals[1][place];
    const real new_0 = (real)fmax(fabs(next_0), FLOOR_VALUE), new_1 = (real)fmax(fabs(next_1), FLOOR_VALUE);
    theta[k] = new_0;
    theta[LD + k] = new_1;
    beta[k] = fmin(fmax(new_1 / (new_0 + new_1), REAL(BETA_FLOOR)), REAL(BETA_CEILING));
}
