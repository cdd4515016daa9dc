/*
 * block_links: K=256 N=317080 dtype=float32 m=4096 noise=off step=split
 * configuration: block_size=32 counts=registers groups=64 lookahead=True placement=RRR reduction=shuffle
 *     rows_in_flight=2 team=block vector_width=4
 */

#define FUNCTION static __device__ __forceinline__
#define GLOBAL
#define OPENCL 0
#define rowv realv /* a stored vector of a row */
#define WIDE(x) x
#define LOAD(row, v) row[v]
#define STORE(row, v, x) row[v] = x
#define STORE_ONE(row, k, x) ((GLOBAL real*)row)[k] = x
#define PASTE(x, y) x##y
#define REAL(x) PASTE(x, f)
#define W 4u
#define K 256u
#define LD 256u
#define ROW_VECTORS 64u
#define FLOOR_VALUE 1e-20
#define Z_FLOOR 1e-12
#define CLIP 3.0
#define INVERSE_E 0.36787944117144233
#define X 1u
#define LANEWISE 0
#define ROWS 2u
#define QUEUE 0u
#define NORMALISE 1
#define GROUPS 64u

typedef unsigned int u32;
typedef unsigned long long u64;
typedef float real;

#define OWN(i) w_##i
#define KEPT(j, i) probs##j##_##i
#define ROW(j, i) WIDE(KEPT(j, i))
#define ACC(i) acc_##i
#define NON_LINKS(i) non_links_##i
#define LINKS(i) links_##i
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

typedef real realx;
typedef bool maskx;
typedef u32 wordx;

#define exp_x exp_1

/* fmin and fmax without their care for NaN: a comparison and a choice, on every driver. */
FUNCTION realx smaller(realx x, realx y) { return x < y ? x : y; }
FUNCTION realx larger(realx x, realx y) { return x > y ? x : y; }

FUNCTION real exp_1(real x) { return exp(x); }
FUNCTION real log_1(real x) { return log(x); }
FUNCTION real log1p_1(real x) { return log1p(x); }
FUNCTION real cos_turns_1(real x) { return cospif(REAL(2.0) * x); }
/* How many coordinates were bounded: one number, or on CPUs one a lane. */
#if LANEWISE
#define clip_count maskx
#define NO_CLIPS (maskx)(0)
#define CLIPS(clips) v_sum(convert_float1(clips))
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
 * The exact flow of phi' = phi D/S over eps/2, then the exact Cox-Ingersoll-Ross transition of the prior: n from
 * Poisson(phi decay / spread), phi' from spread Gamma(alpha + n). Most coordinates of a sparse row have n = 0; they
 * are done on the spot, the others are queued. With n = 0 the draw is x = (b u2)^(1/alpha), b = 1 + alpha/e, accepted
 * with chance exp(-x) (Ahrens and Dieter's GS); and n = 0 has chance exp(-rate): one uniform decides on both.
 */
FUNCTION realx next_phi(
    realx pi_k, realx drift, realx u1, realx u2, u32 k, row_end e, clip_count* clips)
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
    const realx next = moved * e.decay + e.alpha * e.spread;
    return larger(next, (realx)(REAL(FLOOR_VALUE)));
}

/* One vector of a row. */
static __device__ __forceinline__ realv next_row(
    realv pi_k, realv drift, u32 k, row_end e, clip_count* clips)
{
    realv u1 = v_splat(REAL(0.5)), u2 = u1;
    realv next;
    next.s[0] = next_phi(pi_k.s[0], drift.s[0], u1.s[0], u2.s[0], k + 0u, e, clips);
    next.s[1] = next_phi(pi_k.s[1], drift.s[1], u1.s[1], u2.s[1], k + 1u, e, clips);
    next.s[2] = next_phi(pi_k.s[2], drift.s[2], u1.s[2], u2.s[2], k + 2u, e, clips);
    next.s[3] = next_phi(pi_k.s[3], drift.s[3], u1.s[3], u2.s[3], k + 3u, e, clips);
    return next;
}

/* The vertex of an index, the block's last one for those past its end, and its spare row. */
#define VERTEX_AT(index) vertices[first_vertex + min(index, last_index)]
#define SPARE_AT(index) spares[min(index, last_index)]
/* A vertex's links: where they begin, how many there are, and one of them, past the last the vertex itself. */
#define LINKS_OF(vertex, first, n) first = neighbour_offsets[vertex]; n = (u32)(neighbour_offsets[vertex + 1u] - first)
#define END_OF(j, vertex, first, n) j < n ? neighbours[first + j] : vertex
#define ROW_AT(slot) ((GLOBAL const realv*)(pi + (u64)slot * LD))

/* A part of a row that is wanted soon. */
#if OPENCL
#define fetch(part) prefetch(part, 1)
#else
FUNCTION void fetch(const void* part)
{
    asm volatile("prefetch.global.L2 [%0];" :: "l"(part));
}

