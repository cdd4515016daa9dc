/*
 * update_phi: K=100 N=317080 dtype=float32 m=4096 n=32 noise=on step=split
 * configuration: block_size=1 normalise=True placement=THREAD prefetch=0 reduction=none rows_in_flight=1
 *     team=item vector_width=8
 */

#define FUNCTION static inline
#define GLOBAL __global
#define MUL_HI32 mul_hi
#define OPENCL 1
#define rowv realv /* a stored vector of a row */
#define LOAD(row, v) row[v]
#define STORE(row, v, x) row[v] = x
#define STORE_ONE(row, k, x) ((GLOBAL real*)row)[k] = x
#define NON_LINK(dot) (REAL(1.0) - delta) - dot
#define PASTE(x, y) x##y
#define REAL(x) PASTE(x, f)
#define W 8u
#define K 100u
#define LD 112u
#define ROW_VECTORS 14u
#define MAX_DRAWS 64u
#define FLOOR_VALUE 1e-20
#define Z_FLOOR 1e-12
#define CLIP 3.0
#define INVERSE_E 0.36787944117144233
#define X 8u
#define LANEWISE 1
#define T 1u
#define CHUNKS 14u
#define ROWS 1u
#define QUEUE 112u
#define HOLDS 16u
#define NORMALISE 1
#define PURPOSE_PHI_UNIFORM 5u
#define PURPOSE_PHI_POISSON 6u
#define PURPOSE_PHI_GAMMA 7u

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

typedef struct { uint8 w[4]; } wordsx;

