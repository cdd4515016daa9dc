/*
 * update_phi: K=1024 N=317080 dtype=float32 m=4096 n=32 noise=on step=split
 * configuration: block_size=64 normalise=True placement=RRS prefetch=0 reduction=shuffle rows_in_flight=1
 *     team=block vector_width=4
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
    {
        const words4 r = philox(seed, (k >> 1) + 0u, vertex, iteration, purpose << 24);
        (*u1).s[0] = unit(r.w[0]); (*u2).s[0] = unit(r.w[1]);
        (*u1).s[1] = unit(r.w[2]); (*u2).s[1] = unit(r.w[3]);
    }
    {
        const words4 r = philox(seed, (k >> 1) + 1u, vertex, iteration, purpose << 24);
        (*u1).s[2] = unit(r.w[0]); (*u2).s[2] = unit(r.w[1]);
        (*u1).s[3] = unit(r.w[2]); (*u2).s[3] = unit(r.w[3]);
    }
}

typedef real realx;
typedef bool maskx;
typedef u32 wordx;

/* fmin and fmax without their care for NaN: a comparison and a choice, on every driver. */
static __device__ __forceinline__ realx smaller(realx x, realx y) { return x < y ? x : y; }
static __device__ __forceinline__ realx larger(realx x, realx y) { return x > y ? x : y; }

static __device__ __forceinline__ real exp_1(real x) { return exp(x); }
static __device__ __forceinline__ real log_1(real x) { return log(x); }
static __device__ __forceinline__ real log1p_1(real x) { return log1p(x); }
static __device__ __forceinline__ real cos_turns_1(real x) { return cospif(2.0f * x); }

/* log(k!) - k log(k) + k by Stirling's series; exact to 1e-3 at k = 1 and to rounding from k = 8 on. */
static __device__ __forceinline__ realx stirling(realx k)
{
    return 0.5f * log_1(6.2831855f * k)
        + (0.083333336f - 0.0027777778f / (k * k)) / k;
}

/* Poisson(rate) where todo is set: inversion of u below 10, else PTRS (Hoermann 1993) with the log ratio in its
   deviation form. */
static __device__ __forceinline__ realx poisson(realx rate, realx u, maskx todo, u64 seed, wordx k, u32 vertex, u32 iteration)
{
    const maskx low = rate < 10.0f;
    realx n = (realx)(0.0f);
    realx p = exp_1(-rate), s = p;
    maskx going = todo && low && (u > s);
    while (going) {
        n += (going ? (realx)(1.0f) : (realx)(0.0f));
        p *= (going ? rate / n : (realx)(1.0f));
        s += (going ? p : (realx)(0.0f));
        going = going && (u > s) && (p > 1e-09f); /* a sum of rounded terms may end below the largest u */
    }
    maskx pending = todo && !low;
    if (!pending) return n;

    n = (pending ? floor(rate + 0.5f) : n);
    const realx b = 0.931f + 2.53f * sqrt(rate);
    const realx a = -0.059f + 0.02483f * b;
    const realx inverse_alpha = 1.1239f + 1.1328f / (b - 3.4f);
    const realx vr = 0.9277f - 3.6224f / (b - 2.0f);
    for (u32 draw = 0; draw < 64u && pending; ++draw) {
        const wordsx r = philox_1(seed, k, vertex, iteration, (6u << 24) + draw);
        const realx t = unit_1(r.w[0]) - 0.5f, v = unit_1(r.w[1]);
        const realx us = 0.5f - fabs(t);
        const realx value = floor((2.0f * a / us + b) * t + rate + 0.43f);
        maskx taken = pending && (us >= 0.07f) && (v <= vr);
        const maskx open = pending && !taken && (value >= 0.0f) && !((us < 0.013f) && (v > us));
        if (open) {
            /* n log(rate/n) + n - rate, without the cancellation of its terms */
            const realx left = log_1(v * inverse_alpha / (a / (us * us) + b));
            const realx least = larger(value, (realx)(1.0f));
            const realx x = (rate - least) / least;
            const realx right = least * (log1p_1(x) - x) - stirling(least);
            taken = taken || (open && (left <= (value > 0.0f ? right : -rate)));
        }
        n = (taken ? value : n);
        pending = pending && !taken;
    }
    return n;
}

/* Gamma(shape, 1) where todo is set: Marsaglia and Tsang (2000) from shape 1 on; below, GS of Ahrens and Dieter (1974)
   in logarithms, whose first attempt takes the uniforms u and v. */