#endif

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
    rowv probs0_0, probs0_1;
    rowv probs1_0, probs1_1;
    realv acc_0, acc_1;
    realv non_links_0, non_links_1;
    realv links_0, links_1;
    const u32 lane = threadIdx.x;
    const u32 group = blockIdx.x;
    if (group >= GROUPS) return;
    GLOBAL const realv* strength = (GLOBAL const realv*)beta;
    GLOBAL realv* non_links_out = (GLOBAL realv*)(counts + (u64)group * (2u * LD));
    GLOBAL realv* links_out = non_links_out + ROW_VECTORS;
    {
        const u32 v = lane;
        NON_LINKS(0) = LINKS(0) = v_splat(REAL(0.0));
    }
    {
        const u32 v = lane + 32u;
        NON_LINKS(1) = LINKS(1) = v_splat(REAL(0.0));
    }
    /* The vertex at index, the next one, and the one after that. */
    const u32 last_index = n_vertices - 1u;
    u32 vertex = VERTEX_AT(group);
    u32 later = VERTEX_AT((2u * GROUPS - 1u) - group);
    u32 last = VERTEX_AT(group + (2u * GROUPS));
    u32 own_slot = slots[vertex], spare = SPARE_AT(group);
    u32 later_slot = slots[later], later_spare = SPARE_AT((2u * GROUPS - 1u) - group);
    u64 first, later_first;
    u32 n, later_n;
    LINKS_OF(vertex, first, n);
    LINKS_OF(later, later_first, later_n);
    u32 slot0 = slots[END_OF(0u, vertex, first, n)];
    u32 slot1 = slots[END_OF(1u, vertex, first, n)];
    u32 skip = (2u * GROUPS - 1u) - 2u * group;
    for (u32 index = group; index < n_vertices; index += skip, skip = (2u * GROUPS) - skip) {
        /* For the vertices after this one; skips alternate, so that two of them are 2 groups together. */
        const u32 coming = VERTEX_AT(index + (2u * GROUPS) + skip);
        const real own_sum = row_sums[own_slot];
        const u32 last_slot = slots[last];
        const u32 last_spare = SPARE_AT(index + (2u * GROUPS));
        u64 last_first;
        u32 last_n;
        LINKS_OF(last, last_first, last_n);
        const u32 later_end0 = END_OF(0u, later, later_first, later_n);
        const u32 later_end1 = END_OF(1u, later, later_first, later_n);
        GLOBAL const realv* own = (GLOBAL const realv*)(pi + (u64)own_slot * LD);
        GLOBAL realv* out = (GLOBAL realv*)(pi + (u64)spare * LD);

        realv products = v_splat(REAL(0.0));
        {
            const u32 v = lane;
            OWN(0) = own[v] * (strength[v] - v_splat(delta));
            ACC(0) = v_splat(REAL(0.0));
        }
        {
            const u32 v = lane + 32u;
            OWN(1) = own[v] * (strength[v] - v_splat(delta));
            ACC(1) = v_splat(REAL(0.0));
        }

        real taken = REAL(0.0);
        for (u32 j = 0, turn = 0; j < n; j += ROWS, turn ^= 1u) {
            GLOBAL const realv* row0 = ROW_AT(slot0);
            realv dots0 = v_splat(REAL(0.0));
            GLOBAL const realv* row1 = ROW_AT(slot1);
            realv dots1 = v_splat(REAL(0.0));
            slot0 = slots[END_OF(j + 2u, vertex, first, n)]; /* of the next turn */
            slot1 = slots[END_OF(j + 3u, vertex, first, n)]; /* of the next turn */

            /* dot = sum_k pi_ak (beta_k - delta) pi_bk */
            {
                const u32 v = lane;
                const rowv x0 = row0[v];
                KEPT(0, 0) = x0;
                dots0 = fma(OWN(0), WIDE(x0), dots0);
                const rowv x1 = row1[v];
                KEPT(1, 0) = x1;
                dots1 = fma(OWN(0), WIDE(x1), dots1);
            }
            {
                const u32 v = lane + 32u;
                const rowv x0 = row0[v];
                KEPT(0, 1) = x0;
                dots0 = fma(OWN(1), WIDE(x0), dots0);
                const rowv x1 = row1[v];
                KEPT(1, 1) = x1;
                dots1 = fma(OWN(1), WIDE(x1), dots1);
            }
            real dot0 = v_sum(dots0);
            real dot1 = v_sum(dots1);
            for (int lanes = 16; lanes > 0; lanes /= 2) dot0 += __shfl_xor_sync(0xffffffffu, dot0, lanes);
            for (int lanes = 16; lanes > 0; lanes /= 2) dot1 += __shfl_xor_sync(0xffffffffu, dot1, lanes);
            const real scale0 = REAL(1.0) / fmax(delta + dot0, REAL(Z_FLOOR));
            taken += scale0 * dot0;
            const real scale1 = j + 1u >= n ? REAL(0.0) : REAL(1.0) / fmax(delta + dot1, REAL(Z_FLOOR));
            taken += scale1 * dot1;

            /* acc_k = sum over the rows of scale pi_bk */
            {
                const u32 v = lane;
                ACC(0) = fma(v_splat(scale0), ROW(0, 0), ACC(0));
                ACC(0) = fma(v_splat(scale1), ROW(1, 0), ACC(0));
            }
            {
                const u32 v = lane + 32u;
                ACC(1) = fma(v_splat(scale0), ROW(0, 1), ACC(1));
                ACC(1) = fma(v_splat(scale1), ROW(1, 1), ACC(1));
            }
        }

        slot0 = slots[later_end0];
        slot1 = slots[later_end1];

        /* From acc of the non-links follows their sum of scale dot, as dot is linear in the partner's row. */
        {
            const u32 v = lane;
            const realv non = out[v];
            LINKS(0) = fma(own[v], ACC(0), LINKS(0));
            products = fma(OWN(0), non, products);
            NON_LINKS(0) = fma(own[v], non, NON_LINKS(0));
            ACC(0) = ACC(0) + non;
        }
        {
            const u32 v = lane + 32u;
            const realv non = out[v];
            LINKS(1) = fma(own[v], ACC(1), LINKS(1));
            products = fma(OWN(1), non, products);
            NON_LINKS(1) = fma(own[v], non, NON_LINKS(1));
            ACC(1) = ACC(1) + non;
        }
        real of_others = v_sum(products);
        for (int lanes = 16; lanes > 0; lanes /= 2) of_others += __shfl_xor_sync(0xffffffffu, of_others, lanes);
        taken += of_others;

        {
            const u32 v = lane;
            fetch(ROW_AT(later_slot) + v);
            fetch(ROW_AT(later_spare) + v);
            fetch(ROW_AT(slot0) + v);
            fetch(ROW_AT(slot1) + v);
        }
        {
            const u32 v = lane + 32u;
            fetch(ROW_AT(later_slot) + v);
            fetch(ROW_AT(later_spare) + v);
            fetch(ROW_AT(slot0) + v);
            fetch(ROW_AT(slot1) + v);
        }
        /* D_k = (beta_k - delta) acc_k - taken; the row ends with one step a coordinate. */
        const real sum = own_sum;
        const row_end end = {half_step, decay, spread, alpha, log1p(alpha * REAL(INVERSE_E)), sum, seed, vertex, iteration};
        realv totals = v_splat(REAL(0.0));
        clip_count clips = NO_CLIPS;
        {
            const u32 v = lane;
            const realv drift = (strength[v] - v_splat(delta)) * ACC(0) - v_splat(taken);
            const realv next = next_row(LOAD(own, v), drift, v * W, end, &clips);
            #if NORMALISE
            totals = totals + next;
            ACC(0) = next;
            #else
            out[v] = next;
            #endif
        }
        {
            const u32 v = lane + 32u;
            const realv drift = (strength[v] - v_splat(delta)) * ACC(1) - v_splat(taken);
            const realv next = next_row(LOAD(own, v), drift, v * W, end, &clips);
            #if NORMALISE
            totals = totals + next;
            ACC(1) = next;
            #else
            out[v] = next;
            #endif
        }
        real clipped = CLIPS(clips);
        for (int lanes = 16; lanes > 0; lanes /= 2) clipped += __shfl_xor_sync(0xffffffffu, clipped, lanes);
        if (lane == 0u && clipped > REAL(0.0)) clip_counts[index] += (u32)clipped;
        real total = v_sum(totals);
        for (int lanes = 16; lanes > 0; lanes /= 2) total += __shfl_xor_sync(0xffffffffu, total, lanes);
        const real scale = REAL(1.0) / total;
        {
            const u32 v = lane;
            STORE(out, v, ACC(0) * v_splat(scale));
        }
        {
            const u32 v = lane + 32u;
            STORE(out, v, ACC(1) * v_splat(scale));
        }
        #if QUEUE
        for (u32 i = 0; i < queue.count; ++i) STORE_ONE(out, queue.k[i], queue.rate[i] * scale);
        #endif
        if (lane == 0u) row_sums[spare] = total;
        vertex = later, own_slot = later_slot, spare = later_spare, first = later_first, n = later_n;
        later = last, later_slot = last_slot, later_spare = last_spare, later_first = last_first, later_n = last_n;
        last = coming;
    }
    /* What is the same for all vertices comes last. */
    {
        const u32 v = lane;
        non_links_out[v] = (strength[v] - v_splat(REAL(1.0))) * v_splat(non_link_scale) * NON_LINKS(0);
        links_out[v] = strength[v] * v_splat(link_scale) * LINKS(0);
    }
    {
        const u32 v = lane + 32u;
        non_links_out[v] = (strength[v] - v_splat(REAL(1.0))) * v_splat(non_link_scale) * NON_LINKS(1);
        links_out[v] = strength[v] * v_splat(link_scale) * LINKS(1);
    }
}
