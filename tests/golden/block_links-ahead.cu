/*
 * block_links: K=256 N=317080 dtype=float32 m=4096 noise=off step=split
 * configuration: block_size=32 counts=registers groups=64 lookahead=True placement=RRR reduction=shuffle
 *     rows_in_flight=2 team=block vector_width=4
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

typedef struct {
    real half_step, decay, spread; /* eps/2, exp(-eps/2), 1 - exp(-eps/2) */
    real alpha, log_b, sum;        /* concentration of the prior; log(1 + alpha / e); sum of the row's phi */
    u64 seed;
    u32 vertex, iteration;
} row_end;

/*
 * The exact flow of phi' = phi D/S over eps/2, then the exact Cox-Ingersoll-Ross transition of the prior: n from
 * Poisson(phi decay / spread), phi' from spread Gamma(alpha + n). Most coordinates of a sparse row have n = 0; they
 * are done on the spot, the others are queued. With n = 0 the draw is x = (b u2)^(1/alpha), b = 1 + alpha/e, accepted
 * with chance exp(-x) (Ahrens and Dieter's GS); and n = 0 has chance exp(-rate): one uniform decides on both.
 */
static __device__ __forceinline__ realx next_phi(
    realx pi_k, realx drift, realx u1, realx u2, u32 k, row_end e, u32* clips)
{
    const realx phi = pi_k * e.sum;
    const realx flow = drift * (e.half_step / e.sum);
    const realx bounded = smaller(larger(flow, (realx)(-3.0f)), (realx)(3.0f));
    *clips += flow != bounded;
    const realx moved = phi * exp_1(bounded);
    const realx next = moved * e.decay + e.alpha * e.spread;
    return larger(next, (realx)(1e-20f));
}

/* One vector of a row. */
static __device__ __forceinline__ realv next_row(
    realv pi_k, realv drift, u32 k, row_end e, u32* clips)
{
    realv u1 = v_splat(0.5f), u2 = u1;
    realv next;
    next.s[0] = next_phi(pi_k.s[0], drift.s[0], u1.s[0], u2.s[0], k + 0u, e, clips);
    next.s[1] = next_phi(pi_k.s[1], drift.s[1], u1.s[1], u2.s[1], k + 1u, e, clips);
    next.s[2] = next_phi(pi_k.s[2], drift.s[2], u1.s[2], u2.s[2], k + 2u, e, clips);
    next.s[3] = next_phi(pi_k.s[3], drift.s[3], u1.s[3], u2.s[3], k + 3u, e, clips);
    return next;
}

/* A part of a row that is wanted soon. */
static __device__ __forceinline__ void fetch(const void* part)
{
    asm volatile("prefetch.global.L2 [%0];" :: "l"(part));
}

