/*
 * theta_partial: K=1000 N=317080 dtype=float32 m=4096
 * configuration: accumulators=registers block_size=128 pairs_in_flight=2 reduction=shuffle team=block
 *     vector_width=4
 */

typedef unsigned int u32;
typedef unsigned long long u64;
typedef float real;

struct __align__(16) realv { real s[4]; };

static __device__ __forceinline__ realv operator+(realv x, realv y)
{
    realv r;
    r.s[0] = x.s[0] + y.s[0]; r.s[1] = x.s[1] + y.s[1]; r.s[2] = x.s[2] + y.s[2]; r.s[3] = x.s[3] + y.s[3];
    return r;
}

static __device__ __forceinline__ realv operator-(realv x, realv y)
{
    realv r;
    r.s[0] = x.s[0] - y.s[0]; r.s[1] = x.s[1] - y.s[1]; r.s[2] = x.s[2] - y.s[2]; r.s[3] = x.s[3] - y.s[3];
    return r;
}

static __device__ __forceinline__ realv operator*(realv x, realv y)
{
    realv r;
    r.s[0] = x.s[0] * y.s[0]; r.s[1] = x.s[1] * y.s[1]; r.s[2] = x.s[2] * y.s[2]; r.s[3] = x.s[3] * y.s[3];
    return r;
}

static __device__ __forceinline__ realv fma(realv x, realv y, realv z)
{
    realv r;
    r.s[0] = fma(x.s[0], y.s[0], z.s[0]);
    r.s[1] = fma(x.s[1], y.s[1], z.s[1]);
    r.s[2] = fma(x.s[2], y.s[2], z.s[2]);
    r.s[3] = fma(x.s[3], y.s[3], z.s[3]);
    return r;
}

static __device__ __forceinline__ realv v_splat(real x)
{
    realv r;
    r.s[0] = x; r.s[1] = x; r.s[2] = x; r.s[3] = x;
    return r;
}

static __device__ __forceinline__ real v_sum(realv x)
{
    return ((x.s[0] + x.s[1]) + (x.s[2] + x.s[3]));
}

