/*
 * update_phi: K=100 N=317080 dtype=float32 m=4096 n=32 noise=on step=split
 * configuration: block_size=1 normalise=True placement=THREAD prefetch=0 reduction=none rows_in_flight=1
 *     team=item vector_width=8
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

typedef struct { u32 w[4]; } words4;

static inline words4 philox(u64 seed, u32 c0, u32 c1, u32 c2, u32 c3)
{
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
    for (int round = 0; round < 7; ++round) {
        const u32 h0 = mul_hi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
        const u32 h1 = mul_hi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
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
static inline real unit(u32 word)
{
    return ((real)(word >> 9) + 0.5f) * 1.1920929e-07f;
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
    return (convert_float8(word >> 9) + 0.5f) * 1.1920929e-07f;
}

/* The two uniforms of each of the coordinates k, k + 1, ... of one vector; k is a multiple of its width. */
static inline void uniforms(
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
    *u1 = (convert_float8(a >> 9) + 0.5f) * 1.1920929e-07f;
    *u2 = (convert_float8(b >> 9) + 0.5f) * 1.1920929e-07f;
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

/* Whether a mask has a lane set, by halves: of any() PoCL makes shuffles and a branch for every lane. */
static inline int any_x(maskx mask)
{
    const ulong4 a4 = as_ulong4(mask);
    const ulong2 a2 = a4.lo | a4.hi;
    const ulong a1 = a2.lo | a2.hi;
    return a1 != 0ul;
}

/* log(k!) - k log(k) + k by Stirling's series; exact to 1e-3 at k = 1 and to rounding from k = 8 on. */
static inline realx stirling(realx k)
{
    return 0.5f * log_x(6.2831855f * k)
        + (0.083333336f - 0.0027777778f / (k * k)) / k;
}

/* Poisson(rate) where todo is set: inversion of u below 10, else PTRS (Hoermann 1993) with the log ratio in its
   deviation form. */
static inline realx poisson(realx rate, realx u, maskx todo, u64 seed, wordx k, u32 vertex, u32 iteration)
{
    const maskx low = rate < 10.0f;
    realx n = (realx)(0.0f);
    realx p = exp_x(-rate), s = p;
    maskx going = todo & low & (u > s);
    /* All lanes that go on have the same n, so that one quotient serves them; a few steps for each look at them. */
    for (u32 first = 1u; any_x(going); first += 4u) {
        n += (going ? (realx)(1.0f) : (realx)(0.0f));
        p *= rate * (1.0f / (real)(first + 0u));
        s += p;
        going = going & (u > s) & (p > 1e-09f);
        n += (going ? (realx)(1.0f) : (realx)(0.0f));
        p *= rate * (1.0f / (real)(first + 1u));
        s += p;
        going = going & (u > s) & (p > 1e-09f);
        n += (going ? (realx)(1.0f) : (realx)(0.0f));
        p *= rate * (1.0f / (real)(first + 2u));
        s += p;
        going = going & (u > s) & (p > 1e-09f);
        n += (going ? (realx)(1.0f) : (realx)(0.0f));
        p *= rate * (1.0f / (real)(first + 3u));
        s += p;
        going = going & (u > s) & (p > 1e-09f);
    }
    maskx pending = todo & !low;
    if (!any_x(pending)) return n;

    n = (pending ? floor(rate + 0.5f) : n);
    const realx b = 0.931f + 2.53f * sqrt(rate);
    const realx a = -0.059f + 0.02483f * b;
    const realx inverse_alpha = 1.1239f + 1.1328f / (b - 3.4f);
    const realx vr = 0.9277f - 3.6224f / (b - 2.0f);
    for (u32 draw = 0; draw < 64u && any_x(pending); ++draw) {
        const wordsx r = philox_x(seed, k, vertex, iteration, (6u << 24) + draw);
        const realx t = unit_x(r.w[0]) - 0.5f, v = unit_x(r.w[1]);
        const realx us = 0.5f - fabs(t);
        const realx value = floor((2.0f * a / us + b) * t + rate + 0.43f);
        maskx taken = pending & (us >= 0.07f) & (v <= vr);
        const maskx open = pending & !taken & (value >= 0.0f) & !((us < 0.013f) & (v > us));
        if (any_x(open)) {
            /* n log(rate/n) + n - rate, without the cancellation of its terms */
            const realx left = log_x(v * inverse_alpha / (a / (us * us) + b));
            const realx least = larger(value, (realx)(1.0f));
            const realx x = (rate - least) / least;
            const realx right = least * (log1p_x(x) - x) - stirling(least);
            taken = taken | (open & (left <= (value > 0.0f ? right : -rate)));
        }
        n = (taken ? value : n);
        pending = pending & !taken;
    }
    return n;
}

/* Gamma(shape, 1) where todo is set: Marsaglia and Tsang (2000) from shape 1 on; below, GS of Ahrens and Dieter (1974)
   in logarithms, whose first attempt takes the uniforms u and v. */
static inline realx gamma(
    realx shape, realx u, realx v, maskx todo, u64 seed, wordx k, u32 vertex, u32 iteration)
{
    realx g = shape;
    maskx pending = todo & (shape < 1.0f);
    if (any_x(pending)) {
        const realx b = 1.0f + shape * 0.36787945f;
        const realx log_b = log1p_x(shape * 0.36787945f);
        for (u32 draw = 0; draw < 64u && any_x(pending); ++draw) {
            if (draw > 0) {
                const wordsx r = philox_x(seed, k, vertex, iteration, (7u << 24) + draw);
                v = unit_x(r.w[0]);
                u = unit_x(r.w[1]);
            }
            const realx log_p = log_b + log_x(u);
            const maskx body = log_p <= 0.0f;
            realx x = exp_x(larger(log_p / shape, (realx)(-80.0f)));
            maskx taken = pending & body & (v <= exp_x(-x));
            const maskx tail = pending & !body;
            if (any_x(tail)) {
                const realx far = -log_x(b * (1.0f - u) / shape);
                taken = taken | (tail & (log_x(v) <= (shape - 1.0f) * log_x(far)));
                x = (tail ? far : x);
            }
            g = (taken ? x : g);
            pending = pending & !taken;
        }
    }
    pending = todo & (shape >= 1.0f);
    if (!any_x(pending)) return g;

    const realx dd = shape - 0.33333334f;
    const realx cc = 1.0f / sqrt(9.0f * dd);
    g = (pending ? dd : g);
    for (u32 draw = 0; draw < 64u && any_x(pending); ++draw) {
        const wordsx r = philox_x(seed, k, vertex, iteration, (7u << 24) + draw);
        const realx z = sqrt(-2.0f * log_x(unit_x(r.w[0]))) * cos_turns_x(unit_x(r.w[1]));
        const realx cz = cc * z, u2 = unit_x(r.w[2]);
        const realx w = cz * (3.0f + cz * (3.0f + cz));
        /* 1 + w = (1 + cz)^3, which rounding may take below 0.
           The first test of u2 implies the second, and settles nearly all. */
        const maskx good = pending & (w > -1.0f);
        maskx taken = good & (u2 < 1.0f - 0.0331f * z * z * z * z);
        const maskx open = good & !taken;
        if (any_x(open))
            taken = taken | (open & (log_x(u2) < 0.5f * z * z + dd * (log1p_x(w) - w)));
        g = (taken ? dd * (1.0f + w) : g);
        pending = pending & !taken;
    }
    return g;
}

/* Both, for coordinates that the quick way does not settle; not inlined, since few coordinates come here.
   Where n is 0, u1 is uniform below exp(-rate), so that u1 exp(rate) is one more uniform. */
static __attribute__((noinline)) realx poisson_gamma(
    realx rate, real alpha, realx u1, realx u2, maskx todo, u64 seed, wordx k, u32 vertex, u32 iteration)
{
    const realx n = poisson(rate, u1, todo, seed, k, vertex, iteration);
    const realx rest = u1 * exp_x(smaller(rate, (realx)(10.0f)));
    return gamma(alpha + n, u2, (n > 0.0f ? u1 : rest), todo, seed, k, vertex, iteration);
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
    u32 k[112];
    real rate[112], u1[112], u2[112]; /* rate: in the end the new phi */
    /* The last vectors, looked through a few at a time: a branch for each would wait for its draws. */
    u32 held, first[16];
    maskx held_todo[16];
    realx held_rate[16], held_u1[16], held_u2[16];
} draw_queue;

static inline void queue_held(draw_queue* queue)
{
    u32 places[128], n = 0u;
    for (u32 i = 0; i < queue->held; ++i) {
        if (!any_x(queue->held_todo[i])) continue;
        for (u32 l = 0; l < 8u; ++l) { /* every lane writes, those that wait move on */
            places[n] = 8u * i + l;
            n -= ((int*)&queue->held_todo[i])[l];
        }
    }
    u32 c = queue->count;
    for (u32 j = 0; j < n; ++j, ++c) {
        const u32 place = places[j];
        queue->k[c] = queue->first[place / 8u] + place % 8u;
        queue->rate[c] = ((float*)queue->held_rate)[place];
        queue->u1[c] = ((float*)queue->held_u1)[place];
        queue->u2[c] = ((float*)queue->held_u2)[place];
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
static inline realx next_phi(
    realx pi_k, realx drift, realx u1, realx u2, u32 k, row_end e, maskx* clips, draw_queue* queue)
{
    const realx phi = pi_k * e.sum;
    const realx flow = drift * (e.half_step / e.sum);
    const realx bounded = smaller(larger(flow, (realx)(-3.0f)), (realx)(3.0f));
    *clips -= flow != bounded; /* a lane that is set is -1 */
    const realx moved = phi * exp_x(bounded);
    const realx rate = moved * (e.decay / e.spread);
    const realx log_p = log_x(u2) + e.log_b;
    realx x = exp_x(larger(log_p * (1.0f / e.alpha), (realx)(-80.0f)));
    /* From rate 10 on n has words of its own, so that u1 says nothing about it. */
    const maskx settled = (u1 <= exp_x(-(rate + x))) & (log_p <= 0.0f) & (rate < 10.0f);
    const wordx ks = k + (wordx)(0, 1, 2, 3, 4, 5, 6, 7);
    maskx todo = !settled | ((realx)(e.alpha) >= 1.0f);
    todo = todo & (ks < 100u);
    const u32 h = queue->held++;
    queue->first[h] = k;
    queue->held_todo[h] = todo;
    queue->held_rate[h] = rate;
    queue->held_u1[h] = u1;
    queue->held_u2[h] = u2;
    if (h == 15u) queue_held(queue);
    return todo ? (realx)(0.0f) : larger(x * e.spread, (realx)(1e-20f));
    const realx next = x * e.spread;
    return larger(next, (realx)(1e-20f));
}

/* Draws what waits; the sum of the new phi. */
static inline real draw_queued(draw_queue* queue, row_end e)
{
    queue_held(queue);
    realx sum = (realx)(0.0f);
    for (u32 i = 0; i < queue->count; i += 8u) {
        const wordx place = i + (wordx)(0, 1, 2, 3, 4, 5, 6, 7);
        const maskx todo = (place < queue->count);
        const wordx k = vload8(0, queue->k + i);
        const realx rate = vload8(0, queue->rate + i), u1 = vload8(0, queue->u1 + i), u2 = vload8(0, queue->u2 + i);
        const realx x = poisson_gamma(rate, e.alpha, u1, u2, todo, e.seed, k, e.vertex, e.iteration);
        const realx next = larger(x * e.spread, (realx)(1e-20f));
        vstore8(next, 0, queue->rate + i);
        sum += (todo ? next : (realx)(0.0f));
    }
    return v_sum(sum);
}

/* One vector of a row. */
static inline realv next_row(
    realv pi_k, realv drift, u32 k, row_end e, maskx* clips, draw_queue* queue)
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
    uniforms(e.seed, k, e.vertex, e.iteration, 5u, &u1, &u2);
    realv next = next_phi(pi_k, drift, u1, u2, k, e, clips, queue);
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
    realv w[14];
    realv acc[14];
    const u32 lane = 0u;
    const u32 index = (uint)get_group_id(0);
    if (index >= n_vertices) return;

    const u32 vertex = vertices[first_vertex + index];
    const u32 own_slot = slots[vertex];
    __global const realv* own = (__global const realv*)(pi + (u64)own_slot * 112u);
    __global const realv* strength = (__global const realv*)beta;
    const u32 spare = spares[index];
    __global realv* out = (__global realv*)(pi + (u64)spare * 112u);
    for (u32 i = 0, v = lane; v < 14u; ++i, v += 1u) {
        w[i] = own[v] * (strength[v] - v_splat(delta));
    }
    for (u32 i = 0, v = lane; v < 14u; ++i, v += 1u) {
        acc[i] = v_splat(0.0f);
    }

    const u64 first = (u64)(first_vertex + index) * n_partners;
    const u32 n = n_partners;
    real taken = 0.0f; /* sum over partners of scale dot */
    u32 slot0 = n > 0u ? slots[partners[first + (0u)]] : own_slot;
    for (u32 j = 0, turn = 0; j < n; j += 1u, turn ^= 1u) {
        const real weight0 = weights[first + j];
        __global const realv* row0 = (__global const realv*)(pi + (u64)slot0 * 112u);
        slot0 = slots[partners[first + (j + 1u < n ? j + 1u : n - 1u)]]; /* of the next turn: one look-up ahead */
        realv dots0 = v_splat(0.0f);

        /* dot = sum_k pi_ak (beta_k - delta) pi_bk */
        for (u32 i = 0, v = lane; v < 14u; ++i, v += 1u) {
            dots0 = fma(w[i], row0[v], dots0);
        }
        real dot0 = v_sum(dots0);
        const real z0 = weight0 < 0.0f ? (1.0f - delta) - dot0 : delta + dot0;
        const real scale0 = weight0 / fmax(z0, 1e-12f);
        taken += scale0 * dot0;

        /* acc_k = sum over partners of scale pi_bk */
        for (u32 i = 0, v = lane; v < 14u; ++i, v += 1u) {
            acc[i] = fma(v_splat(scale0), row0[v], acc[i]);
        }
    }

    /* D_k = (beta_k - delta) acc_k - taken; the row ends with one step a coordinate. */
    const real sum = row_sums[own_slot];
    const row_end end = {half_step, decay, spread, alpha, log1p(alpha * 0.36787945f), sum, seed, vertex, iteration};
    realv totals = v_splat(0.0f);
    maskx clips = (maskx)(0);
    draw_queue queue;
    queue.count = 0u;
    queue.held = 0u;
    for (u32 i = 0, v = lane; v < 14u; ++i, v += 1u) {
        const realv drift = (strength[v] - v_splat(delta)) * acc[i] - v_splat(taken);
        const realv next = next_row(own[v], drift, v * 8u, end, &clips, &queue);
        totals = totals + next;
        acc[i] = next;
    }
    const real late = draw_queued(&queue, end);
    real clipped = v_sum(convert_float8(clips));
    if (lane == 0u) clip_counts[index] += (u32)clipped;
    real total = v_sum(totals) + late;
    const real scale = 1.0f / total;
    for (u32 i = 0, v = lane; v < 14u; ++i, v += 1u) {
        out[v] = acc[i] * v_splat(scale);
    }
    for (u32 i = 0; i < queue.count; ++i) ((__global real*)out)[queue.k[i]] = queue.rate[i] * scale;
    if (lane == 0u) row_sums[spare] = total;
}