static __device__ __forceinline__ realx gamma(
    realx shape, realx u, realx v, maskx todo, u64 seed, wordx k, u32 vertex, u32 iteration)
{
    realx g = shape;
    maskx pending = todo && (shape < 1.0f);
    if (pending) {
        const realx b = 1.0f + shape * 0.36787945f;
        const realx log_b = log1p_1(shape * 0.36787945f);
        for (u32 draw = 0; draw < 64u && pending; ++draw) {
            if (draw > 0) {
                const wordsx r = philox_1(seed, k, vertex, iteration, (7u << 24) + draw);
                v = unit_1(r.w[0]);
                u = unit_1(r.w[1]);
            }
            const realx log_p = log_b + log_1(u);
            const maskx body = log_p <= 0.0f;
            realx x = exp_1(larger(log_p / shape, (realx)(-80.0f)));
            maskx taken = pending && body && (v <= exp_1(-x));
            const maskx tail = pending && !body;
            if (tail) {
                const realx far = -log_1(b * (1.0f - u) / shape);
                taken = taken || (tail && (log_1(v) <= (shape - 1.0f) * log_1(far)));
                x = (tail ? far : x);
            }
            g = (taken ? x : g);
            pending = pending && !taken;
        }
    }
    pending = todo && (shape >= 1.0f);
    if (!pending) return g;

    const realx dd = shape - 0.33333334f;
    const realx cc = 1.0f / sqrt(9.0f * dd);
    g = (pending ? dd : g);
    for (u32 draw = 0; draw < 64u && pending; ++draw) {
        const wordsx r = philox_1(seed, k, vertex, iteration, (7u << 24) + draw);
        const realx z = sqrt(-2.0f * log_1(unit_1(r.w[0]))) * cos_turns_1(unit_1(r.w[1]));
        const realx cz = cc * z, u2 = unit_1(r.w[2]);
        const realx w = cz * (3.0f + cz * (3.0f + cz));
        /* 1 + w = (1 + cz)^3, which rounding may take below 0.
           The first test of u2 implies the second, and settles nearly all. */
        const maskx good = pending && (w > -1.0f);
        maskx taken = good && (u2 < 1.0f - 0.0331f * z * z * z * z);
        const maskx open = good && !taken;
        if (open)
            taken = taken || (open && (log_1(u2) < 0.5f * z * z + dd * (log1p_1(w) - w)));
        g = (taken ? dd * (1.0f + w) : g);
        pending = pending && !taken;
    }
    return g;
}

/* Both, for coordinates that the quick way does not settle; not inlined, since few coordinates come here.
   Where n is 0, u1 is uniform below exp(-rate), so that u1 exp(rate) is one more uniform. */
static __device__ __forceinline__ realx poisson_gamma(
    realx rate, real alpha, realx u1, realx u2, maskx todo, u64 seed, wordx k, u32 vertex, u32 iteration)
{
    const realx n = poisson(rate, u1, todo, seed, k, vertex, iteration);
    const realx rest = u1 * exp_1(smaller(rate, (realx)(10.0f)));
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
    u32 k[16];
    real rate[16], u1[16], u2[16]; /* rate: in the end the new phi */
} draw_queue;

/*
 * The exact flow of phi' = phi D/S over eps/2, then the exact Cox-Ingersoll-Ross transition of the prior: n from
 * Poisson(phi decay / spread), phi' from spread Gamma(alpha + n). Most coordinates of a sparse row have n = 0; they
 * are done on the spot, the others are queued. With n = 0 the draw is x = (b u2)^(1/alpha), b = 1 + alpha/e, accepted
 * with chance exp(-x) (Ahrens and Dieter's GS); and n = 0 has chance exp(-rate): one uniform decides on both.
 */
static __device__ __forceinline__ realx next_phi(
    realx pi_k, realx drift, realx u1, realx u2, u32 k, row_end e, u32* clips, draw_queue* queue)
{
    const realx phi = pi_k * e.sum;
    const realx flow = drift * (e.half_step / e.sum);
    const realx bounded = smaller(larger(flow, (realx)(-3.0f)), (realx)(3.0f));
    *clips += flow != bounded;
    const realx moved = phi * exp_1(bounded);
    const realx rate = moved * (e.decay / e.spread);
    const realx log_p = log_1(u2) + e.log_b;
    realx x = exp_1(larger(log_p / e.alpha, (realx)(-80.0f)));
    /* From rate 10 on n has words of its own, so that u1 says nothing about it. */
    const maskx settled = (u1 <= exp_1(-(rate + x))) && (log_p <= 0.0f) && (rate < 10.0f);
    const wordx ks = k;
    maskx todo = !settled || ((realx)(e.alpha) >= 1.0f);
    if (todo) {
        const u32 c = queue->count++;
        queue->k[c] = k;
        queue->rate[c] = rate;
        queue->u1[c] = u1;
        queue->u2[c] = u2;
        return 0.0f;
    }
    const realx next = x * e.spread;
    return larger(next, (realx)(1e-20f));
}

