/*
 * update_phi: K=50 N=317080 dtype=float64 m=4096 n=32 noise=on step=reflected
 * configuration: block_size=16 normalise=False placement=SHARED prefetch=0 reduction=local rows_in_flight=2
 *     team=block vector_width=2
 */

#define FUNCTION static inline
#define GLOBAL __global
#define LOCAL __local
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define MUL_HI32 mul_hi
#define OPENCL 1
#define rowv realv /* a stored vector of a row */
#define WIDE(x) x
#define LOAD(row, v) row[v]
#define NON_LINK(dot) (REAL(1.0) - delta) - dot
#define REAL(x) x
#define W 2u
#define K 50u
#define LD 64u
#define ROW_VECTORS 32u
#define FLOOR_VALUE 1e-20
#define Z_FLOOR 1e-12
#define INVERSE_E 0.36787944117144233
#define LANEWISE 1
#define HALF 8u
#define T 16u
#define ROWS 2u
#define NORMALISE 0
#define BLOCK_SIZE 16u
#define PURPOSE_PHI_UNIFORM 5u

#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef uint u32;
typedef ulong u64;
typedef double real;
typedef double2 realv;

#define OWN(i) w_shared[v]
#define KEPT(j, i) probs##j##_shared[v]
#define ROW(j, i) WIDE(KEPT(j, i))
#define ACC(i) acc_shared[v]
FUNCTION realv v_splat(real x)
{
    return (realv)(x);
}

FUNCTION real v_sum(realv x)
{
    return (x.s0 + x.s1);
}

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

typedef struct { uint2 w[4]; } wordsx;

