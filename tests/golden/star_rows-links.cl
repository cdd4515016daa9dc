/*
 * star_rows: K=100 N=317080 dtype=float32 m=4096 noise=off partners=shared step=reflected
 * configuration: block_size=1 placement=THREAD reduction=none rows_in_flight=2 team=item vector_width=8
 */

#define FUNCTION static inline
#define GLOBAL __global
#define OPENCL 1
#define LOAD(row, v) row[v]
#define STORE(row, v, x) row[v] = x
#define STORE_ONE(row, k, x) ((GLOBAL real*)row)[k] = x
#define PASTE(x, y) x##y
#define REAL(x) PASTE(x, f)
#define W 8u
#define K 100u
#define LD 112u
#define ROW_VECTORS 14u
#define FLOOR_VALUE 1e-20
#define Z_FLOOR 1e-12
#define INVERSE_E 0.36787944117144233
#define LANEWISE 1
#define T 1u
#define CHUNKS 14u
#define ROWS 2u
#define QUEUE 0u
#define NORMALISE 1
#define WITH_LINKS 1

#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef uint u32;
typedef ulong u64;
typedef float real;
typedef float8 realv;

#define OWN(i) w[i]
#define ROW(j, i) LOAD(row##j, v)
#define ACC(i) acc[i]
FUNCTION realv v_splat(real x)
{
    return (realv)(x);
}

FUNCTION real v_sum(realv x)
{
    return (((x.s0 + x.s1) + (x.s2 + x.s3)) + ((x.s4 + x.s5) + (x.s6 + x.s7)));
}

typedef realv realx;
typedef int8 maskx;
typedef uint8 wordx;

/* fmin and fmax without their care for NaN: a comparison and a choice, on every driver. */
FUNCTION realx smaller(realx x, realx y) { return x < y ? x : y; }
FUNCTION realx larger(realx x, realx y) { return x > y ? x : y; }

static inline float exp_1(float x)
{
    x = x > -87.0f ? x : (float)(-87.0f);
    const float shifted = fma(x, (float)(1.44269504f), (float)(12582912.0f)), n = shifted - 12582912.0f;
    const float r = fma(n, (float)(-1.42860677e-6f), fma(n, (float)(-0.693145752f), x));
    float p = (float)(1.98412698e-4f);
    p = fma(p, r, (float)(0.0013888889f));
    p = fma(p, r, (float)(0.008333334f));
    p = fma(p, r, (float)(0.041666668f));
    p = fma(p, r, (float)(0.16666667f));
    p = fma(p, r, (float)(0.5f));
    p = fma(p, r, (float)(1.0f));
    p = fma(p, r, (float)(1.0f));
    return as_float(as_int(p) + (as_int(shifted) << 23));
}

static inline float log_1(float x)
{
    /* x = 2^e m with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s) */
    const int bits = as_int(x) - 0x3f3504f3;
    const float e = convert_float(bits >> 23);
    const float m = as_float((bits & 0x007fffff) + 0x3f3504f3);
    const float f = m - 1.0f, s = f / (2.0f + f), z = s * s;
    float p = (float)(1.11111111e-1f);
    p = fma(p, z, (float)(0.14285715f));
    p = fma(p, z, (float)(0.2f));
    p = fma(p, z, (float)(0.33333334f));
    return fma(e, (float)(0.693147181f), 2.0f * fma(s * z, p, s));
}

/* log(1 + x): the rounding of 1 + x cancels out of the quotient (Kahan). */
static inline float log1p_1(float x)
{
    const float y = 1.0f + x, z = y - 1.0f;
    return z == 0.0f ? x : log_1(y) * (x / z);
}

static inline float cos_turns_1(float x)
{
    const float v = 4.0f * x, q = rint(v), r = (v - q) * 1.57079633f, z = r * r;
    const int quadrant = convert_int(q);
    float c = (float)(-2.75573192e-7f), s = (float)(2.75573192e-6f);
    c = fma(c, z, (float)(2.4801588e-05f));
    c = fma(c, z, (float)(-0.0013888889f));
    c = fma(c, z, (float)(0.041666668f));
    c = fma(c, z, (float)(-0.5f));
    c = fma(c, z, (float)(1.0f));
    s = fma(s, z, (float)(-0.0001984127f));
    s = fma(s, z, (float)(0.008333334f));
    s = fma(s, z, (float)(-0.16666667f));
    s = fma(s, z, (float)(1.0f));
    s *= r;
    /* cos(r + quadrant pi/2): c, -s, -c, s */
    const float size = (quadrant & 1) ? s : c;
    return ((quadrant + 1) & 2) ? -size : size;
}

