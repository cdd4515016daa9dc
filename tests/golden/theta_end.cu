/*
 * theta_end: K=1024 dtype=float32 m=4096 noise=on theta_step=reflected
 * configuration: block_size=256 share=32
 */

typedef unsigned int u32;
typedef unsigned long long u64;
typedef float real;
typedef float realv;

typedef struct { u32 w[4]; } words4;

static __device__ __forceinline__ words4 philox(u64 seed, u32 c0, u32 c1, u32 c2, u32 c3)
{
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
    for (int round = 0; round < 7; ++round) {
        const u32 h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
        const u32 h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
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
static __device__ __forceinline__ real unit(u32 word)
{
    return ((real)(word >> 9) + 0.5f) * 1.1920929e-07f;
}

typedef words4 wordsx;
#define philox_1 philox
#define unit_1 unit

/* The two uniforms of each of the coordinates k, k + 1, ... of one vector; k is a multiple of its width. */
static __device__ __forceinline__ void uniforms(
    u64 seed, u32 k, u32 vertex, u32 iteration, u32 purpose, realv* u1, realv* u2)
{
    const words4 r = philox(seed, k >> 1, vertex, iteration, purpose << 24);
    *u1 = unit((k & 1u) ? r.w[2] : r.w[0]);
    *u2 = unit((k & 1u) ? r.w[3] : r.w[1]);
}

static __device__ __forceinline__ double normal(u64 seed, u32 k, u32 column, u32 iteration)
{
    real u1, u2;
    uniforms(seed, k, column, iteration, 8u, &u1, &u2);
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
    __shared__ double sums[2][256];
    __shared__ double normals[2][8];
    const u32 place = threadIdx.x % 8u, member = threadIdx.x / 8u;
    const u32 k = blockIdx.x * 8u + place;
    const u32 groups = (n_groups + 31u) / 32u, first = member * groups;
    const u32 last = k >= 1024u ? 0u : first + groups < n_groups ? first + groups : n_groups;
    double non = 0.0, link = 0.0;
    #pragma unroll 8
    for (u32 group = first; group < last; ++group) {
        const real* count = counts + (u64)group * 2048u + k;
        non += (double)count[0];
        link += (double)count[1024u];
    }
    sums[0][threadIdx.x] = non;
    sums[1][threadIdx.x] = link;
    /* Two work-items draw side by side. */
    if (member < 2u) normals[member][place] = normal(seed, k, member, iteration);
    __syncthreads();
    if (member > 0u) return;
    #pragma unroll 8
    for (u32 other = 8u; other < 256u; other += 8u) {
        non += sums[0][other + place];
        link += sums[1][other + place];
    }

    if (k >= 1024u) return;
    const double theta_0 = theta[k], theta_1 = theta[1024u + k];
    const double sum = theta_0 + theta_1;
    const double strength = theta_1 / sum;
    const double gain_1 = (1.0 - strength) * link - strength * non, gain_0 = -gain_1;
    double next_0 = theta_0 + 0.5 * step * (eta_0 - theta_0 + gain_0);
    double next_1 = theta_1 + 0.5 * step * (eta_1 - theta_1 + gain_1);
    next_0 += sqrt(step * theta_0) * normals[0][place];
    next_1 += sqrt(step * theta_1) * normals[1][place];
    const real new_0 = (real)fmax(fabs(next_0), 1e-20), new_1 = (real)fmax(fabs(next_1), 1e-20);
    theta[k] = new_0;
    theta[1024u + k] = new_1;
    beta[k] = fmin(fmax(new_1 / (new_0 + new_1), 1e-06f), 0.999999f);
}
