/*
 * theta_end: K=100 dtype=float32 m=4096 noise=on theta_step=gain
 * configuration: block_size=64 share=1
 */

#define GLOBAL __global
#define BLOCK_ID (uint)get_group_id(0)
#define LOCAL_ID (uint)get_local_id(0)
#define OPENCL 1
#define PASTE(x, y) x##y
#define REAL(x) PASTE(x, f)
#define K 100u
#define LD 112u
#define FLOOR_VALUE 1e-20
#define BETA_FLOOR 1e-06
#define BETA_CEILING 0.999999
#define BLOCK_SIZE 64u

#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef uint u32;
typedef ulong u64;
typedef float real;
typedef float realv;

__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void theta_end(
    __global const real* restrict counts,        /* [groups, 2, LD] counts of every group */
    __global real* restrict theta,               /* [2, LD] non-link, link */
    __global real* restrict beta,                /* [LD] community strengths */
    const u32 n_groups,                          /* number of groups */
    const double step,                           /* eps, or the gain */
    const double eta_0,                          /* prior pseudo-count of non-links */
    const double eta_1,                          /* prior pseudo-count of links */
    const u64 seed,
    const u32 iteration
)
{
    const u32 k = BLOCK_ID * BLOCK_SIZE + LOCAL_ID;
    const u32 first = 0u, last = k < K ? n_groups : 0u;
    double non = 0.0, link = 0.0;
    #pragma unroll 8
    for (u32 group = first; group < last; ++group) {
        GLOBAL const real* count = counts + (u64)group * (2u * LD) + k;
        non += (double)count[0];
        link += (double)count[LD];
    }

    if (k >= LD) return;
    if (k >= K) {
        beta[k] = REAL(0.5); /* padding: its memberships are 0 */
        return;
    }
    const double theta_0 = theta[k], theta_1 = theta[LD + k];
    /* Towards the prior counts plus the expected ones; the gain is the share of the way. */
    double next_0 = theta_0 + step * (eta_0 + non - theta_0);
    double next_1 = theta_1 + step * (eta_1 + link - theta_1);
    const real new_0 = (real)fmax(fabs(next_0), FLOOR_VALUE), new_1 = (real)fmax(fabs(next_1), FLOOR_VALUE);
    theta[k] = new_0;
    theta[LD + k] = new_1;
    beta[k] = fmin(fmax(new_1 / (new_0 + new_1), REAL(BETA_FLOOR)), REAL(BETA_CEILING));
}