static inline realx exp_x(realx x)
{
    x = x > -87.0f ? x : (realx)(-87.0f);
    const realx shifted = fma(x, (realx)(1.44269504f), (realx)(12582912.0f)), n = shifted - 12582912.0f;
    const realx r = fma(n, (realx)(-1.42860677e-6f), fma(n, (realx)(-0.693145752f), x));
    realx p = (realx)(1.98412698e-4f);
    p = fma(p, r, (realx)(0.0013888889f));
    p = fma(p, r, (realx)(0.008333334f));
    p = fma(p, r, (realx)(0.041666668f));
    p = fma(p, r, (realx)(0.16666667f));
    p = fma(p, r, (realx)(0.5f));
    p = fma(p, r, (realx)(1.0f));
    p = fma(p, r, (realx)(1.0f));
    return as_float8(as_int8(p) + (as_int8(shifted) << 23));
}

static inline realx log_x(realx x)
{
    /* x = 2^e m with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s) */
    const int8 bits = as_int8(x) - 0x3f3504f3;
    const realx e = convert_float8(bits >> 23);
    const realx m = as_float8((bits & 0x007fffff) + 0x3f3504f3);
    const realx f = m - 1.0f, s = f / (2.0f + f), z = s * s;
    realx p = (realx)(1.11111111e-1f);
    p = fma(p, z, (realx)(0.14285715f));
    p = fma(p, z, (realx)(0.2f));
    p = fma(p, z, (realx)(0.33333334f));
    return fma(e, (realx)(0.693147181f), 2.0f * fma(s * z, p, s));
}

/* log(1 + x): the rounding of 1 + x cancels out of the quotient (Kahan). */
static inline realx log1p_x(realx x)
{
    const realx y = 1.0f + x, z = y - 1.0f;
    return z == 0.0f ? x : log_x(y) * (x / z);
}

static inline realx cos_turns_x(realx x)
{
    const realx v = 4.0f * x, q = rint(v), r = (v - q) * 1.57079633f, z = r * r;
    const int8 quadrant = convert_int8(q);
    realx c = (realx)(-2.75573192e-7f), s = (realx)(2.75573192e-6f);
    c = fma(c, z, (realx)(2.4801588e-05f));
    c = fma(c, z, (realx)(-0.0013888889f));
    c = fma(c, z, (realx)(0.041666668f));
    c = fma(c, z, (realx)(-0.5f));
    c = fma(c, z, (realx)(1.0f));
    s = fma(s, z, (realx)(-0.0001984127f));
    s = fma(s, z, (realx)(0.008333334f));
    s = fma(s, z, (realx)(-0.16666667f));
    s = fma(s, z, (realx)(1.0f));
    s *= r;
    /* cos(r + quadrant pi/2): c, -s, -c, s */
    const realx even = select(c, -c, (quadrant & 2) != 0), odd = select(-s, s, (quadrant & 2) != 0);
    return select(even, odd, (quadrant & 1) != 0);
}

/* How many coordinates were bounded: one number, or on CPUs one a lane. */
#if LANEWISE
#define clip_count maskx
#define NO_CLIPS (maskx)(0)
#define CLIPS(clips) v_sum(convert_float8(clips))
#else
#define clip_count u32
#define NO_CLIPS 0u
#define CLIPS(clips) (real)clips
#endif

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
    realx pi_k, realx drift, realx u1, realx u2, u32 k, row_end e, clip_count* clips)
{
    const realx phi = pi_k * e.sum;
    const realx gain = pi_k * drift;
    realx next = phi + e.half_step * (e.alpha - phi + gain);
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
        if (k + 2u >= K) drift.s2 = REAL(0.0);
        if (k + 3u >= K) drift.s3 = REAL(0.0);
        if (k + 4u >= K) drift.s4 = REAL(0.0);
        if (k + 5u >= K) drift.s5 = REAL(0.0);
        if (k + 6u >= K) drift.s6 = REAL(0.0);
        if (k + 7u >= K) drift.s7 = REAL(0.0);
    }
    realv u1 = v_splat(REAL(0.5)), u2 = u1;
    realv next = next_phi(pi_k, drift, u1, u2, k, e, clips);
    if (k + W > K) { /* padding stays zero */
        if (k + 0u >= K) next.s0 = REAL(0.0);
        if (k + 1u >= K) next.s1 = REAL(0.0);
        if (k + 2u >= K) next.s2 = REAL(0.0);
        if (k + 3u >= K) next.s3 = REAL(0.0);
        if (k + 4u >= K) next.s4 = REAL(0.0);
        if (k + 5u >= K) next.s5 = REAL(0.0);
        if (k + 6u >= K) next.s6 = REAL(0.0);
        if (k + 7u >= K) next.s7 = REAL(0.0);
    }
    return next;
}

