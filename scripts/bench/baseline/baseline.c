/* One iteration of SG-MCMC for the a-MMSB on one thread, in plain C: the denominator of every speed-up.

   The stages are those of Algorithm 1 of El-Helw, Hofman and Bal (2020), on the state of the kernels: rows of pi by
   slot, K elements used of LD stored.  No vectors are written by hand; what the compiler makes of the loops is its
   affair.  Every stage returns the seconds that it took, or -1 when memory ran out.

   REAL (float or double) and the constants come from the command line; see __init__.py. */

#define _POSIX_C_SOURCE 199309L
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

typedef REAL real;
typedef uint32_t u32;
typedef uint64_t u64;

/* The function of the standard library in the type of the state. */
#define R(name) (sizeof(real) == 4 ? (real)name##f((float)x) : (real)name((double)x))
static real log_of(real x) { return R(log); }
static real cos_of(real x) { return R(cos); }
static real sin_of(real x) { return R(sin); }
static real sqrt_of(real x) { return R(sqrt); }
static real magnitude(real x) { return x < 0 ? -x : x; }
static real at_least(real x, real floor_value) { return x > floor_value ? x : floor_value; }

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Random numbers: Philox4x32-7, the same words as the kernels draw --------------------------------------------- */

static void philox(u64 seed, u32 index, u32 vertex, u32 iteration, u32 tag, u32 c[4])
{
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
    c[0] = index; c[1] = vertex; c[2] = iteration; c[3] = tag;
    for (int round = 0; round < 7; round++) {
        const u64 p0 = (u64)c[0] * 0xD2511F53u, p1 = (u64)c[2] * 0xCD9E8D57u;
        c[0] = (u32)(p1 >> 32) ^ c[1] ^ k0;
        c[1] = (u32)p1;
        c[2] = (u32)(p0 >> 32) ^ c[3] ^ k1;
        c[3] = (u32)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

static real unit(u32 word) { return ((real)(word >> 9) + (real)0.5) * (real)0x1p-23; }

/* One of the two standard normals that two words make: with the cosine or the sine of their angle. */
static real normal(u32 word1, u32 word2, int second)
{
    const real angle = (real)6.283185307179586 * unit(word2);
    return sqrt_of((real)-2.0 * log_of(unit(word1))) * (second ? sin_of(angle) : cos_of(angle));
}

/* Draw number j of a vertex, in [0, bound): the upper half of 64 random bits times bound. */
static u32 draw_below(u64 seed, u32 j, u32 vertex, u32 iteration, u32 purpose, u32 bound)
{
    u32 r[4];
    philox(seed, j >> 1, vertex, iteration, purpose << 24, r);
    const u64 high = (j & 1u) ? r[2] : r[0], low = (j & 1u) ? r[3] : r[1];
    return (u32)((high * bound + (low * bound >> 32)) >> 32);
}

/* The edge set: a cuckoo hash with two tables of four-key buckets ----------------------------------------------- */

static const u64 *bucket(const u64 *buckets, u32 n_buckets, u64 key, u64 seed)
{
    u64 x = key ^ seed;
    x ^= x >> 33;
    x *= 0xFF51AFD7ED558CCDu;
    x ^= x >> 33;
    x *= 0xC4CEB9FE1A85EC53u;
    return buckets + 4 * (((x >> 32) * n_buckets) >> 32);
}

static int contains(const u64 *buckets, u32 n_buckets, u64 seed0, u64 seed1, u32 u, u32 v)
{
    if (u == v) return 0;
    const u64 key = u < v ? (u64)u << 32 | v : (u64)v << 32 | u;
    const u64 *b0 = bucket(buckets, n_buckets, key, seed0);
    if (b0[0] == key || b0[1] == key || b0[2] == key || b0[3] == key) return 1;
    const u64 *b1 = bucket(buckets + 4 * (u64)n_buckets, n_buckets, key, seed1);
    return b1[0] == key || b1[1] == key || b1[2] == key || b1[3] == key;
}

/* Stage 2: n partners of every vertex, drawn from all others alike ---------------------------------------------- */

/* Several iterations at once: stride places each, of which the first sizes[round] hold a vertex. */
double sample_partners(const u32 *vertices, const u32 *sizes, const u64 *link_buckets, u32 link_n_buckets,
                       u64 link_seed0, u64 link_seed1, const u64 *held_buckets, u32 held_n_buckets, u64 held_seed0,
                       u64 held_seed1, u32 *partners, real *weights, u32 n_vertices, u32 stride, u32 n_partners,
                       u32 n_total, u64 seed, u32 iteration)
{
    const double start = now();
    const real weight = (real)((double)(n_total - 1u) / n_partners);
    for (u32 i = 0; i < n_vertices; i++) {
        const u32 round = i / stride;
        if (i - round * stride >= sizes[round]) continue;
        const u32 vertex = vertices[i];
        for (u32 j = 0; j < n_partners; j++) {
            const u64 at = (u64)i * n_partners + j;
            u32 other = j;
            if (n_partners != n_total - 1u)
                other = draw_below(seed, j, vertex, iteration + round, PURPOSE_PARTNER, n_total - 1u);
            other += other >= vertex;
            const int link = contains(link_buckets, link_n_buckets, link_seed0, link_seed1, vertex, other);
            const int held = contains(held_buckets, held_n_buckets, held_seed0, held_seed1, vertex, other);
            partners[at] = other;
            weights[at] = held ? (real)0 : link ? weight : -weight;
        }
    }
    return now() - start;
}

/* Stage 3: phi of the mini-batch ---------------------------------------------------------------------------------- */

/* The paper's form: the probabilities of every community, their sum, then the gradient; grads_k = D_k. */
static void gradient_paper(const real *pi, const u32 *slots, const real *own, const real *beta, const u32 *partners,
                           const real *weights, u64 n, u64 k_count, u64 ld, real delta, real *probs, real *grads)
{
    for (u64 k = 0; k < k_count; k++) grads[k] = 0;
    for (u64 j = 0; j < n; j++) {
        const real *row = pi + slots[partners[j]] * ld;
        real sum = 0;
        if (weights[j] >= 0) {
            for (u64 k = 0; k < k_count; k++) {
                probs[k] = row[k] * (beta[k] - delta) + delta;
                sum += own[k] * probs[k];
            }
        } else {
            for (u64 k = 0; k < k_count; k++) {
                probs[k] = row[k] * (delta - beta[k]) + ((real)1 - delta);
                sum += own[k] * probs[k];
            }
        }
        const real weight = magnitude(weights[j]), inverse = (real)1 / at_least(sum, (real)Z_FLOOR);
        for (u64 k = 0; k < k_count; k++) grads[k] += weight * (probs[k] * inverse - (real)1);
    }
}

/* The form of the kernels: one dot product and one scaled addition a partner, without cancellation. */
static void gradient_fused(const real *pi, const u32 *slots, const real *own, const real *beta, const u32 *partners,
                           const real *weights, u64 n, u64 k_count, u64 ld, real delta, real *w, real *acc)
{
    real taken = 0;
    for (u64 k = 0; k < k_count; k++) {
        w[k] = own[k] * (beta[k] - delta);
        acc[k] = 0;
    }
    for (u64 j = 0; j < n; j++) {
        const real *row = pi + slots[partners[j]] * ld;
        real dot = 0;
        for (u64 k = 0; k < k_count; k++) dot += w[k] * row[k];
        const real z = weights[j] < 0 ? ((real)1 - delta) - dot : delta + dot;
        const real scale = weights[j] / at_least(z, (real)Z_FLOOR);
        taken += scale * dot;
        for (u64 k = 0; k < k_count; k++) acc[k] += scale * row[k];
    }
    for (u64 k = 0; k < k_count; k++) acc[k] = (beta[k] - delta) * acc[k] - taken;
}

/* New rows, not normalised, go to the spare slots, which stay spare until update_pi, as vertices of the mini-batch are
   partners too; published: the gradient lacks its factor phi. */
double update_phi(real *pi, const real *row_sums, const u32 *slots, const u32 *spares, const real *beta,
                  const u32 *vertices, const u32 *partners, const real *weights, u32 n_vertices, u32 first_vertex,
                  u32 n_partners, real half_step, real alpha, real delta, u64 seed, u32 iteration, u64 k_count, u64 ld,
                  u32 published, u32 noise, u32 fused)
{
    const double start = now();
    real *probs = malloc(k_count * sizeof(real)), *grads = malloc(k_count * sizeof(real));
    if (!probs || !grads) {
        free(probs);
        free(grads);
        return -1;
    }
    for (u32 i = 0; i < n_vertices; i++) {
        const u64 place = (u64)first_vertex + i, first = place * n_partners;
        const u32 vertex = vertices[place];
        const real *own = pi + slots[vertex] * ld;
        const real row_sum = row_sums[slots[vertex]], inverse = (real)1 / row_sum;
        real *out = pi + spares[i] * ld;
        if (fused)
            gradient_fused(pi, slots, own, beta, partners + first, weights + first, n_partners, k_count, ld, delta,
                           probs, grads);
        else
            gradient_paper(pi, slots, own, beta, partners + first, weights + first, n_partners, k_count, ld, delta,
                           probs, grads);
        u32 r[4] = {0, 0, 0, 0};
        for (u64 k = 0; k < k_count; k++) {
            const real phi = own[k] * row_sum;
            const real gain = published ? grads[k] * inverse : own[k] * grads[k];
            real next = phi + half_step * (alpha - phi + gain);
            if (noise) {
                if (!(k & 3)) philox(seed, (u32)(k >> 2), vertex, iteration, (u32)PURPOSE_PHI_UNIFORM << 24, r);
                next += sqrt_of((real)2 * half_step * phi) * normal(r[k & 2], r[(k & 2) + 1], k & 1);
            }
            out[k] = at_least(magnitude(next), (real)FLOOR);
        }
    }
    free(probs);
    free(grads);
    return now() - start;
}

/* Stage 4: pi follows phi; old and new rows change places. */
double update_pi(real *pi, real *row_sums, u32 *slots, u32 *spares, const u32 *vertices, u32 n_vertices,
                 u32 first_vertex, u64 k_count, u64 ld)
{
    const double start = now();
    for (u32 i = 0; i < n_vertices; i++) {
        const u32 vertex = vertices[(u64)first_vertex + i], spare = spares[i];
        real *row = pi + spare * ld;
        real sum = 0;
        for (u64 k = 0; k < k_count; k++) sum += row[k];
        const real inverse = (real)1 / sum;
        for (u64 k = 0; k < k_count; k++) row[k] *= inverse;
        row_sums[spare] = sum;
        spares[i] = slots[vertex];
        slots[vertex] = spare;
    }
    return now() - start;
}

/* Stage 5: theta -------------------------------------------------------------------------------------------------- */

/* Sums of the responsibilities over the pairs, non-links and links apart: counts [groups, 2, LD]. */
double theta_partial(const real *pi, const u32 *slots, const real *beta, const u32 *pairs_a, const u32 *pairs_b,
                     const real *pair_weights, real *counts, u64 first_pair, u32 n_pairs, u32 n_groups, real delta,
                     u64 k_count, u64 ld)
{
    const double start = now();
    real *probs = malloc(k_count * sizeof(real));
    if (!probs) return -1;
    pairs_a += first_pair;
    pairs_b += first_pair;
    pair_weights += first_pair;
    for (u32 group = 0; group < n_groups; group++) {
        real *sums = counts + (u64)group * 2 * ld;
        for (u64 k = 0; k < 2 * ld; k++) sums[k] = 0;
        for (u64 pair = group; pair < n_pairs; pair += n_groups) {
            const real *a = pi + slots[pairs_a[pair]] * ld, *b = pi + slots[pairs_b[pair]] * ld;
            const real weight = pair_weights[pair];
            real dot = 0;
            for (u64 k = 0; k < k_count; k++) {
                probs[k] = a[k] * b[k];
                dot += probs[k] * (beta[k] - delta);
            }
            const real z = weight < 0 ? ((real)1 - delta) - dot : delta + dot;
            const real scale = magnitude(weight) / at_least(z, (real)Z_FLOOR);
            real *to = weight < 0 ? sums : sums + ld;
            for (u64 k = 0; k < k_count; k++) to[k] += scale * probs[k];
        }
        for (u64 k = 0; k < k_count; k++) {
            sums[k] *= (real)1 - beta[k];
            sums[ld + k] *= beta[k];
        }
    }
    free(probs);
    return now() - start;
}

/* Stage 6: beta follows theta. */
double update_beta(const real *theta, real *beta, u64 k_count, u64 ld)
{
    const double start = now();
    for (u64 k = 0; k < k_count; k++) {
        const real value = theta[ld + k] / (theta[k] + theta[ld + k]);
        const real low = (real)BETA_FLOOR, high = (real)1 - (real)BETA_FLOOR;
        beta[k] = value < low ? low : value > high ? high : value;
    }
    return now() - start;
}

/* The end of stage 5, and stage 6: the groups' counts are added up, theta moves by them, beta follows. */
double theta_end(const real *counts, real *theta, real *beta, u32 n_groups, double step, double eta_0, double eta_1,
                 u64 seed, u32 iteration, u64 k_count, u64 ld, u32 published, u32 noise)
{
    const double start = now(), eta[2] = {eta_0, eta_1};
    double *totals = calloc(2 * ld, sizeof(double));
    if (!totals) return -1;
    for (u32 group = 0; group < n_groups; group++)
        for (u64 k = 0; k < 2 * ld; k++) totals[k] += counts[(u64)group * 2 * ld + k];
    for (u64 k = 0; k < k_count; k++) {
        const double old[2] = {theta[k], theta[ld + k]}, count[2] = {totals[k], totals[ld + k]};
        const double sum = old[0] + old[1], strength = old[1] / sum;
        const double link = (1.0 - strength) * count[1] - strength * count[0];
        for (u32 i = 0; i < 2; i++) {
            const double gain = published ? count[i] / old[i] - (count[0] + count[1]) / sum : i ? link : -link;
            double next = old[i] + 0.5 * step * (eta[i] - old[i] + gain);
            if (noise) {
                u32 r[4];
                philox(seed, (u32)(k >> 1), i, iteration, (u32)PURPOSE_THETA_NORMAL << 24, r);
                next += sqrt(step * old[i]) * ((k & 1) ? normal(r[2], r[3], 0) : normal(r[0], r[1], 0));
            }
            next = fabs(next);
            theta[i * ld + k] = (real)(next > FLOOR ? next : FLOOR);
        }
    }
    update_beta(theta, beta, k_count, ld);
    free(totals);
    return now() - start;
}

/* The held-out pairs ---------------------------------------------------------------------------------------------- */

double perplexity_pairs(const real *pi, const u32 *slots, const real *beta, const u32 *pairs_a, const u32 *pairs_b,
                        double *probabilities, double *published, double *sums, u32 n_pairs, real delta, u64 k_count,
                        u64 ld)
{
    const double start = now();
    for (u64 pair = 0; pair < n_pairs; pair++) {
        const real *a = pi + slots[pairs_a[pair]] * ld, *b = pi + slots[pairs_b[pair]] * ld;
        real dot = 0, same = 0;
        for (u64 k = 0; k < k_count; k++) {
            const real both = a[k] * b[k];
            dot += both * (beta[k] - delta);
            same += both;
        }
        probabilities[pair] = (double)dot + delta;
        published[pair] = (double)dot + (double)delta * same;
        sums[pair] += probabilities[pair];
    }
    return now() - start;
}

/* Six sums of log-likelihoods: links and non-links of the sample, of the running mean, and as published. */
double perplexity_sum(const double *probabilities, const double *published, const double *sums, const u32 *labels,
                      double *partial, u32 n_pairs, double n_samples)
{
    const double start = now();
    for (int i = 0; i < 6; i++) partial[i] = 0;
    for (u64 pair = 0; pair < n_pairs; pair++) {
        const double p = probabilities[pair], mean = sums[pair] / n_samples;
        if (labels[pair]) {
            partial[0] += log(p);
            partial[2] += log(mean);
            partial[4] += log(published[pair] > 1e-30 ? published[pair] : 1e-30);
        } else {
            partial[1] += log1p(-p);
            partial[3] += log1p(-mean);
            partial[5] += log1p(-p);
        }
    }
    return now() - start;
}
