/*
 * theta_partial: K=1000 N=317080 dtype=float32 m=4096
 * configuration: accumulators=registers block_size=128 pairs_in_flight=2 reduction=shuffle team=block
 *     vector_width=4
 */

#define FUNCTION static __device__ __forceinline__
#define GLOBAL
#define LOCAL __shared__
#define BARRIER __syncthreads()
#define rowv realv /* a stored vector of a row */
#define LOAD(row, v) row[v]
#define NON_LINK(dot) (REAL(1.0) - delta) - dot
#define PASTE(x, y) x##y
#define REAL(x) PASTE(x, f)
#define W 4u
#define K 1000u
#define LD 1008u
#define ROW_VECTORS 252u
#define Z_FLOOR 1e-12
#define PAIRS 2u
#define SUB_GROUP_SIZE 32u

typedef unsigned int u32;
typedef unsigned long long u64;
typedef float real;

struct __align__(16) realv { real s[W]; };

FUNCTION realv operator+(realv x, realv y)
{
    realv r;
    r.s[0] = x.s[0] + y.s[0]; r.s[1] = x.s[1] + y.s[1]; r.s[2] = x.s[2] + y.s[2]; r.s[3] = x.s[3] + y.s[3];
    return r;
}

FUNCTION realv operator-(realv x, realv y)
{
    realv r;
    r.s[0] = x.s[0] - y.s[0]; r.s[1] = x.s[1] - y.s[1]; r.s[2] = x.s[2] - y.s[2]; r.s[3] = x.s[3] - y.s[3];
    return r;
}

FUNCTION realv operator*(realv x, realv y)
{
    realv r;
    r.s[0] = x.s[0] * y.s[0]; r.s[1] = x.s[1] * y.s[1]; r.s[2] = x.s[2] * y.s[2]; r.s[3] = x.s[3] * y.s[3];
    return r;
}

FUNCTION realv fma(realv x, realv y, realv z)
{
    realv r;
    r.s[0] = fma(x.s[0], y.s[0], z.s[0]);
    r.s[1] = fma(x.s[1], y.s[1], z.s[1]);
    r.s[2] = fma(x.s[2], y.s[2], z.s[2]);
    r.s[3] = fma(x.s[3], y.s[3], z.s[3]);
    return r;
}

FUNCTION realv v_splat(real x)
{
    realv r;
    r.s[0] = x; r.s[1] = x; r.s[2] = x; r.s[3] = x;
    return r;
}

FUNCTION real v_sum(realv x)
{
    return ((x.s[0] + x.s[1]) + (x.s[2] + x.s[3]));
}