__kernel
void star_rows(
    __global real* restrict pi,                  /* [N + m, LD] rows by slot */
    __global real* restrict row_sums,            /* [N + m] sums of phi by slot */
    __global const u32* restrict slots,          /* [N] slot of a vertex's row */
    __global const u32* restrict spares,         /* [m] free slots; they receive the new rows */
    __global const real* restrict beta,          /* [LD] community strengths */
    __global const u32* restrict vertices,       /* [.., m] distinct vertices of the mini-batch, from first_vertex on */
    __global const u64* restrict neighbour_offsets, /* [N + 1] begin of each vertex's training links */
    __global const u32* restrict neighbours,     /* [2 E] their other ends, ascending */
    __global u32* restrict clip_counts,          /* [m] coordinates whose flow was bounded, added up */
    const u32 n_vertices,                        /* vertices of the mini-batch */
    const u32 first_vertex,                      /* place of the first of them */
    const real half_step,                        /* eps / 2 */
    const real decay,                            /* exp(-eps / 2) */
    const real spread,                           /* 1 - exp(-eps / 2) */
    const real alpha,                            /* concentration of phi */
    const real delta,                            /* probability of a link across communities */
    const u64 seed,
    const u32 iteration
)
{
    realv w[CHUNKS];
    realv acc[CHUNKS];
    const u32 lane = 0u;
    const u32 index = (uint)get_global_id(0);
    if (index >= n_vertices) return; /* PoCL miscompiles barriers behind a return that comes later */
    #define place index

    const u32 vertex = vertices[first_vertex + place];
    const u32 own_slot = slots[vertex];
    #if WITH_LINKS
    #define summed out
    const u32 spare = spares[place];
    #else
    const u32 spare = own_slot; /* the new row is written where the old one was */
    #endif
    GLOBAL const realv* own = (GLOBAL const realv*)(pi + (u64)own_slot * LD);
    GLOBAL const realv* strength = (GLOBAL const realv*)beta;
    GLOBAL realv* out = (GLOBAL realv*)(pi + (u64)spare * LD);
    #if !WITH_LINKS
    GLOBAL realv* summed = (GLOBAL realv*)(pi + (u64)spares[place] * LD);
    #endif
    const real own_sum = row_sums[own_slot];
    for (u32 i = 0, v = lane; v < ROW_VECTORS; ++i, v += T) {
        OWN(i) = own[v] * (strength[v] - v_splat(delta));
    }

    realv products = v_splat(REAL(0.0));
    for (u32 i = 0, v = lane; v < ROW_VECTORS; ++i, v += T) {
        ACC(i) = summed[v];
        products = fma(OWN(i), ACC(i), products);
    }
    real taken = v_sum(products); /* sum over partners of scale dot, as dot is linear in the partner's row */

    const u64 first = neighbour_offsets[vertex];
    const u32 n = (u32)(neighbour_offsets[vertex + 1u] - first);
    for (u32 j = 0, turn = 0; j < n; j += ROWS, turn ^= 1u) {
        const u32 slot0 = slots[neighbours[first + j]];
        GLOBAL const realv* row0 = (GLOBAL const realv*)(pi + (u64)slot0 * LD);
        realv dots0 = v_splat(REAL(0.0));
        const u32 slot1 = slots[neighbours[first + (j + 1u < n ? j + 1u : j)]];
        GLOBAL const realv* row1 = (GLOBAL const realv*)(pi + (u64)slot1 * LD);
        realv dots1 = v_splat(REAL(0.0));

        /* dot = sum_k pi_ak (beta_k - delta) pi_bk */
        for (u32 i = 0, v = lane; v < ROW_VECTORS; ++i, v += T) {
            dots0 = fma(OWN(i), ROW(0, i), dots0);
            dots1 = fma(OWN(i), ROW(1, i), dots1);
        }
        real dot0 = v_sum(dots0);
        real dot1 = v_sum(dots1);
        const real scale0 = REAL(1.0) / fmax(delta + dot0, REAL(Z_FLOOR));
        taken += scale0 * dot0;
        const real scale1 = j + 1u >= n ? REAL(0.0) : REAL(1.0) / fmax(delta + dot1, REAL(Z_FLOOR));
        taken += scale1 * dot1;

        /* acc_k = sum over the rows of scale pi_bk */
        for (u32 i = 0, v = lane; v < ROW_VECTORS; ++i, v += T) {
            ACC(i) = fma(v_splat(scale0), ROW(0, i), ACC(i));
            ACC(i) = fma(v_splat(scale1), ROW(1, i), ACC(i));
        }
    }

    /* D_k = (beta_k - delta) acc_k - taken; the row ends with one step a coordinate. */
    const real sum = own_sum;
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
    if (lane == 0u && clipped > REAL(0.0)) clip_counts[index] += (u32)clipped;
    real total = v_sum(totals);
    const real scale = REAL(1.0) / total;
    for (u32 i = 0, v = lane; v < ROW_VECTORS; ++i, v += T) {
        STORE(out, v, ACC(i) * v_splat(scale));
    }
    #if QUEUE
    for (u32 i = 0; i < queue.count; ++i) STORE_ONE(out, queue.k[i], queue.rate[i] * scale);
    #endif
    if (lane == 0u) row_sums[spare] = total;
}