extern "C" __global__ __launch_bounds__(32)
void block_links(
    real* __restrict__ pi,                       /* [N + m, LD] rows by slot */
    real* __restrict__ row_sums,                 /* [N + m] sums of phi by slot */
    const u32* __restrict__ slots,               /* [N] slot of a vertex's row */
    const u32* __restrict__ spares,              /* [m] free slots; they receive the new rows */
    const real* __restrict__ beta,               /* [LD] community strengths */
    const u32* __restrict__ vertices,            /* [.., m] distinct vertices of the mini-batch, from first_vertex on */
    const u64* __restrict__ neighbour_offsets,   /* [N + 1] begin of each vertex's training links */
    const u32* __restrict__ neighbours,          /* [2 E] their other ends, ascending */
    u32* __restrict__ clip_counts,               /* [m] coordinates whose flow was bounded, added up */
    real* __restrict__ counts,                   /* [groups, 2, LD] scaled sums of rho: non-links, links */
    const real non_link_scale,                   /* of the counts of non-links */
    const real link_scale,                       /* of the counts of links */
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
    realv w_0, w_1;
    realv probs0_0, probs0_1;
    realv probs1_0, probs1_1;
    realv acc_0, acc_1;
    realv non_links_0, non_links_1;
    realv links_0, links_1;
    const u32 lane = threadIdx.x;
    const u32 group = blockIdx.x;
    if (group >= 64u) return;
    const realv* strength = (const realv*)beta;
    realv* non_links_out = (realv*)(counts + (u64)group * 512u);
    realv* links_out = non_links_out + 64u;
    {
        const u32 v = lane;
        non_links_0 = links_0 = v_splat(0.0f);
    }
    {
        const u32 v = lane + 32u;
        non_links_1 = links_1 = v_splat(0.0f);
    }
    /* The vertex at index, the next one, and the one after that. */
    const u32 last_index = n_vertices - 1u;
    u32 vertex = vertices[first_vertex + min(group, last_index)];
    u32 later = vertices[first_vertex + min(127u - group, last_index)];
    u32 last = vertices[first_vertex + min(group + 128u, last_index)];
    u32 own_slot = slots[vertex], spare = spares[min(group, last_index)];
    u32 later_slot = slots[later], later_spare = spares[min(127u - group, last_index)];
    u64 first, later_first;
    u32 n, later_n;
    first = neighbour_offsets[vertex];
    n = (u32)(neighbour_offsets[vertex + 1u] - first);
    later_first = neighbour_offsets[later];
    later_n = (u32)(neighbour_offsets[later + 1u] - later_first);
    u32 slot0 = slots[0u < n ? neighbours[first + 0u] : vertex];
    u32 slot1 = slots[1u < n ? neighbours[first + 1u] : vertex];
    for (u32 index = group, skip = 127u - 2u * group; index < n_vertices; index += skip, skip = 128u - skip) {
        /* For the vertices after this one; skips alternate, so that two of them are 2 groups together. */
        const u32 coming = vertices[first_vertex + min(index + 128u + skip, last_index)];
        const real own_sum = row_sums[own_slot];
        const u32 last_slot = slots[last];
        const u32 last_spare = spares[min(index + 128u, last_index)];
        u64 last_first;
        u32 last_n;
        last_first = neighbour_offsets[last];
        last_n = (u32)(neighbour_offsets[last + 1u] - last_first);
        const u32 later_end0 = 0u < later_n ? neighbours[later_first + 0u] : later;
        const u32 later_end1 = 1u < later_n ? neighbours[later_first + 1u] : later;
        const realv* own = (const realv*)(pi + (u64)own_slot * 256u);
        realv* out = (realv*)(pi + (u64)spare * 256u);

        realv products = v_splat(0.0f);
        {
            const u32 v = lane;
            w_0 = own[v] * (strength[v] - v_splat(delta));
            acc_0 = v_splat(0.0f);
        }
        {
            const u32 v = lane + 32u;
            w_1 = own[v] * (strength[v] - v_splat(delta));
            acc_1 = v_splat(0.0f);
        }

        real taken = 0.0f;
        for (u32 j = 0, turn = 0; j < n; j += 2u, turn ^= 1u) {
            const realv* row0 = ((const realv*)(pi + (u64)slot0 * 256u));
            realv dots0 = v_splat(0.0f);
            const realv* row1 = ((const realv*)(pi + (u64)slot1 * 256u));
            realv dots1 = v_splat(0.0f);
            slot0 = slots[j + 2u < n ? neighbours[first + j + 2u] : vertex]; /* of the next turn */
            slot1 = slots[j + 3u < n ? neighbours[first + j + 3u] : vertex]; /* of the next turn */

            /* dot = sum_k pi_ak (beta_k - delta) pi_bk */
            {
                const u32 v = lane;
                const realv x0 = row0[v];
                probs0_0 = x0;
                dots0 = fma(w_0, x0, dots0);
                const realv x1 = row1[v];
                probs1_0 = x1;
                dots1 = fma(w_0, x1, dots1);
            }
            {
                const u32 v = lane + 32u;
                const realv x0 = row0[v];
                probs0_1 = x0;
                dots0 = fma(w_1, x0, dots0);
                const realv x1 = row1[v];
                probs1_1 = x1;
                dots1 = fma(w_1, x1, dots1);
            }
            real dot0 = v_sum(dots0);
            real dot1 = v_sum(dots1);
            for (int lanes = 16; lanes > 0; lanes /= 2) dot0 += __shfl_xor_sync(0xffffffffu, dot0, lanes);
            for (int lanes = 16; lanes > 0; lanes /= 2) dot1 += __shfl_xor_sync(0xffffffffu, dot1, lanes);
            const real scale0 = 1.0f / fmax(delta + dot0, 1e-12f);
            taken += scale0 * dot0;
            const real scale1 = j + 1u >= n ? 0.0f : 1.0f / fmax(delta + dot1, 1e-12f);
            taken += scale1 * dot1;

            /* acc_k = sum over links of scale pi_bk */
            {
                const u32 v = lane;
                acc_0 = fma(v_splat(scale0), probs0_0, acc_0);
                acc_0 = fma(v_splat(scale1), probs1_0, acc_0);
            }
            {
                const u32 v = lane + 32u;
                acc_1 = fma(v_splat(scale0), probs0_1, acc_1);
                acc_1 = fma(v_splat(scale1), probs1_1, acc_1);
            }
        }

        slot0 = slots[later_end0];
        slot1 = slots[later_end1];

        /* From acc of the non-links follows their sum of scale dot, as dot is linear in the partner's row. */
        {
            const u32 v = lane;
            const realv non = out[v];
            links_0 = fma(own[v], acc_0, links_0);
            products = fma(w_0, non, products);
            non_links_0 = fma(own[v], non, non_links_0);
            acc_0 = acc_0 + non;
        }
        {
            const u32 v = lane + 32u;
            const realv non = out[v];
            links_1 = fma(own[v], acc_1, links_1);
            products = fma(w_1, non, products);
            non_links_1 = fma(own[v], non, non_links_1);
            acc_1 = acc_1 + non;
        }
        real of_others = v_sum(products);
        for (int lanes = 16; lanes > 0; lanes /= 2) of_others += __shfl_xor_sync(0xffffffffu, of_others, lanes);
        taken += of_others;

        {
            const u32 v = lane;
            fetch(((const realv*)(pi + (u64)later_slot * 256u)) + v);
            fetch(((const realv*)(pi + (u64)later_spare * 256u)) + v);
            fetch(((const realv*)(pi + (u64)slot0 * 256u)) + v);
            fetch(((const realv*)(pi + (u64)slot1 * 256u)) + v);
        }
        {
            const u32 v = lane + 32u;
            fetch(((const realv*)(pi + (u64)later_slot * 256u)) + v);
            fetch(((const realv*)(pi + (u64)later_spare * 256u)) + v);
            fetch(((const realv*)(pi + (u64)slot0 * 256u)) + v);
            fetch(((const realv*)(pi + (u64)slot1 * 256u)) + v);
        }
        /* D_k = (beta_k - delta) acc_k - taken; the row ends with one step a coordinate. */
        const real sum = own_sum;
        const row_end end = {half_step, decay, spread, alpha, log1p(alpha * 0.36787945f), sum, seed, vertex, iteration};
        realv totals = v_splat(0.0f);
        u32 clips = 0u;
        {
            const u32 v = lane;
            const realv drift = (strength[v] - v_splat(delta)) * acc_0 - v_splat(taken);
            const realv next = next_row(own[v], drift, v * 4u, end, &clips);
            totals = totals + next;
            acc_0 = next;
        }
        {
            const u32 v = lane + 32u;
            const realv drift = (strength[v] - v_splat(delta)) * acc_1 - v_splat(taken);
            const realv next = next_row(own[v], drift, v * 4u, end, &clips);
            totals = totals + next;
            acc_1 = next;
        }
        real clipped = (real)clips;
        for (int lanes = 16; lanes > 0; lanes /= 2) clipped += __shfl_xor_sync(0xffffffffu, clipped, lanes);
        if (lane == 0u && clipped > 0.0f) clip_counts[index] += (u32)clipped;
        real total = v_sum(totals);
        for (int lanes = 16; lanes > 0; lanes /= 2) total += __shfl_xor_sync(0xffffffffu, total, lanes);
        const real scale = 1.0f / total;
        {
            const u32 v = lane;
            out[v] = acc_0 * v_splat(scale);
        }
        {
            const u32 v = lane + 32u;
            out[v] = acc_1 * v_splat(scale);
        }
        if (lane == 0u) row_sums[spare] = total;
        vertex = later, own_slot = later_slot, spare = later_spare, first = later_first, n = later_n;
        later = last, later_slot = last_slot, later_spare = last_spare, later_first = last_first, later_n = last_n;
        last = coming;
    }
    /* What is the same for all vertices comes last. */
    {
        const u32 v = lane;
        non_links_out[v] = (strength[v] - v_splat(1.0f)) * v_splat(non_link_scale) * non_links_0;
        links_out[v] = strength[v] * v_splat(link_scale) * links_0;
    }
    {
        const u32 v = lane + 32u;
        non_links_out[v] = (strength[v] - v_splat(1.0f)) * v_splat(non_link_scale) * non_links_1;
        links_out[v] = strength[v] * v_splat(link_scale) * links_1;
    }
}