/* Draws what waits; the sum of the new phi. */
static __device__ __noinline__ real draw_queued(draw_queue* queue, row_end e)
{
    realx sum = (realx)(0.0f);
    for (u32 i = 0; i < queue->count; i += 1u) {
        const u32 k = queue->k[i];
        const real u1 = queue->u1[i], u2 = queue->u2[i];
        const real x = poisson_gamma(queue->rate[i], e.alpha, u1, u2, 1, e.seed, k, e.vertex, e.iteration);
        queue->rate[i] = larger(x * e.spread, 1e-20f);
        sum += queue->rate[i];
    }
    return sum;
}

/* One vector of a row. */
static __device__ __forceinline__ realv next_row(
    realv pi_k, realv drift, u32 k, row_end e, u32* clips, draw_queue* queue)
{
    realv u1 = v_splat(0.5f), u2 = u1;
    uniforms(e.seed, k, e.vertex, e.iteration, 5u, &u1, &u2);
    realv next;
    next.s[0] = next_phi(pi_k.s[0], drift.s[0], u1.s[0], u2.s[0], k + 0u, e, clips, queue);
    next.s[1] = next_phi(pi_k.s[1], drift.s[1], u1.s[1], u2.s[1], k + 1u, e, clips, queue);
    next.s[2] = next_phi(pi_k.s[2], drift.s[2], u1.s[2], u2.s[2], k + 2u, e, clips, queue);
    next.s[3] = next_phi(pi_k.s[3], drift.s[3], u1.s[3], u2.s[3], k + 3u, e, clips, queue);
    return next;
}