/* The same of one counter a lane; a 64-bit product gives both its halves. */
static inline wordsx philox_x(u64 seed, uint8 index, u32 c1, u32 c2, u32 c3)
{
    ulong8 a0 = convert_ulong8(index), a1 = c1, a2 = c2, a3 = c3;
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
    #pragma unroll
    for (int round = 0; round < 7; ++round) {
        const ulong8 p0 = (a0 & 0xFFFFFFFFul) * 0xD2511F53ul, p1 = (a2 & 0xFFFFFFFFul) * 0xCD9E8D57ul;
        a0 = (p1 >> 32) ^ a1 ^ k0;
        a1 = p1;
        a2 = (p0 >> 32) ^ a3 ^ k1;
        a3 = p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    wordsx r;
    r.w[0] = convert_uint8(a0);
    r.w[1] = convert_uint8(a1);
    r.w[2] = convert_uint8(a2);
    r.w[3] = convert_uint8(a3);
    return r;
}

static inline float8 unit_x(uint8 word)
{
    return (convert_float8(word >> 9) + REAL(0.5)) * REAL(1.1920928955078125e-07);
}

/* The two uniforms of each of the coordinates k, k + 1, ... of one vector; k is a multiple of its width. */
FUNCTION void uniforms(
    u64 seed, u32 k, u32 vertex, u32 iteration, u32 purpose, realv* u1, realv* u2)
{
    /* 4 calls side by side; words in 64-bit lanes, so that one multiplication gives both halves of a product */
    ulong4 c0 = ((k >> 1) + (ulong4)(0, 1, 2, 3)), c1 = vertex, c2 = iteration, c3 = purpose << 24;
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
    #pragma unroll
    for (int round = 0; round < 7; ++round) {
        const ulong4 p0 = (c0 & 0xFFFFFFFFul) * 0xD2511F53ul, p1 = (c2 & 0xFFFFFFFFul) * 0xCD9E8D57ul;
        c0 = (p1 >> 32) ^ c1 ^ k0;
        c1 = p1;
        c2 = (p0 >> 32) ^ c3 ^ k1;
        c3 = p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    const uint8 a = as_uint8((c0 & 0xFFFFFFFFul) | c2 << 32), b = as_uint8((c1 & 0xFFFFFFFFul) | c3 << 32);
    *u1 = (convert_float8(a >> 9) + REAL(0.5)) * REAL(1.1920928955078125e-07);
    *u2 = (convert_float8(b >> 9) + REAL(0.5)) * REAL(1.1920928955078125e-07);
}

typedef realv realx;
typedef int8 maskx;
typedef uint8 wordx;

#define AND &
#define OR |
#define ANY(mask) any_x(mask)

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
/* Whether a mask has a lane set, by halves: of any() PoCL makes shuffles and a branch for every lane. */
static inline int any_x(maskx mask)
{
    const ulong4 a4 = as_ulong4(mask);
    const ulong2 a2 = a4.lo | a4.hi;
    const ulong a1 = a2.lo | a2.hi;
    return a1 != 0ul;
}

/* log(k!) - k log(k) + k by Stirling's series; exact to 1e-3 at k = 1 and to rounding from k = 8 on. */
FUNCTION realx stirling(realx k)
{
    return REAL(0.5) * log_x(REAL(6.283185307179586) * k)
        + (REAL(0.08333333333333333) - REAL(0.002777777777777778) / (k * k)) / k;
}

/* Poisson(rate) where todo is set: inversion of u below 10, else PTRS (Hoermann 1993) with the log ratio in its
   deviation form. */
FUNCTION realx poisson(realx rate, realx u, maskx todo, u64 seed, wordx k, u32 vertex, u32 iteration)
{
    const maskx low = rate < REAL(10.0);
    realx n = (realx)(REAL(0.0));
    realx p = exp_x(-rate), s = p;
    maskx going = todo AND low AND (u > s);
    /* All lanes that go on have the same n, so that one quotient serves them; a few steps for each look at them. */
    for (u32 first = 1u; ANY(going); first += 4u) {
        n += (going ? (realx)(REAL(1.0)) : (realx)(REAL(0.0)));
        p *= rate * (REAL(1.0) / (real)(first + 0u));
        s += p;
        going = going & (u > s) & (p > REAL(1e-9));
        n += (going ? (realx)(REAL(1.0)) : (realx)(REAL(0.0)));
        p *= rate * (REAL(1.0) / (real)(first + 1u));
        s += p;
        going = going & (u > s) & (p > REAL(1e-9));
        n += (going ? (realx)(REAL(1.0)) : (realx)(REAL(0.0)));
        p *= rate * (REAL(1.0) / (real)(first + 2u));
        s += p;
        going = going & (u > s) & (p > REAL(1e-9));
        n += (going ? (realx)(REAL(1.0)) : (realx)(REAL(0.0)));
        p *= rate * (REAL(1.0) / (real)(first + 3u));
        s += p;
        going = going & (u > s) & (p > REAL(1e-9));
    }
    maskx pending = todo AND !low;
    if (!ANY(pending)) return n;

    n = (pending ? floor(rate + REAL(0.5)) : n);
    const realx b = REAL(0.931) + REAL(2.53) * sqrt(rate);
    const realx a = REAL(-0.059) + REAL(0.02483) * b;
    const realx inverse_alpha = REAL(1.1239) + REAL(1.1328) / (b - REAL(3.4));
    const realx vr = REAL(0.9277) - REAL(3.6224) / (b - REAL(2.0));
    for (u32 draw = 0; draw < MAX_DRAWS && ANY(pending); ++draw) {
        const wordsx r = philox_x(seed, k, vertex, iteration, (PURPOSE_PHI_POISSON << 24) + draw);
        const realx t = unit_x(r.w[0]) - REAL(0.5), v = unit_x(r.w[1]);
        const realx us = REAL(0.5) - fabs(t);
        const realx value = floor((REAL(2.0) * a / us + b) * t + rate + REAL(0.43));
        maskx taken = pending AND (us >= REAL(0.07)) AND (v <= vr);
        const maskx open = pending AND !taken AND (value >= REAL(0.0)) AND !((us < REAL(0.013)) AND (v > us));
        if (ANY(open)) {
            /* n log(rate/n) + n - rate, without the cancellation of its terms */
            const realx left = log_x(v * inverse_alpha / (a / (us * us) + b));
            const realx least = larger(value, (realx)(REAL(1.0)));
            const realx x = (rate - least) / least;
            const realx right = least * (log1p_x(x) - x) - stirling(least);
            taken = taken OR (open AND (left <= (value > REAL(0.0) ? right : -rate)));
        }
        n = (taken ? value : n);
        pending = pending AND !taken;
    }
    return n;
}

/* Gamma(shape, 1) where todo is set: Marsaglia and Tsang (2000) from shape 1 on; below, GS of Ahrens and Dieter (1974)
   in logarithms, whose first attempt takes the uniforms u and v. */
FUNCTION realx gamma(
    realx shape, realx u, realx v, maskx todo, u64 seed, wordx k, u32 vertex, u32 iteration)
{
    realx g = shape;
    maskx pending = todo AND (shape < REAL(1.0));
    if (ANY(pending)) {
        const realx b = REAL(1.0) + shape * REAL(INVERSE_E);
        const realx log_b = log1p_x(shape * REAL(INVERSE_E));
        for (u32 draw = 0; draw < MAX_DRAWS && ANY(pending); ++draw) {
            if (draw > 0) {
                const wordsx r = philox_x(seed, k, vertex, iteration, (PURPOSE_PHI_GAMMA << 24) + draw);
                v = unit_x(r.w[0]);
                u = unit_x(r.w[1]);
            }
            const realx log_p = log_b + log_x(u);
            const maskx body = log_p <= REAL(0.0);
            realx x = exp_x(larger(log_p / shape, (realx)(REAL(-80.0))));
            maskx taken = pending AND body AND (v <= exp_x(-x));
            const maskx tail = pending AND !body;
            if (ANY(tail)) {
                const realx far = -log_x(b * (REAL(1.0) - u) / shape);
                taken = taken OR (tail AND (log_x(v) <= (shape - REAL(1.0)) * log_x(far)));
                x = (tail ? far : x);
            }
            g = (taken ? x : g);
            pending = pending AND !taken;
        }
    }
    pending = todo AND (shape >= REAL(1.0));
    if (!ANY(pending)) return g;

    const realx dd = shape - REAL(0.3333333333333333);
    const realx cc = REAL(1.0) / sqrt(REAL(9.0) * dd);
    g = (pending ? dd : g);
    for (u32 draw = 0; draw < MAX_DRAWS && ANY(pending); ++draw) {
        const wordsx r = philox_x(seed, k, vertex, iteration, (PURPOSE_PHI_GAMMA << 24) + draw);
        const realx z = sqrt(REAL(-2.0) * log_x(unit_x(r.w[0]))) * cos_turns_x(unit_x(r.w[1]));
        const realx cz = cc * z, u2 = unit_x(r.w[2]);
        const realx w = cz * (REAL(3.0) + cz * (REAL(3.0) + cz));
        /* 1 + w = (1 + cz)^3, which rounding may take below 0.
           The first test of u2 implies the second, and settles nearly all. */
        const maskx good = pending AND (w > REAL(-1.0));
        maskx taken = good AND (u2 < REAL(1.0) - REAL(0.0331) * z * z * z * z);
        const maskx open = good AND !taken;
        if (ANY(open))
            taken = taken OR (open AND (log_x(u2) < REAL(0.5) * z * z + dd * (log1p_x(w) - w)));
        g = (taken ? dd * (REAL(1.0) + w) : g);
        pending = pending AND !taken;
    }
    return g;
}

/* Both, for coordinates that the quick way does not settle; not inlined, since few coordinates come here.
   Where n is 0, u1 is uniform below exp(-rate), so that u1 exp(rate) is one more uniform. */
static __attribute__((noinline)) realx poisson_gamma(
    realx rate, real alpha, realx u1, realx u2, maskx todo, u64 seed, wordx k, u32 vertex, u32 iteration)
{
    const realx n = poisson(rate, u1, todo, seed, k, vertex, iteration);
    const realx rest = u1 * exp_x(smaller(rate, (realx)(REAL(10.0))));
    return gamma(alpha + n, u2, (n > REAL(0.0) ? u1 : rest), todo, seed, k, vertex, iteration);
}

typedef struct {
    real half_step, decay, spread; /* eps/2, exp(-eps/2), 1 - exp(-eps/2) */
    real alpha, log_b, sum;        /* concentration of the prior; log(1 + alpha / e); sum of the row's phi */
    u64 seed;
    u32 vertex, iteration;
} row_end;

/* Coordinates of this work-item that wait for a draw; drawn side by side when the row has been gone through. */
typedef struct {
    u32 count;
    u32 k[QUEUE];
    real rate[QUEUE], u1[QUEUE], u2[QUEUE]; /* rate: in the end the new phi */
    /* The last vectors, looked through a few at a time: a branch for each would wait for its draws. */
    u32 held, first[HOLDS];
    maskx held_todo[HOLDS];
    realx held_rate[HOLDS], held_u1[HOLDS], held_u2[HOLDS];
} draw_queue;

static inline void queue_held(draw_queue* queue)
{
    u32 places[128], n = 0u;
    for (u32 i = 0; i < queue->held; ++i) {
        if (!ANY(queue->held_todo[i])) continue;
        for (u32 l = 0; l < X; ++l) { /* every lane writes, those that wait move on */
            places[n] = X * i + l;
            n -= ((int*)&queue->held_todo[i])[l];
        }
    }
    u32 c = queue->count;
    for (u32 j = 0; j < n; ++j, ++c) {
        const u32 place = places[j];
        queue->k[c] = queue->first[place / X] + place % X;
        queue->rate[c] = ((real*)queue->held_rate)[place];
        queue->u1[c] = ((real*)queue->held_u1)[place];
        queue->u2[c] = ((real*)queue->held_u2)[place];
    }
    queue->count = c;
    queue->held = 0u;
}

/*
 * The exact flow of phi' = phi D/S over eps/2, then the exact Cox-Ingersoll-Ross transition of the prior: n from
 * Poisson(phi decay / spread), phi' from spread Gamma(alpha + n). Most coordinates of a sparse row have n = 0; they
 * are done on the spot, the others are queued. With n = 0 the draw is x = (b u2)^(1/alpha), b = 1 + alpha/e, accepted
 * with chance exp(-x) (Ahrens and Dieter's GS); and n = 0 has chance exp(-rate): one uniform decides on both.
 */
FUNCTION realx next_phi(
    realx pi_k, realx drift, realx u1, realx u2, u32 k, row_end e, clip_count* clips, draw_queue* queue)
{
    const realx phi = pi_k * e.sum;
    const realx flow = drift * (e.half_step / e.sum);
    const realx bounded = smaller(larger(flow, (realx)(REAL(-CLIP))), (realx)(REAL(CLIP)));
    #if X == 1
    *clips += flow != bounded;
    #elif LANEWISE
    *clips -= flow != bounded; /* a lane that is set is -1 */
    #else
    if (any(flow != bounded)) {
        const realx one = (flow != bounded ? (realx)(REAL(1.0)) : (realx)(REAL(0.0)));
        *clips += (u32)v_sum(one);
    }
    #endif
    const realx moved = phi * exp_x(bounded);
    const realx rate = moved * (e.decay / e.spread);
    const realx log_p = log_x(u2) + e.log_b;
    realx x = exp_x(larger(log_p * (REAL(1.0) / e.alpha), (realx)(REAL(-80.0))));
    /* From rate 10 on n has words of its own, so that u1 says nothing about it. */
    const maskx settled = (u1 <= exp_x(-(rate + x))) AND (log_p <= REAL(0.0)) AND (rate < REAL(10.0));
    const wordx ks = k + (wordx)(0, 1, 2, 3, 4, 5, 6, 7);
    maskx todo = !settled OR ((realx)(e.alpha) >= REAL(1.0));
    todo = todo AND (ks < K);
    #if QUEUE && X == 1
    if (todo) {
        const u32 c = queue->count++;
        queue->k[c] = k;
        queue->rate[c] = rate;
        queue->u1[c] = u1;
        queue->u2[c] = u2;
        return REAL(0.0);
    }
    #elif QUEUE
    const u32 h = queue->held++;
    queue->first[h] = k;
    queue->held_todo[h] = todo;
    queue->held_rate[h] = rate;
    queue->held_u1[h] = u1;
    queue->held_u2[h] = u2;
    if (h == (HOLDS - 1u)) queue_held(queue);
    return todo ? (realx)(REAL(0.0)) : larger(x * e.spread, (realx)(REAL(FLOOR_VALUE)));
    #else
    if (ANY(todo)) {
        const realx drawn = poisson_gamma(rate, e.alpha, u1, u2, todo, e.seed, ks, e.vertex, e.iteration);
        x = (todo ? drawn : x);
    }
    #endif
    const realx next = x * e.spread;
    return larger(next, (realx)(REAL(FLOOR_VALUE)));
}

/* Draws what waits; the sum of the new phi. */
static inline real draw_queued(draw_queue* queue, row_end e)
{
    #if X > 1
    queue_held(queue);
    #endif
    realx sum = (realx)(REAL(0.0));
    for (u32 i = 0; i < queue->count; i += X) {
        const wordx place = i + (wordx)(0, 1, 2, 3, 4, 5, 6, 7);
        const maskx todo = (place < queue->count);
        const wordx k = vload8(0, queue->k + i);
        const realx rate = vload8(0, queue->rate + i), u1 = vload8(0, queue->u1 + i), u2 = vload8(0, queue->u2 + i);
        const realx x = poisson_gamma(rate, e.alpha, u1, u2, todo, e.seed, k, e.vertex, e.iteration);
        const realx next = larger(x * e.spread, (realx)(REAL(FLOOR_VALUE)));
        vstore8(next, 0, queue->rate + i);
        sum += (todo ? next : (realx)(REAL(0.0)));
    }
    return v_sum(sum);
}

/* One vector of a row. */
static inline realv next_row(
    realv pi_k, realv drift, u32 k, row_end e, clip_count* clips, draw_queue* queue)
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
    uniforms(e.seed, k, e.vertex, e.iteration, PURPOSE_PHI_UNIFORM, &u1, &u2);
    realv next = next_phi(pi_k, drift, u1, u2, k, e, clips, queue);
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
    realv w[CHUNKS];
    realv acc[CHUNKS];
    const u32 lane = 0u;
    const u32 index = (uint)get_global_id(0);
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
    for (u32 j = 0, turn = 0; j < n; j += ROWS, turn ^= 1u) {
        const real weight0 = weights[first + j];
        GLOBAL const rowv* row0 = (GLOBAL const rowv*)(pi + (u64)slot0 * LD);
        slot0 = slots[partners[first + (j + 1u < n ? j + 1u : n - 1u)]]; /* of the next turn */
        realv dots0 = v_splat(REAL(0.0));

        /* dot = sum_k pi_ak (beta_k - delta) pi_bk */
        for (u32 i = 0, v = lane; v < ROW_VECTORS; ++i, v += T) {
            dots0 = fma(OWN(i), ROW(0, i), dots0);
        }
        real dot0 = v_sum(dots0);
        const real z0 = weight0 < REAL(0.0) ? NON_LINK(dot0) : delta + dot0;
        const real scale0 = weight0 / fmax(z0, REAL(Z_FLOOR));
        taken += scale0 * dot0;

        /* acc_k = sum over the rows of scale pi_bk */
        for (u32 i = 0, v = lane; v < ROW_VECTORS; ++i, v += T) {
            ACC(i) = fma(v_splat(scale0), ROW(0, i), ACC(i));
        }
    }
    /* D_k = (beta_k - delta) acc_k - taken; the row ends with one step a coordinate. */
    const real sum = row_sums[own_slot];
    const row_end end = {half_step, decay, spread, alpha, log1p(alpha * REAL(INVERSE_E)), sum, seed, vertex, iteration};
    realv totals = v_splat(REAL(0.0));
    clip_count clips = NO_CLIPS;
    draw_queue queue;
    queue.count = 0u;
    #if X > 1
    queue.held = 0u;
    #endif
    for (u32 i = 0, v = lane; v < ROW_VECTORS; ++i, v += T) {
        const realv drift = (strength[v] - v_splat(delta)) * ACC(i) - v_splat(taken);
        const realv next = next_row(LOAD(own, v), drift, v * W, end, &clips, &queue);
        #if NORMALISE
        totals = totals + next;
        ACC(i) = next;
        #else
        out[v] = next;
        #endif
    }
    const real late = draw_queued(&queue, end);
    #if !NORMALISE
    for (u32 i = 0; i < queue.count; ++i) ((GLOBAL real*)out)[queue.k[i]] = queue.rate[i];
    #endif
    real clipped = CLIPS(clips);
    if (lane == 0u) clip_counts[index] += (u32)clipped;
    real total = v_sum(totals) + late;
    const real scale = REAL(1.0) / total;
    for (u32 i = 0, v = lane; v < ROW_VECTORS; ++i, v += T) {
        STORE(out, v, ACC(i) * v_splat(scale));
    }
    #if QUEUE
    for (u32 i = 0; i < queue.count; ++i) STORE_ONE(out, queue.k[i], queue.rate[i] * scale);
    #endif
    if (lane == 0u) row_sums[spare] = total;
}