/* The same of one counter a lane; a 64-bit product gives both its halves. */
static inline wordsx philox_x(u64 seed, uint2 index, u32 c1, u32 c2, u32 c3)
{
    ulong2 a0 = convert_ulong2(index), a1 = c1, a2 = c2, a3 = c3;
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
    #pragma unroll
    for (int round = 0; round < 7; ++round) {
        const ulong2 p0 = (a0 & 0xFFFFFFFFul) * 0xD2511F53ul, p1 = (a2 & 0xFFFFFFFFul) * 0xCD9E8D57ul;
        a0 = (p1 >> 32) ^ a1 ^ k0;
        a1 = p1;
        a2 = (p0 >> 32) ^ a3 ^ k1;
        a3 = p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    wordsx r;
    r.w[0] = convert_uint2(a0);
    r.w[1] = convert_uint2(a1);
    r.w[2] = convert_uint2(a2);
    r.w[3] = convert_uint2(a3);
    return r;
}

static inline double2 unit_x(uint2 word)
{
    return (convert_double2(word >> 9) + REAL(0.5)) * REAL(1.1920928955078125e-07);
}

/* The two uniforms of each of the coordinates k, k + 1, ... of one vector; k is a multiple of its width. */
FUNCTION void uniforms(
    u64 seed, u32 k, u32 vertex, u32 iteration, u32 purpose, realv* u1, realv* u2)
{
    {
        const words4 r = philox(seed, (k >> 1) + 0u, vertex, iteration, purpose << 24);
        (*u1).s0 = unit(r.w[0]); (*u2).s0 = unit(r.w[1]);
        (*u1).s1 = unit(r.w[2]); (*u2).s1 = unit(r.w[3]);
    }
}

typedef realv realx;
typedef long2 maskx;
typedef uint2 wordx;

/* fmin and fmax without their care for NaN: a comparison and a choice, on every driver. */
FUNCTION realx smaller(realx x, realx y) { return x < y ? x : y; }
FUNCTION realx larger(realx x, realx y) { return x > y ? x : y; }

FUNCTION real exp_1(real x) { return exp(x); }
FUNCTION real log_1(real x) { return log(x); }
FUNCTION real log1p_1(real x) { return log1p(x); }
FUNCTION real cos_turns_1(real x) { return cospi(REAL(2.0) * x); }
FUNCTION realx exp_x(realx x) { return exp(x); }
FUNCTION realx log_x(realx x) { return log(x); }
FUNCTION realx log1p_x(realx x) { return log1p(x); }
FUNCTION realx cos_turns_x(realx x) { return cospi(REAL(2.0) * x); }
/* How many coordinates were bounded: one number, or on CPUs one a lane. */
#if LANEWISE
#define clip_count maskx
#define NO_CLIPS (maskx)(0)
#define CLIPS(clips) v_sum(convert_double2(clips))
#else
#define clip_count u32
#define NO_CLIPS 0u
#define CLIPS(clips) (real)clips
#endif
/* The cosine and the sine of 2 pi x, x in (0, 1). */
FUNCTION void turns_of(double x, double* cosine, double* sine)
{
    *cosine = cospi(REAL(2.0) * x);
    *sine = sinpi(REAL(2.0) * x);
}

/* Squares and turns of the coordinates k, k + 1, ... of one vector; k is a multiple of its width. */
FUNCTION void pair_normals(
    u64 seed, u32 k, u32 vertex, u32 iteration, u32 purpose, realv* square, realv* turn)
{
    const words4 r = philox(seed, k >> 2, vertex, iteration, purpose << 24);
    const real size = REAL(-2.0) * log_1(unit((k & 2u) ? r.w[2] : r.w[0]));
    real cosine, sine;
    turns_of(unit((k & 2u) ? r.w[3] : r.w[1]), &cosine, &sine);
    (*square).s0 = (*square).s1 = size;
    (*turn).s0 = cosine;
    (*turn).s1 = sine;
}

/* The square root; in CUDA's single precision to a relative error of 2^-23, which takes a few instructions less. */
FUNCTION realx root(realx x)
{
    return sqrt(x);
}

typedef struct {
    real half_step, decay, spread; /* eps/2, exp(-eps/2), 1 - exp(-eps/2) */
    real alpha, log_b, sum;        /* concentration of the prior; log(1 + alpha / e); sum of the row's phi */
    u64 seed;
    u32 vertex, iteration;
} row_end;

/*
 * phi' = |phi + (eps/2) (alpha - phi + pi D) + sqrt(eps phi) xi|.
 */
FUNCTION realx next_phi(
    realx pi_k, realx drift, realx square, realx turn, u32 k, row_end e, clip_count* clips)
{
    const realx phi = pi_k * e.sum;
    const realx gain = pi_k * drift;
    realx next = phi + e.half_step * (e.alpha - phi + gain);
    next += root(((REAL(2.0) * e.half_step) * phi) * square) * turn;
    next = fabs(next);
    return larger(next, (realx)(REAL(FLOOR_VALUE)));
}

/* One vector of a row. */
static inline realv next_row(
    realv pi_k, realv drift, u32 k, row_end e, clip_count* clips)
{
    if (k + W > K) { /* padding has no drift, so that it is not counted among the bounded */
        if (k + 0u >= K) drift.s0 = REAL(0.0);
        if (k + 1u >= K) drift.s1 = REAL(0.0);
    }
    realv square = v_splat(REAL(0.5)), turn = square;
    pair_normals(e.seed, k, e.vertex, e.iteration, PURPOSE_PHI_UNIFORM, &square, &turn);
    realv next = next_phi(pi_k, drift, square, turn, k, e, clips);
    if (k + W > K) { /* padding stays zero */
        if (k + 0u >= K) next.s0 = REAL(0.0);
        if (k + 1u >= K) next.s1 = REAL(0.0);
    }
    return next;
}

__kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void update_phi(
    __global real* restrict pi,                  /* [N + m, LD] rows by slot */
    __global real* restrict row_sums,            /* [N + m] sums of phi by slot */
    __global const u32* restrict slots,          /* [N] slot of a vertex's row */
    __global const u32* restrict spares,         /* [m] free slots; they receive the new rows */
    __global const real* restrict beta,          /* [LD] community strengths */
    __global const u32* restrict vertices,       /* [.., m] distinct vertices of the mini-batch, from first_vertex on */
    __global const u32* restrict partners,       /* [.., m, n] partners of each */
    __global const real* restrict weights,       /* [.., m, n] weight, negative for a non-link, 0 to ignore */
    __global u32* restrict clip_counts,          /* [m] coordinates whose flow was bounded, added up */
    const u32 n_vertices,                        /* vertices of the mini-batch */
    const u32 first_vertex,                      /* place of the first of them */
    const u32 n_partners,                        /* partners of each */
    const real half_step,                        /* eps / 2 */
    const real decay,                            /* exp(-eps / 2) */
    const real spread,                           /* 1 - exp(-eps / 2) */
    const real alpha,                            /* concentration of phi */
    const real delta,                            /* probability of a link across communities */
    const u64 seed,
    const u32 iteration
)
{
    LOCAL real team_sums[2][2][BLOCK_SIZE];
    LOCAL realv w_shared[ROW_VECTORS];
    LOCAL rowv probs0_shared[ROW_VECTORS];
    LOCAL rowv probs1_shared[ROW_VECTORS];
    LOCAL realv acc_shared[ROW_VECTORS];
    const u32 lane = (uint)get_local_id(0);
    const u32 index = (uint)get_group_id(0);
    if (index >= n_vertices) return;

    const u32 vertex = vertices[first_vertex + index];
    const u32 own_slot = slots[vertex];
    GLOBAL const rowv* own = (GLOBAL const rowv*)(pi + (u64)own_slot * LD);
    GLOBAL const realv* strength = (GLOBAL const realv*)beta;
    const u32 spare = spares[index];
    GLOBAL rowv* out = (GLOBAL rowv*)(pi + (u64)spare * LD);
    for (u32 i = 0, v = lane; v < ROW_VECTORS; ++i, v += T) {
        OWN(i) = LOAD(own, v) * (strength[v] - v_splat(delta));
    }
    for (u32 i = 0, v = lane; v < ROW_VECTORS; ++i, v += T) {
        ACC(i) = v_splat(REAL(0.0));
    }

    const u64 first = (u64)(first_vertex + index) * n_partners;
    const u32 n = n_partners;
    real taken = REAL(0.0); /* sum over partners of scale dot */
    u32 slot0 = n > 0u ? slots[partners[first + (0u)]] : own_slot;
    u32 slot1 = n > 0u ? slots[partners[first + (1u < n ? 1u : n - 1u)]] : own_slot;
    for (u32 j = 0, turn = 0; j < n; j += ROWS, turn ^= 1u) {
        const real weight0 = weights[first + j];
        GLOBAL const rowv* row0 = (GLOBAL const rowv*)(pi + (u64)slot0 * LD);
        slot0 = slots[partners[first + (j + 2u < n ? j + 2u : n - 1u)]]; /* of the next turn */
        realv dots0 = v_splat(REAL(0.0));
        const real weight1 = j + 1u < n ? weights[first + j + 1u] : REAL(0.0);
        GLOBAL const rowv* row1 = (GLOBAL const rowv*)(pi + (u64)slot1 * LD);
        slot1 = slots[partners[first + (j + 3u < n ? j + 3u : n - 1u)]]; /* of the next turn */
        realv dots1 = v_splat(REAL(0.0));

        /* dot = sum_k pi_ak (beta_k - delta) pi_bk */
        for (u32 i = 0, v = lane; v < ROW_VECTORS; ++i, v += T) {
            const rowv x0 = row0[v];
            KEPT(0, i) = x0;
            dots0 = fma(OWN(i), WIDE(x0), dots0);
            const rowv x1 = row1[v];
            KEPT(1, i) = x1;
            dots1 = fma(OWN(i), WIDE(x1), dots1);
        }
        real dot0 = v_sum(dots0);
        real dot1 = v_sum(dots1);
        team_sums[turn][0][lane] = dot0;
        team_sums[turn][1][lane] = dot1;
        BARRIER;
        for (u32 stride = HALF; stride > 0; stride /= 2) {
            if (lane < stride && lane + stride < T) {
                team_sums[turn][0][lane] += team_sums[turn][0][lane + stride];
                team_sums[turn][1][lane] += team_sums[turn][1][lane + stride];
            }
            BARRIER;
        }
        dot0 = team_sums[turn][0][0];
        dot1 = team_sums[turn][1][0];
        const real z0 = weight0 < REAL(0.0) ? NON_LINK(dot0) : delta + dot0;
        const real scale0 = weight0 / fmax(z0, REAL(Z_FLOOR));
        taken += scale0 * dot0;
        const real z1 = weight1 < REAL(0.0) ? NON_LINK(dot1) : delta + dot1;
        const real scale1 = weight1 / fmax(z1, REAL(Z_FLOOR));
        taken += scale1 * dot1;

        /* acc_k = sum over the rows of scale pi_bk */
        for (u32 i = 0, v = lane; v < ROW_VECTORS; ++i, v += T) {
            ACC(i) = fma(v_splat(scale0), ROW(0, i), ACC(i));
            ACC(i) = fma(v_splat(scale1), ROW(1, i), ACC(i));
        }
    }
    /* D_k = (beta_k - delta) acc_k - taken; the row ends with one step a coordinate. */
    const real sum = row_sums[own_slot];
    const row_end end = {half_step, decay, spread, alpha, log1p(alpha * REAL(INVERSE_E)), sum, seed, vertex, iteration};
    realv totals = v_splat(REAL(0.0));
    clip_count clips = NO_CLIPS;
    for (u32 i = 0, v = lane; v < ROW_VECTORS; ++i, v += T) {
        const realv drift = (strength[v] - v_splat(delta)) * ACC(i) - v_splat(taken);
        const realv next = next_row(LOAD(own, v), drift, v * W, end, &clips);
        #if NORMALISE
        totals = totals + next;
        ACC(i) = next;
        #else
        out[v] = next;
        #endif
    }
    real clipped = CLIPS(clips);
    BARRIER; /* the last sum may still be read */
    team_sums[0][0][lane] = clipped;
    BARRIER;
    for (u32 stride = HALF; stride > 0; stride /= 2) {
        if (lane < stride && lane + stride < T) {
            team_sums[0][0][lane] += team_sums[0][0][lane + stride];
        }
        BARRIER;
    }
    clipped = team_sums[0][0][0];
    if (lane == 0u) clip_counts[index] += (u32)clipped;
}
