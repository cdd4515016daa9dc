/*
 * star_rows: K=100 N=317080 dtype=float32 m=4096 noise=off partners=shared step=reflected
 * configuration: block_size=1 placement=THREAD reduction=none rows_in_flight=2 team=item vector_width=8
 */

#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef uint u32;
typedef ulong u64;
typedef float real;
typedef float8 realv;

static inline realv v_splat(real x)
{
    return (realv)(x);
}

static inline real v_sum(realv x)
{
    return (((x.s0 + x.s1) + (x.s2 + x.s3)) + ((x.s4 + x.s5) + (x.s6 + x.s7)));
}

typedef realv realx;
typedef int8 maskx;
typedef uint8 wordx;

/* fmin and fmax without their care for NaN: a comparison and a choice, on every driver. */
static inline realx smaller(realx x, realx y) { return x < y ? x : y; }
static inline realx larger(realx x, realx y) { return x > y ? x : y; }

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

typedef struct {
    real half_step, decay, spread; /* eps/2, exp(-eps/2), 1 - exp(-eps/2) */
    real alpha, log_b, sum;        /* concentration of the prior; log(1 + alpha / e); sum of the row's phi */
    u64 seed;
    u32 vertex, iteration;
} row_end;

/*
 * phi' = |phi + (eps/2) (alpha - phi + pi D) + sqrt(eps phi) xi|.
 */
static inline realx next_phi(
    realx pi_k, realx drift, realx u1, realx u2, u32 k, row_end e, maskx* clips)
{
    const realx phi = pi_k * e.sum;
    const realx gain = pi_k * drift;
    realx next = phi + e.half_step * (e.alpha - phi + gain);
    next = fabs(next);
    return larger(next, (realx)(1e-20f));
}

/* One vector of a row. */
static inline realv next_row(
    realv pi_k, realv drift, u32 k, row_end e, maskx* clips)
{
    if (k + 8u > 100u) { /* padding has no drift, so that it is not counted among the bounded */
        if (k + 0u >= 100u) drift.s0 = 0.0f;
        if (k + 1u >= 100u) drift.s1 = 0.0f;
        if (k + 2u >= 100u) drift.s2 = 0.0f;
        if (k + 3u >= 100u) drift.s3 = 0.0f;
        if (k + 4u >= 100u) drift.s4 = 0.0f;
        if (k + 5u >= 100u) drift.s5 = 0.0f;
        if (k + 6u >= 100u) drift.s6 = 0.0f;
        if (k + 7u >= 100u) drift.s7 = 0.0f;
    }
    realv u1 = v_splat(0.5f), u2 = u1;
    realv next = next_phi(pi_k, drift, u1, u2, k, e, clips);
    if (k + 8u > 100u) { /* padding stays zero */
        if (k + 0u >= 100u) next.s0 = 0.0f;
        if (k + 1u >= 100u) next.s1 = 0.0f;
        if (k + 2u >= 100u) next.s2 = 0.0f;
        if (k + 3u >= 100u) next.s3 = 0.0f;
        if (k + 4u >= 100u) next.s4 = 0.0f;
        if (k + 5u >= 100u) next.s5 = 0.0f;
        if (k + 6u >= 100u) next.s6 = 0.0f;
        if (k + 7u >= 100u) next.s7 = 0.0f;
    }
    return next;
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
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
    realv w[14];
    realv acc[14];
    const u32 lane = 0u;
    const u32 index = (uint)get_group_id(0);
    if (index >= n_vertices) return; /* PoCL miscompiles barriers behind a return that comes later */

    const u32 vertex = vertices[first_vertex + index];
    const u32 own_slot = slots[vertex];
    const u32 spare = spares[index];
    __global const realv* own = (__global const realv*)(pi + (u64)own_slot * 112u);
    __global const realv* strength = (__global const realv*)beta;
    __global realv* out = (__global realv*)(pi + (u64)spare * 112u);
    const real own_sum = row_sums[own_slot];
    for (u32 i = 0, v = lane; v < 14u; ++i, v += 1u) {
        w[i] = own[v] * (strength[v] - v_splat(delta));
    }

    realv products = v_splat(0.0f);
    for (u32 i = 0, v = lane; v < 14u; ++i, v += 1u) {
        acc[i] = out[v];
        products = fma(w[i], acc[i], products);
    }
    real taken = v_sum(products); /* sum over partners of scale dot, as dot is linear in the partner's row */

    const u64 first = neighbour_offsets[vertex];
    const u32 n = (u32)(neighbour_offsets[vertex + 1u] - first);
    for (u32 j = 0, turn = 0; j < n; j += 2u, turn ^= 1u) {
        const u32 slot0 = slots[neighbours[first + j]];
        __global const realv* row0 = (__global const realv*)(pi + (u64)slot0 * 112u);
        realv dots0 = v_splat(0.0f);
        const u32 slot1 = slots[neighbours[first + (j + 1u < n ? j + 1u : j)]];
        __global const realv* row1 = (__global const realv*)(pi + (u64)slot1 * 112u);
        realv dots1 = v_splat(0.0f);

        /* dot = sum_k pi_ak (beta_k - delta) pi_bk */
        for (u32 i = 0, v = lane; v < 14u; ++i, v += 1u) {
            dots0 = fma(w[i], row0[v], dots0);
            dots1 = fma(w[i], row1[v], dots1);
        }
        real dot0 = v_sum(dots0);
        real dot1 = v_sum(dots1);
        const real scale0 = 1.0f / fmax(delta + dot0, 1e-12f);
        taken += scale0 * dot0;
        const real scale1 = j + 1u >= n ? 0.0f : 1.0f / fmax(delta + dot1, 1e-12f);
        taken += scale1 * dot1;

        /* acc_k = sum over partners and links of scale pi_bk */
        for (u32 i = 0, v = lane; v < 14u; ++i, v += 1u) {
            acc[i] = fma(v_splat(scale0), row0[v], acc[i]);
            acc[i] = fma(v_splat(scale1), row1[v], acc[i]);
        }
    }

    /* D_k = (beta_k - delta) acc_k - taken; the row ends with one step a coordinate. */
    const real sum = own_sum;
    const row_end end = {half_step, decay, spread, alpha, log1p(alpha * 0.36787945f), sum, seed, vertex, iteration};
    realv totals = v_splat(0.0f);
    maskx clips = (maskx)(0);
    for (u32 i = 0, v = lane; v < 14u; ++i, v += 1u) {
        const realv drift = (strength[v] - v_splat(delta)) * acc[i] - v_splat(taken);
        const realv next = next_row(own[v], drift, v * 8u, end, &clips);
        totals = totals + next;
        acc[i] = next;
    }
    real clipped = v_sum(convert_float8(clips));
    if (lane == 0u && clipped > 0.0f) clip_counts[index] += (u32)clipped;
    real total = v_sum(totals);
    const real scale = 1.0f / total;
    for (u32 i = 0, v = lane; v < 14u; ++i, v += 1u) {
        out[v] = acc[i] * v_splat(scale);
    }
    if (lane == 0u) row_sums[spare] = total;
}