#define NON(i) non_##i
#define LINK(i) link_##i
#define PRODUCT(j, i) both##j##_##i

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
    LOCAL real team_sums[2][2][4];
    realv non_0, non_1;
    realv link_0, link_1;
    realv both0_0, both0_1;
    realv both1_0, both1_1;
    const u32 lane = threadIdx.x;
    const u32 group = blockIdx.x;
    if (group >= n_groups) return;
    GLOBAL const realv* strength = (GLOBAL const realv*)beta;
    GLOBAL realv* out = (GLOBAL realv*)(counts + (u64)group * (2u * LD));
    NON(0) = NON(1) = v_splat(REAL(0.0));
    LINK(0) = LINK(1) = v_splat(REAL(0.0));

    u32 slot_a0 = 0u, slot_b0 = 0u, slot_a1 = 0u, slot_b1 = 0u;
    real weight0 = REAL(0.0), weight1 = REAL(0.0);
    if (group < n_pairs) {
        {
            const u32 place = group;
            const u64 at = first_pair + (place < n_pairs ? place : group);
            slot_a0 = slots[pairs_a[at]];
            slot_b0 = slots[pairs_b[at]];
            weight0 = place < n_pairs ? pair_weights[at] : REAL(0.0);
        }
        {
            const u32 place = group + n_groups;
            const u64 at = first_pair + (place < n_pairs ? place : group);
            slot_a1 = slots[pairs_a[at]];
            slot_b1 = slots[pairs_b[at]];
            weight1 = place < n_pairs ? pair_weights[at] : REAL(0.0);
        }
    }
    u32 turn = 0u;
    for (u32 pair = group, next; pair < n_pairs; pair = next, turn ^= 1u) {
        GLOBAL const rowv* row_a0 = (GLOBAL const rowv*)(pi + (u64)slot_a0 * LD);
        GLOBAL const rowv* row_b0 = (GLOBAL const rowv*)(pi + (u64)slot_b0 * LD);
        const real signed0 = weight0;
        realv dots0 = v_splat(REAL(0.0));
        GLOBAL const rowv* row_a1 = (GLOBAL const rowv*)(pi + (u64)slot_a1 * LD);
        GLOBAL const rowv* row_b1 = (GLOBAL const rowv*)(pi + (u64)slot_b1 * LD);
        const real signed1 = weight1;
        realv dots1 = v_splat(REAL(0.0));

        /* dot = sum_k pi_ak pi_bk (beta_k - delta) */
        {
            const u32 v = lane;
            const realv gap = strength[v] - v_splat(delta);
            PRODUCT(0, 0) = LOAD(row_a0, v) * LOAD(row_b0, v);
            dots0 = fma(PRODUCT(0, 0), gap, dots0);
            PRODUCT(1, 0) = LOAD(row_a1, v) * LOAD(row_b1, v);
            dots1 = fma(PRODUCT(1, 0), gap, dots1);
        }
        if (lane + 128u < ROW_VECTORS) {
            const u32 v = lane + 128u;
            const realv gap = strength[v] - v_splat(delta);
            PRODUCT(0, 1) = LOAD(row_a0, v) * LOAD(row_b0, v);
            dots0 = fma(PRODUCT(0, 1), gap, dots0);
            PRODUCT(1, 1) = LOAD(row_a1, v) * LOAD(row_b1, v);
            dots1 = fma(PRODUCT(1, 1), gap, dots1);
        }

        /* Looked up while the rows are on their way: their places depend on two reads, one after the other. */
        next = pair + PAIRS * n_groups;
        {
            const u32 place = next;
            const u64 at = first_pair + (place < n_pairs ? place : group);
            slot_a0 = slots[pairs_a[at]];
            slot_b0 = slots[pairs_b[at]];
            weight0 = place < n_pairs ? pair_weights[at] : REAL(0.0);
        }
        {
            const u32 place = next + n_groups;
            const u64 at = first_pair + (place < n_pairs ? place : group);
            slot_a1 = slots[pairs_a[at]];
            slot_b1 = slots[pairs_b[at]];
            weight1 = place < n_pairs ? pair_weights[at] : REAL(0.0);
        }
        real dot0 = v_sum(dots0);
        real dot1 = v_sum(dots1);
        for (int lanes = 16; lanes > 0; lanes /= 2) dot0 += __shfl_xor_sync(0xffffffffu, dot0, lanes);
        for (int lanes = 16; lanes > 0; lanes /= 2) dot1 += __shfl_xor_sync(0xffffffffu, dot1, lanes);
        if (lane % SUB_GROUP_SIZE == 0) {
            team_sums[turn][0][lane / SUB_GROUP_SIZE] = dot0;
            team_sums[turn][1][lane / SUB_GROUP_SIZE] = dot1;
        }
        BARRIER;
        dot0 = team_sums[turn][0][0] + team_sums[turn][0][1] + team_sums[turn][0][2] + team_sums[turn][0][3];
        dot1 = team_sums[turn][1][0] + team_sums[turn][1][1] + team_sums[turn][1][2] + team_sums[turn][1][3];
        const real z0 = signed0 < REAL(0.0) ? NON_LINK(dot0) : delta + dot0;
        const real scale0 = signed0 / fmax(z0, REAL(Z_FLOOR));
        if (scale0 < REAL(0.0)) {
            {
                const u32 v = lane;
                NON(0) = fma(v_splat(-scale0), PRODUCT(0, 0), NON(0));
            }
            if (lane + 128u < ROW_VECTORS) {
                const u32 v = lane + 128u;
                NON(1) = fma(v_splat(-scale0), PRODUCT(0, 1), NON(1));
            }
        } else {
            {
                const u32 v = lane;
                LINK(0) = fma(v_splat(scale0), PRODUCT(0, 0), LINK(0));
            }
            if (lane + 128u < ROW_VECTORS) {
                const u32 v = lane + 128u;
                LINK(1) = fma(v_splat(scale0), PRODUCT(0, 1), LINK(1));
            }
        }
        const real z1 = signed1 < REAL(0.0) ? NON_LINK(dot1) : delta + dot1;
        const real scale1 = signed1 / fmax(z1, REAL(Z_FLOOR));
        if (scale1 < REAL(0.0)) {
            {
                const u32 v = lane;
                NON(0) = fma(v_splat(-scale1), PRODUCT(1, 0), NON(0));
            }
            if (lane + 128u < ROW_VECTORS) {
                const u32 v = lane + 128u;
                NON(1) = fma(v_splat(-scale1), PRODUCT(1, 1), NON(1));
            }
        } else {
            {
                const u32 v = lane;
                LINK(0) = fma(v_splat(scale1), PRODUCT(1, 0), LINK(0));
            }
            if (lane + 128u < ROW_VECTORS) {
                const u32 v = lane + 128u;
                LINK(1) = fma(v_splat(scale1), PRODUCT(1, 1), LINK(1));
            }
        }
    }

    {
        const u32 v = lane;
        out[v] = (v_splat(REAL(1.0)) - strength[v]) * NON(0);
        out[ROW_VECTORS + v] = strength[v] * LINK(0);
    }
    if (lane + 128u < ROW_VECTORS) {
        const u32 v = lane + 128u;
        out[v] = (v_splat(REAL(1.0)) - strength[v]) * NON(1);
        out[ROW_VECTORS + v] = strength[v] * LINK(1);
    }
}