extern "C" __global__ __launch_bounds__(64)
void update_phi(
    real* __restrict__ pi,                       /* [N + m, LD] rows by slot */
    real* __restrict__ row_sums,                 /* [N + m] sums of phi by slot */
    const u32* __restrict__ slots,               /* [N] slot of a vertex's row */
    const u32* __restrict__ spares,              /* [m] free slots; they receive the new rows */
    const real* __restrict__ beta,               /* [LD] community strengths */
    const u32* __restrict__ vertices,            /* [.., m] distinct vertices of the mini-batch, from first_vertex on */
    const u32* __restrict__ partners,            /* [.., m, n] partners of each */
    const real* __restrict__ weights,            /* [.., m, n] weight, negative for a non-link, 0 to ignore */
    u32* __restrict__ clip_counts,               /* [m] coordinates whose flow was bounded, added up */
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
    __shared__ real team_sums[2][1][2];
    __shared__ realv w_shared[256];
    realv probs0_0, probs0_1, probs0_2, probs0_3;
    realv acc_0, acc_1, acc_2, acc_3;
    const u32 lane = threadIdx.x;
    const u32 index = blockIdx.x;
    if (index >= n_vertices) return;

    const u32 vertex = vertices[first_vertex + index];
    const u32 own_slot = slots[vertex];
    const realv* own = (const realv*)(pi + (u64)own_slot * 1024u);
    const realv* strength = (const realv*)beta;
    const u32 spare = spares[index];
    realv* out = (realv*)(pi + (u64)spare * 1024u);
    {
        const u32 v = lane;
        w_shared[v] = own[v] * (strength[v] - v_splat(delta));
    }
    {
        const u32 v = lane + 64u;
        w_shared[v] = own[v] * (strength[v] - v_splat(delta));
    }
    {
        const u32 v = lane + 128u;
        w_shared[v] = own[v] * (strength[v] - v_splat(delta));
    }
    {
        const u32 v = lane + 192u;
        w_shared[v] = own[v] * (strength[v] - v_splat(delta));
    }
    acc_0 = acc_1 = acc_2 = acc_3 = v_splat(0.0f);

    const u64 first = (u64)(first_vertex + index) * n_partners;
    const u32 n = n_partners;
    real taken = 0.0f; /* sum over partners of scale dot */
    u32 slot0 = n > 0u ? slots[partners[first + (0u)]] : own_slot;
    for (u32 j = 0, turn = 0; j < n; j += 1u, turn ^= 1u) {
        const real weight0 = weights[first + j];
        const realv* row0 = (const realv*)(pi + (u64)slot0 * 1024u);
        slot0 = slots[partners[first + (j + 1u < n ? j + 1u : n - 1u)]]; /* of the next turn: one look-up ahead */
        realv dots0 = v_splat(0.0f);

        /* dot = sum_k pi_ak (beta_k - delta) pi_bk */
        {
            const u32 v = lane;
            const realv x0 = row0[v];
            probs0_0 = x0;
            dots0 = fma(w_shared[v], x0, dots0);
        }
        {
            const u32 v = lane + 64u;
            const realv x0 = row0[v];
            probs0_1 = x0;
            dots0 = fma(w_shared[v], x0, dots0);
        }
        {
            const u32 v = lane + 128u;
            const realv x0 = row0[v];
            probs0_2 = x0;
            dots0 = fma(w_shared[v], x0, dots0);
        }
        {
            const u32 v = lane + 192u;
            const realv x0 = row0[v];
            probs0_3 = x0;
            dots0 = fma(w_shared[v], x0, dots0);
        }
        real dot0 = v_sum(dots0);
        for (int lanes = 16; lanes > 0; lanes /= 2) dot0 += __shfl_xor_sync(0xffffffffu, dot0, lanes);
        if (lane % 32u == 0) {
            team_sums[turn][0][lane / 32u] = dot0;
        }
        __syncthreads();
        dot0 = team_sums[turn][0][0] + team_sums[turn][0][1];
        const real z0 = weight0 < 0.0f ? (1.0f - delta) - dot0 : delta + dot0;
        const real scale0 = weight0 / fmax(z0, 1e-12f);
        taken += scale0 * dot0;

        /* acc_k = sum over partners of scale pi_bk */
        {
            const u32 v = lane;
            acc_0 = fma(v_splat(scale0), probs0_0, acc_0);
        }
        {
            const u32 v = lane + 64u;
            acc_1 = fma(v_splat(scale0), probs0_1, acc_1);
        }
        {
            const u32 v = lane + 128u;
            acc_2 = fma(v_splat(scale0), probs0_2, acc_2);
        }
        {
            const u32 v = lane + 192u;
            acc_3 = fma(v_splat(scale0), probs0_3, acc_3);
        }
    }

    /* D_k = (beta_k - delta) acc_k - taken; the row ends with one step a coordinate. */
    const real sum = row_sums[own_slot];
    const row_end end = {half_step, decay, spread, alpha, log1p(alpha * 0.36787945f), sum, seed, vertex, iteration};
    realv totals = v_splat(0.0f);
    u32 clips = 0u;
    draw_queue queue;
    queue.count = 0u;
    {
        const u32 v = lane;
        const realv drift = (strength[v] - v_splat(delta)) * acc_0 - v_splat(taken);
        const realv next = next_row(own[v], drift, v * 4u, end, &clips, &queue);
        totals = totals + next;
        acc_0 = next;
    }
    {
        const u32 v = lane + 64u;
        const realv drift = (strength[v] - v_splat(delta)) * acc_1 - v_splat(taken);
        const realv next = next_row(own[v], drift, v * 4u, end, &clips, &queue);
        totals = totals + next;
        acc_1 = next;
    }
    {
        const u32 v = lane + 128u;
        const realv drift = (strength[v] - v_splat(delta)) * acc_2 - v_splat(taken);
        const realv next = next_row(own[v], drift, v * 4u, end, &clips, &queue);
        totals = totals + next;
        acc_2 = next;
    }
    {
        const u32 v = lane + 192u;
        const realv drift = (strength[v] - v_splat(delta)) * acc_3 - v_splat(taken);
        const realv next = next_row(own[v], drift, v * 4u, end, &clips, &queue);
        totals = totals + next;
        acc_3 = next;
    }
    const real late = draw_queued(&queue, end);
    real clipped = (real)clips;
    __syncthreads(); /* the last sum of the loop may still be read */
    for (int lanes = 16; lanes > 0; lanes /= 2) clipped += __shfl_xor_sync(0xffffffffu, clipped, lanes);
    if (lane % 32u == 0) {
        team_sums[0][0][lane / 32u] = clipped;
    }
    __syncthreads();
    clipped = team_sums[0][0][0] + team_sums[0][0][1];
    if (lane == 0u) clip_counts[index] += (u32)clipped;
    real total = v_sum(totals) + late;
    for (int lanes = 16; lanes > 0; lanes /= 2) total += __shfl_xor_sync(0xffffffffu, total, lanes);
    if (lane % 32u == 0) {
        team_sums[1][0][lane / 32u] = total;
    }
    __syncthreads();
    total = team_sums[1][0][0] + team_sums[1][0][1];
    const real scale = 1.0f / total;
    {
        const u32 v = lane;
        out[v] = acc_0 * v_splat(scale);
    }
    {
        const u32 v = lane + 64u;
        out[v] = acc_1 * v_splat(scale);
    }
    {
        const u32 v = lane + 128u;
        out[v] = acc_2 * v_splat(scale);
    }
    {
        const u32 v = lane + 192u;
        out[v] = acc_3 * v_splat(scale);
    }
    for (u32 i = 0; i < queue.count; ++i) ((real*)out)[queue.k[i]] = queue.rate[i] * scale;
    if (lane == 0u) row_sums[spare] = total;
}