extern "C" __global__ __launch_bounds__(128)
void theta_partial(
    const real* __restrict__ pi,                 /* [N + m, LD] rows by slot */
    const u32* __restrict__ slots,               /* [N] slot of a vertex's row */
    const real* __restrict__ beta,               /* [LD] community strengths */
    const u32* __restrict__ pairs_a,             /* [P] one vertex of each pair */
    const u32* __restrict__ pairs_b,             /* [P] the other */
    const real* __restrict__ pair_weights,       /* [P] weight, negative for a non-link */
    real* __restrict__ counts,                   /* [groups, 2, LD] sums of weight * rho: non-links, links */
    const u64 first_pair,                        /* where this launch's pairs begin in their arrays */
    const u32 n_pairs,                           /* number of pairs */
    const u32 n_groups,                          /* groups among which the pairs are dealt out */
    const real delta                             /* probability of a link across communities */
)
{
    __shared__ real team_sums[2][2][4];
    realv non_0, non_1;
    realv link_0, link_1;
    realv both0_0, both0_1;
    realv both1_0, both1_1;
    const u32 lane = threadIdx.x;
    const u32 group = blockIdx.x;
    if (group >= n_groups) return;
    const realv* strength = (const realv*)beta;
    realv* out = (realv*)(counts + (u64)group * 2016u);
    non_0 = non_1 = v_splat(0.0f);
    link_0 = link_1 = v_splat(0.0f);

    u32 slot_a0 = 0u, slot_b0 = 0u, slot_a1 = 0u, slot_b1 = 0u;
    real weight0 = 0.0f, weight1 = 0.0f;
    if (group < n_pairs) {
        {
            const u32 place = group;
            const u64 at = first_pair + (place < n_pairs ? place : group);
            slot_a0 = slots[pairs_a[at]];
            slot_b0 = slots[pairs_b[at]];
            weight0 = place < n_pairs ? pair_weights[at] : 0.0f;
        }
        {
            const u32 place = group + n_groups;
            const u64 at = first_pair + (place < n_pairs ? place : group);
            slot_a1 = slots[pairs_a[at]];
            slot_b1 = slots[pairs_b[at]];
            weight1 = place < n_pairs ? pair_weights[at] : 0.0f;
        }
    }
    u32 turn = 0u;
    for (u32 pair = group, next; pair < n_pairs; pair = next, turn ^= 1u) {
        const realv* row_a0 = (const realv*)(pi + (u64)slot_a0 * 1008u);
        const realv* row_b0 = (const realv*)(pi + (u64)slot_b0 * 1008u);
        const real signed0 = weight0;
        realv dots0 = v_splat(0.0f);
        const realv* row_a1 = (const realv*)(pi + (u64)slot_a1 * 1008u);
        const realv* row_b1 = (const realv*)(pi + (u64)slot_b1 * 1008u);
        const real signed1 = weight1;
        realv dots1 = v_splat(0.0f);

        /* dot = sum_k pi_ak pi_bk (beta_k - delta) */
        {
            const u32 v = lane;
            const realv gap = strength[v] - v_splat(delta);
            both0_0 = row_a0[v] * row_b0[v];
            dots0 = fma(both0_0, gap, dots0);
            both1_0 = row_a1[v] * row_b1[v];
            dots1 = fma(both1_0, gap, dots1);
        }
        if (lane + 128u < 252u) {
            const u32 v = lane + 128u;
            const realv gap = strength[v] - v_splat(delta);
            both0_1 = row_a0[v] * row_b0[v];
            dots0 = fma(both0_1, gap, dots0);
            both1_1 = row_a1[v] * row_b1[v];
            dots1 = fma(both1_1, gap, dots1);
        }

        /* Looked up while the rows are on their way: their places depend on two reads, one after the other. */
        next = pair + 2u * n_groups;
        {
            const u32 place = next;
            const u64 at = first_pair + (place < n_pairs ? place : group);
            slot_a0 = slots[pairs_a[at]];
            slot_b0 = slots[pairs_b[at]];
            weight0 = place < n_pairs ? pair_weights[at] : 0.0f;
        }
        {
            const u32 place = next + n_groups;
            const u64 at = first_pair + (place < n_pairs ? place : group);
            slot_a1 = slots[pairs_a[at]];
            slot_b1 = slots[pairs_b[at]];
            weight1 = place < n_pairs ? pair_weights[at] : 0.0f;
        }
        real dot0 = v_sum(dots0);
        real dot1 = v_sum(dots1);
        for (int lanes = 16; lanes > 0; lanes /= 2) dot0 += __shfl_xor_sync(0xffffffffu, dot0, lanes);
        for (int lanes = 16; lanes > 0; lanes /= 2) dot1 += __shfl_xor_sync(0xffffffffu, dot1, lanes);
        if (lane % 32u == 0) {
            team_sums[turn][0][lane / 32u] = dot0;
            team_sums[turn][1][lane / 32u] = dot1;
        }
        __syncthreads();
        dot0 = team_sums[turn][0][0] + team_sums[turn][0][1] + team_sums[turn][0][2] + team_sums[turn][0][3];
        dot1 = team_sums[turn][1][0] + team_sums[turn][1][1] + team_sums[turn][1][2] + team_sums[turn][1][3];
        const real z0 = signed0 < 0.0f ? (1.0f - delta) - dot0 : delta + dot0;
        const real scale0 = signed0 / fmax(z0, 1e-12f);
        if (scale0 < 0.0f) {
            {
                const u32 v = lane;
                non_0 = fma(v_splat(-scale0), both0_0, non_0);
            }
            if (lane + 128u < 252u) {
                const u32 v = lane + 128u;
                non_1 = fma(v_splat(-scale0), both0_1, non_1);
            }
        } else {
            {
                const u32 v = lane;
                link_0 = fma(v_splat(scale0), both0_0, link_0);
            }
            if (lane + 128u < 252u) {
                const u32 v = lane + 128u;
                link_1 = fma(v_splat(scale0), both0_1, link_1);
            }
        }
        const real z1 = signed1 < 0.0f ? (1.0f - delta) - dot1 : delta + dot1;
        const real scale1 = signed1 / fmax(z1, 1e-12f);
        if (scale1 < 0.0f) {
            {
                const u32 v = lane;
                non_0 = fma(v_splat(-scale1), both1_0, non_0);
            }
            if (lane + 128u < 252u) {
                const u32 v = lane + 128u;
                non_1 = fma(v_splat(-scale1), both1_1, non_1);
            }
        } else {
            {
                const u32 v = lane;
                link_0 = fma(v_splat(scale1), both1_0, link_0);
            }
            if (lane + 128u < 252u) {
                const u32 v = lane + 128u;
                link_1 = fma(v_splat(scale1), both1_1, link_1);
            }
        }
    }

    {
        const u32 v = lane;
        out[v] = (v_splat(1.0f) - strength[v]) * non_0;
        out[252u + v] = strength[v] * link_0;
    }
    if (lane + 128u < 252u) {
        const u32 v = lane + 128u;
        out[v] = (v_splat(1.0f) - strength[v]) * non_1;
        out[252u + v] = strength[v] * link_1;
    }
}
