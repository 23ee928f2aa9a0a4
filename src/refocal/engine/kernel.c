/* The passes of refocal.engine over rows of logits, in plain C.
 *
 * Rows go side by side, one in each lane of a vector, so that a formula is written once and as it is read; the loops
 * are over classes. The formulas are those of refocal/maps (row.py, softmax.py), which the tests hold this file to;
 * docs/focal-map.md derives them and shows both side by side. As there, the top class stands apart: every other class
 * has q <= 1/2, where log(1-q) loses nothing, and the top's own 1-q is the sum of the others.
 *
 * The file is compiled twice: in double, four rows at a time, whatever the logits are stored in; and by
 * kernel_single.c in float, eight at a time, for float logits and for looks that need six digits. Rows are added up in
 * double by both.
 *
 * It is compiled without fast-math, so NaN and infinities mean what they always do. Callers check the logits: no NaN,
 * no +inf, a finite one in every row.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef SINGLE
typedef float real;
typedef int32_t whole;
#define LANES 8
#define NAMED(name) refocal_##name##_single
#define MANTISSA 23            /* bits of a number behind its point */
#define SQRT_HALF 0x3f3504f3   /* the bits of sqrt(1/2) */
#define LOWEST (-87.0)         /* where exp loses its digits */
#define LN2_LOW 0x1.7f7d1cp-20 /* log 2 in two pieces */
#define LN2_HIGH 0x1.62e4p-1
#define IMPOSSIBLE (-0x1p100) /* logits that lie this far below the top belong to classes that cannot occur */
#define TINY 0x1p-9           /* below it three terms of log(1+r)/r are enough */
#else
typedef double real;
typedef int64_t whole;
#define LANES 4
#define NAMED(name) refocal_##name
#define MANTISSA 52
#define SQRT_HALF 0x3fe6a09e667f3bcd
#define LOWEST (-708.0)
#define LN2_LOW 0x1.abc9e3b39803fp-56
#define LN2_HIGH 0x1.62e42fefa39efp-1
#define IMPOSSIBLE (-0x1p500)
#define TINY 0x1p-17
#endif

typedef real V __attribute__((vector_size(sizeof(real) * LANES)));
typedef whole I __attribute__((vector_size(sizeof(real) * LANES)));
typedef double Sum __attribute__((vector_size(8 * LANES)));

#define CHUNK 32
#define FARTHEST ((real)1e8) /* log-odds of what is certain */
#define INLINE static inline __attribute__((always_inline))
#define EXPORT __attribute__((visibility("default")))
#define LN2 ((real)0x1.62e42fefa39efp-1)

INLINE V pick(I mask, V yes, V no) { return (V)((mask & (I)yes) | (~mask & (I)no)); }
INLINE V keep(I mask, V value) { return (V)(mask & (I)value); }
/* Lane by lane, which compilers make one instruction of. */
INLINE V larger(V a, V b) {
    V found;
    for (int r = 0; r < LANES; r++) found[r] = a[r] > b[r] ? a[r] : b[r];
    return found;
}
INLINE V smaller(V a, V b) {
    V found;
    for (int r = 0; r < LANES; r++) found[r] = a[r] < b[r] ? a[r] : b[r];
    return found;
}
INLINE V same(real x) { return x + (V){0}; }
INLINE Sum wide(V v) { return __builtin_convertvector(v, Sum); }

/* exp(r) for |r| <= log(2) / 2: the terms r^k / k! in pairs, pairs of pairs and so on, a shorter chain than Horner's. */
INLINE V exp_near_0(V r) {
    V r2 = r * r, r4 = r2 * r2, a = 1.0 + r, b = 0.5 + r * (real)(1.0 / 6.0);
    V c = (real)(1.0 / 24.0) + r * (real)(1.0 / 120.0), d = (real)(1.0 / 720.0) + r * (real)(1.0 / 5040.0);
    V p = (a + b * r2) + (c + d * r2) * r4;
#ifndef SINGLE
    V e = 1.0 / 40320.0 + r * (1.0 / 362880.0), f = 1.0 / 3628800.0 + r * (1.0 / 39916800.0);
    p += ((e + f * r2) + r4 * (1.0 / 479001600.0)) * (r4 * r4);
#endif
    return p;
}

/* 2 atanh(s) for |s| <= 0.172, which is log(1+f) at s = f / (2+f): the polynomial of fdlibm's log. */
INLINE V twice_atanh(V s) {
    V z = s * s, z2 = z * z;
    V a = (real)6.666666666666735130e-01 + z * (real)3.999999999940941908e-01;
    V p = a + z2 * ((real)2.857142874366239149e-01 + z * (real)2.222219843214978396e-01);
#ifndef SINGLE
    V b = 1.818357216161805012e-01 + z * 1.531383769920937332e-01;
    p += (b + z2 * 1.479819860511658591e-01) * (z2 * z2);
#endif
    return s * (2.0 + z * p);
}

/* Added to a number, it leaves the nearest integer in the last bits. */
#define ROUND (3.0 * ((whole)1 << (MANTISSA - 1)))

/* exp(x) for x <= -LOWEST; 0 below LOWEST. */
INLINE V exp_(V x) {
    const real round = ROUND;
    I inside = x >= (real)LOWEST;
    V in = keep(inside, x), t = in * (real)0x1.71547652b82fep0 + round, n = t - round;
    V r = in - n * (real)LN2_HIGH - n * (real)LN2_LOW;
    return keep(inside, (V)((I)exp_near_0(r) + ((I)t << MANTISSA)));
}

/* log(1+r) for finite r > -1: 1+r = 2^k (1+f) with 1+f between sqrt(1/2) and sqrt(2). */
INLINE V log1p_(V r) {
    const real round = ROUND;
    V u = 1.0 + r, lost = pick(r > 1.0, 1.0 - (u - r), r - (u - 1.0)); /* what the sum rounded off */
    I k = ((I)u - (whole)SQRT_HALF) >> MANTISSA;
    V power = (V)((I)same(round) + k) - round;
    V f = pick(k == 0, r, (V)((I)u - (k << MANTISSA)) - 1.0);
    return twice_atanh(f / (2.0 + f)) + keep(k != 0, lost / u) + power * LN2;
}

/* log(1+r)/r, which is h(q) of the top class at r = (1-q)/q. */
INLINE V log1p_ratio(V r) {
    I small = r < (real)TINY;
    return pick(small, 1.0 - r * (0.5 - r / 3.0), log1p_(r) / pick(small, same(1.0), r));
}

/* --- rows, side by side ------------------------------------------------------------------------------------------------- */

typedef struct {
    const void *logits;
    int64_t is_double, stride;
    const int64_t *labels;
    const double *weights; /* or NULL */
    int64_t n_rows, n_classes;
    const void *counts; /* of classes that each entry stands for, stored as the logits are; or NULL */
} Data;

typedef struct {
    V below;       /* largest of the others less the top, <= 0: in units of the logits, as are d and mean */
    V sum;         /* sum over the others of e_j = exp((d_j - below) / T); 0 if none of them can occur */
    V squares;     /* sum of e_j^2 */
    V mean, spread; /* mean of d_j and its variance, weighted by e_j; 0 if none can occur */
    V top, at;     /* the logit of the top, and which class that is */
    V at_label;    /* d of the label, 0 if that is the top */
    I is_top;      /* where it is */
    V weight;      /* 0 in lanes behind the last row */
    const V *counts; /* of classes that each entry stands for; NULL where that is one */
} Rows;

/* The logits of LANES rows, class by class, into d: squares of them are turned over in registers. */
#define SHUFFLE __builtin_shufflevector

#ifdef SINGLE
INLINE V load(const float *x) {
    V eight;
    memcpy(&eight, x, sizeof eight);
    return eight;
}

/* Two by two, then four by four, then the halves: low and high pairs of a and b, from each half of them. */
#define LOW(a, b) SHUFFLE(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define HIGH(a, b) SHUFFLE(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#define LOW2(a, b) SHUFFLE(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define HIGH2(a, b) SHUFFLE(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#define FRONT(a, b) SHUFFLE(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define BACK(a, b) SHUFFLE(a, b, 4, 5, 6, 7, 12, 13, 14, 15)

/* Eight rows of eight classes → eight classes of eight rows, and back. */
INLINE void turn(const V *x, V *out) {
    V q[2][4];
    for (int half = 0; half < 2; half++) {
        V a = x[4 * half], b = x[4 * half + 1], c = x[4 * half + 2], e = x[4 * half + 3];
        V ab = LOW(a, b), ab_ = HIGH(a, b), ce = LOW(c, e), ce_ = HIGH(c, e);
        q[half][0] = LOW2(ab, ce), q[half][1] = HIGH2(ab, ce);
        q[half][2] = LOW2(ab_, ce_), q[half][3] = HIGH2(ab_, ce_);
    }
    for (int k = 0; k < 4; k++) {
        out[k] = FRONT(q[0][k], q[1][k]);
        out[k + 4] = BACK(q[0][k], q[1][k]);
    }
}
#else
typedef float F __attribute__((vector_size(4 * LANES)));

INLINE V floats(const float *x) {
    F four;
    memcpy(&four, x, sizeof four);
    return __builtin_convertvector(four, V);
}

INLINE V doubles(const double *x) {
    V four;
    memcpy(&four, x, sizeof four);
    return four;
}

/* Four rows of four classes → four classes of four rows, and back. */
INLINE void turn(const V *x, V *out) {
    V ab = SHUFFLE(x[0], x[1], 0, 4, 2, 6), ab_ = SHUFFLE(x[0], x[1], 1, 5, 3, 7);
    V ce = SHUFFLE(x[2], x[3], 0, 4, 2, 6), ce_ = SHUFFLE(x[2], x[3], 1, 5, 3, 7);
    out[0] = SHUFFLE(ab, ce, 0, 1, 4, 5), out[1] = SHUFFLE(ab_, ce_, 0, 1, 4, 5);
    out[2] = SHUFFLE(ab, ce, 2, 3, 6, 7), out[3] = SHUFFLE(ab_, ce_, 2, 3, 6, 7);
}
#endif

#define GATHER(TYPE, LOAD)                                                                                             \
    do {                                                                                                               \
        const TYPE *x[LANES];                                                                                          \
        for (int r = 0; r < LANES; r++)                                                                                \
            x[r] = (const TYPE *)source + (first + r < data->n_rows ? first + r : data->n_rows - 1) * data->stride; \
        for (; j + LANES <= data->n_classes; j += LANES) {                                                             \
            V square[LANES];                                                                                           \
            for (int r = 0; r < LANES; r++) square[r] = LOAD(x[r] + j);                                                \
            turn(square, d + j);                                                                                       \
        }                                                                                                              \
        for (; j < data->n_classes; j++)                                                                               \
            for (int r = 0; r < LANES; r++) d[j][r] = x[r][j];                                                         \
    } while (0)

INLINE void gather(const Data *data, const void *source, int64_t first, V *d) {
    int64_t j = 0;
#ifdef SINGLE
    GATHER(float, load);
#else
    if (data->is_double) GATHER(double, doubles);
    else GATHER(float, floats);
#endif
}

/* A number for each of the classes that an entry stands for, or for the one that it is. */
INLINE V times(const V *counts, int64_t j, V value) { return counts == NULL ? value : counts[j] * value; }

/* The first of the largest scores of each row, the largest of the others, and where the first is. */
typedef struct { V top, second, at; } Ranked;

INLINE Ranked rank(const V *d, int64_t n) {
    Ranked found = {d[0], same(-INFINITY), {0}};
    V index = {0};
    for (int64_t j = 1; j < n; j++) {
        index += 1.0;
        found.at = pick(d[j] > found.top, index, found.at);
        found.second = larger(smaller(d[j], found.top), found.second);
        found.top = larger(d[j], found.top);
    }
    return found;
}

/* Rows of logits d: d_j = s_j - s_top and e_j of every class; both are 0 for the top itself, and where e_j would be. */
INLINE Rows weigh(V *d, V *e, const V *counts, int64_t n, real slope) {
    Ranked ranked = rank(d, n);
    for (int r = 0; r < LANES; r++) d[(int64_t)ranked.at[r]][r] = -INFINITY;
    const real lowest = (real)IMPOSSIBLE / (slope > 1.0 ? slope : (real)1.0); /* slope * lowest is finite: no 0 * inf */
    V top = ranked.top, below = larger(ranked.second - top, same(lowest));
    V sum = {0}, squares = {0}, d1 = {0}, d2 = {0};
    for (int64_t j = 0; j < n; j++) {
        V raw = d[j] - top, lower = raw - below, weight = exp_(lower * slope), together = times(counts, j, weight);
        I possible = weight > 0.0;
        lower = keep(possible, lower);
        d[j] = keep(possible, raw);
        e[j] = weight;
        sum += together;
        squares += together * weight;
        d1 += together * lower;
        d2 += together * lower * lower;
    }
    V some = pick(sum > 0.0, sum, same(1.0)), mean = keep(sum > 0.0, below + d1 / some);
    V spread = d2 / some - (d1 / some) * (d1 / some);
    return (Rows){below, sum, squares, mean, spread, top, ranked.at, .counts = counts};
}

/* The rows of the data from `first` on: d and e one behind the other in scratch, whose fourth part holds the counts. */
INLINE Rows weigh_from(const Data *data, int64_t first, real slope, V *scratch) {
    const int64_t n = data->n_classes;
    V *d = scratch, *counts = data->counts == NULL ? NULL : scratch + 3 * n, label = {0};
    gather(data, data->logits, first, d);
    if (counts != NULL) gather(data, data->counts, first, counts);
    const int here = data->n_rows - first < LANES ? data->n_rows - first : LANES;
    for (int r = 0; r < here; r++) label[r] = d[data->labels[first + r]][r];
    Rows rows = weigh(d, scratch + n, counts, n, slope);
    for (int r = 0; r < here; r++) {
        rows.is_top[r] = -(rows.at[r] == (real)data->labels[first + r]);
        rows.weight[r] = data->weights ? data->weights[first + r] : 1.0;
    }
    rows.at_label = keep(~rows.is_top, larger(label - rows.top, same(IMPOSSIBLE)));
    return rows;
}

INLINE double total(Sum v) {
    double sum = 0.0;
    for (int r = 0; r < LANES; r++) sum += v[r];
    return sum;
}

/* weight * value, where a weight of 0 outweighs even infinity. */
INLINE Sum weighted(V weight, V value) { return wide(keep(weight > 0.0, weight * value)); }

/* --- temperature scaling --------------------------------------------------------------------------------------- */

/* Log-loss at 1/T = slope: out = sums of the value and of its first and second derivative in slope. */
INLINE void temperature(const Data *data, real slope, V *scratch, double *out) {
    Sum value = {0}, first = {0}, second = {0};
    for (int64_t i = 0; i < data->n_rows; i += LANES) {
        Rows rows = weigh_from(data, i, slope, scratch);
        V rest = exp_(rows.below * slope) * rows.sum, top = 1.0 / (1.0 + rest), others = rest * top;
        V label = pick(rows.at_label <= (real)IMPOSSIBLE, same(-INFINITY), rows.at_label);
        value += weighted(rows.weight, log1p_(rest) - label * slope);
        first += weighted(rows.weight, others * rows.mean - label);
        second += weighted(rows.weight, others * (rows.spread + rows.mean * rows.mean * top));
    }
    out[0] = total(value);
    out[1] = total(first);
    out[2] = total(second);
}

/* --- focal temperature scaling --------------------------------------------------------------------------------- */

/* The top class: rest = (1-q)/q, log(1+rest), log(1-q), h(q). Where no other class can occur log(1-q) reads 0. */
typedef struct { V rest, log_norm, log_not_q, h; } Top;

INLINE Top top_of(Rows rows, real slope) {
    I some = rows.sum > 0.0;
    V log_rest = rows.below * slope + log1p_(keep(some, rows.sum - 1.0)), rest = keep(some, exp_(log_rest));
    V log_norm = log1p_(rest);
    return (Top){rest, log_norm, keep(some, log_rest - log_norm), log1p_ratio(rest)};
}

/* A class that is not the top: log(1-q), q/(1-q) and h(q), for 0 <= q <= 1/2. */
typedef struct { V log_not_q, odds, h; } Other;

INLINE Other other(V q, V log_q) {
    I doubled = q > (real)0.29289321881345254; /* 1-q below sqrt(1/2) */
    V not_q = 1.0 - q, f = keep(doubled, not_q) - q, inverse = 1.0 / ((2.0 + f) * not_q); /* one division for two quotients */
    V odds = q * (2.0 + f) * inverse, log_ = twice_atanh(f * not_q * inverse);
    return (Other){log_ - keep(doubled, same(LN2)), odds, -log_q * odds};
}

/* What turns e_j into q_j. */
INLINE V scale_of(Rows rows, Top top) { return top.rest / (1.0 + top.rest) / pick(rows.sum > 0.0, rows.sum, same(1.0)); }

/* The label as if it were not the top; `possible` where it can occur. */
typedef struct { V raw; Other o; I possible; } Label;

INLINE Label label_of(Rows rows, Top top, real slope) {
    I possible = rows.at_label > (real)IMPOSSIBLE;
    V raw = keep(possible, rows.at_label);
    V q = keep(possible & ~rows.is_top, exp_((raw - rows.below) * slope) * scale_of(rows, top));
    return (Label){raw, other(q, raw * slope - top.log_norm), possible};
}

/* log p_label - log p_top: 0 at the top and at ties with it, and never above. */
INLINE V focal_gap(Rows rows, Top top, Label label, real gamma, real slope) {
    V gap = label.raw * slope, bent = log1p_(gamma * label.o.h) - log1p_(gamma * top.h);
    V found = gap - gamma * (label.o.log_not_q - top.log_not_q) - bent;
    found = keep((gap != 0.0) & (found < 0.0) & ~rows.is_top, found);
    return pick(label.possible, found, same(-INFINITY));
}

/* First and second derivatives of the log-weight with respect to gamma (g) and 1/T (b). */
typedef struct { V g, b, gg, gb, bb; } Curve;

INLINE Curve others_curve(Other o, V damp, real gamma, V slope, V curvature) {
    V bend = o.odds * (o.h - 1.0), h_1 = o.h + bend, lost = o.h * damp, lost_1 = h_1 * damp;
    V turn = gamma * lost_1, y_1 = gamma * o.odds - turn;
    V x_2 = (1.0 + o.odds) * (y_1 - gamma * (damp * bend)) + turn * turn, on = slope * y_1 + slope;
    return (Curve){-o.log_not_q - lost, on, lost * lost, (o.odds - lost_1 * damp) * slope,
                   x_2 * slope * slope + (curvature * y_1 + curvature)};
}

INLINE Curve top_curve(Top top, real gamma, V mean, V variance) {
    V q = 1.0 / (1.0 + top.rest), not_q = top.rest * q;
    V h_1 = q - top.h, h_2 = -not_q * q - h_1, damp = 1.0 / (1.0 + gamma * top.h);
    V turn = gamma * damp * h_1, lost = top.h * damp;
    V x_1 = -not_q - gamma * q - turn;
    V x_2 = (gamma - (real)1.0) * not_q * q - gamma * damp * h_2 + turn * turn;
    return (Curve){-top.log_not_q - lost, x_1 * mean, lost * lost, -(q + h_1 * damp * damp) * mean,
                   x_2 * mean * mean + x_1 * variance};
}

INLINE Curve minus(Curve a, Curve b) {
    return (Curve){a.g - b.g, a.b - b.b, a.gg - b.gg, a.gb - b.gb, a.bb - b.bb};
}

/* The classes below the top under the focal map: their weights relative to exp(level) of the top's, summed up alone and
 * times the first derivatives and the second moments of the log-weights; and the label's derivatives. All less the top's.
 */
typedef struct { V level, sum; Curve moments, label; } Below;

INLINE Below below_top(const Data *data, Rows rows, Top top, Label label, const V *d, const V *e, real gamma, real slope) {
    V scale = scale_of(rows, top), not_top = top.rest / (1.0 + top.rest), mean = not_top * rows.mean;
    V curvature = mean * mean - not_top * (rows.spread + rows.mean * rows.mean), damp_top = 1.0 + gamma * top.h;
    V second = other(scale, rows.below * slope - top.log_norm).log_not_q;
    Curve at_top = top_curve(top, gamma, rows.mean, rows.spread);
    V w = {0}, g = {0}, b = {0}, gg = {0}, gb = {0}, bb = {0};
    Other found[CHUNK];
    V weight[CHUNK];
    for (int64_t first = 0; first < data->n_classes; first += CHUNK) {
        const int64_t here = data->n_classes - first < CHUNK ? data->n_classes - first : CHUNK;
        for (int64_t k = 0; k < here; k++)
            found[k] = other(e[first + k] * scale, d[first + k] * slope - top.log_norm);
        for (int64_t k = 0; k < here; k++)
            weight[k] = times(rows.counts, first + k, e[first + k] * exp_(gamma * (second - found[k].log_not_q)));
        for (int64_t k = 0; k < here; k++) {
            V damp = 1.0 / (1.0 + gamma * found[k].h), p = weight[k] * damp;
            Curve c = others_curve(found[k], damp, gamma, d[first + k] - mean, curvature);
            c.g -= at_top.g;
            c.b -= at_top.b;
            w += p;
            g += p * c.g;
            b += p * c.b;
            gg += p * (c.gg + c.g * c.g);
            gb += p * (c.gb + c.g * c.b);
            bb += p * (c.bb + c.b * c.b);
        }
    }
    V damp = 1.0 / (1.0 + gamma * label.o.h);
    Curve c = minus(others_curve(label.o, damp, gamma, label.raw - mean, curvature), at_top);
    Curve moments = {damp_top * g, damp_top * b, damp_top * (gg - w * at_top.gg), damp_top * (gb - w * at_top.gb),
                     damp_top * (bb - w * at_top.bb)};
    return (Below){rows.below * slope - gamma * (second - top.log_not_q), damp_top * w, moments, c};
}

/* Log-loss at (gamma, 1/T = slope): out = sums of the value and of its derivatives g, b, gg, gb, bb. */
INLINE void focal(const Data *data, real gamma, real slope, V *scratch, double *out) {
    V *d = scratch, *e = scratch + data->n_classes;
    Sum sums[6] = {{0}};
    for (int64_t i = 0; i < data->n_rows; i += LANES) {
        Rows rows = weigh_from(data, i, slope, scratch);
        Top top = top_of(rows, slope);
        Label label = label_of(rows, top, slope);
        Below below = below_top(data, rows, top, label, d, e, gamma, slope);
        Curve m = below.moments, c = below.label;
        V scale = exp_(below.level), w = scale * below.sum, norm = scale / (1.0 + w);
        V mean_g = m.g * norm, mean_b = m.b * norm;
        I other_class = ~rows.is_top;
        sums[0] += weighted(rows.weight, log1p_(w) - focal_gap(rows, top, label, gamma, slope));
        sums[1] += weighted(rows.weight, mean_g - keep(other_class, c.g));
        sums[2] += weighted(rows.weight, mean_b - keep(other_class, c.b));
        sums[3] += weighted(rows.weight, m.gg * norm - mean_g * mean_g - keep(other_class, c.gg));
        sums[4] += weighted(rows.weight, m.gb * norm - mean_g * mean_b - keep(other_class, c.gb));
        sums[5] += weighted(rows.weight, m.bb * norm - mean_b * mean_b - keep(other_class, c.bb));
    }
    for (int k = 0; k < 6; k++) out[k] = total(sums[k]);
}

INLINE void put_sum(double *out, Sum value, int64_t n) {
    for (int r = 0; r < LANES && r < n; r++) out[r] = value[r];
}
INLINE void put(double *out, V value, int64_t n) { put_sum(out, wide(value), n); }

/* For each row, with derivatives g, b, gg, gb, bb: the log-odds of the top class, and the logarithm of the label's share
 * among the others, 0 if it is the top; out is (2, 6, n_rows). Where no other class can occur the log-odds read FARTHEST.
 */
INLINE void split(const Data *data, real gamma, real slope, V *scratch, double *out, int64_t out_stride) {
    V *d = scratch, *e = scratch + data->n_classes;
    for (int64_t i = 0; i < data->n_rows; i += LANES) {
        Rows rows = weigh_from(data, i, slope, scratch);
        Top top = top_of(rows, slope);
        Label label = label_of(rows, top, slope);
        Below below = below_top(data, rows, top, label, d, e, gamma, slope);
        I some = rows.sum > 0.0, wrong = ~rows.is_top;
        Curve m = below.moments, c = below.label;
        V norm = keep(some, 1.0 / pick(some, below.sum, same(1.0)));
        V log_w = pick(some, below.level + log1p_(keep(some, below.sum - 1.0)), same(-FARTHEST));
        V g = m.g * norm, b = m.b * norm;
        V of_others[6] = {log_w, g, b, m.gg * norm - g * g, m.gb * norm - g * b, m.bb * norm - b * b};
        V of_label[6] = {focal_gap(rows, top, label, gamma, slope), c.g, c.b, c.gg, c.gb, c.bb};
        for (int k = 0; k < 6; k++) {
            put(out + k * out_stride + i, -of_others[k], data->n_rows - i);
            put(out + (6 + k) * out_stride + i, keep(wrong, of_label[k] - of_others[k]), data->n_rows - i);
        }
    }
}

/* For each gamma and row: log p of the label, p of the top, the sum of all p^2; each (n_gammas, out_stride). */
INLINE void predict(const Data *data, const double *gammas, int64_t n_gammas, real slope, V *scratch, double *log_p,
                    double *confidence, double *squares, int64_t out_stride) {
    const int64_t n = data->n_classes;
    V *d = scratch, *e = scratch + n, *h = scratch + 2 * n;
    int is_focal = 0;
    for (int64_t k = 0; k < n_gammas; k++) is_focal |= gammas[k] != 0.0;
    for (int64_t i = 0; i < data->n_rows; i += LANES) {
        Rows rows = weigh_from(data, i, slope, scratch);
        Top top = top_of(rows, slope);
        V scale = scale_of(rows, top), gap = rows.below * slope, second = other(scale, gap - top.log_norm).log_not_q;
        for (int64_t j = 0; is_focal && j < n; j++) {
            Other o = other(e[j] * scale, d[j] * slope - top.log_norm);
            d[j] = second - o.log_not_q;
            h[j] = o.h;
        }
        Label label = label_of(rows, top, slope);
        for (int64_t k = 0; k < n_gammas; k++) {
            const real gamma = gammas[k];
            V w = rows.sum, ww = rows.squares, level = exp_(gap - gamma * (second - top.log_not_q)) * (1.0 + gamma * top.h);
            if (gamma != 0.0) w = ww = same(0.0);
            for (int64_t j = 0; gamma != 0.0 && j < n; j++) {
                V p = e[j] * exp_(gamma * d[j]) / (1.0 + gamma * h[j]), together = times(rows.counts, j, p);
                w += together;
                ww += together * p;
            }
            w *= level;
            Sum norm = 1.0 / (1.0 + wide(w)); /* in single precision different rows would have a confidence of 1 */
            put(log_p + k * out_stride + i, focal_gap(rows, top, label, gamma, slope) - log1p_(w), data->n_rows - i);
            put_sum(confidence + k * out_stride + i, norm, data->n_rows - i);
            put_sum(squares + k * out_stride + i, (1.0 + wide(level * level * ww)) * norm * norm, data->n_rows - i);
        }
    }
}

/* --- vector scaling ------------------------------------------------------------------------------------------------ */

/* Log-loss of softmax(weights * x + intercepts): out = its sum, and five rows of a number for each class: sums of the
 * derivatives in weight and intercept, and of the second ones, ww, wi and ii, of each class alone.
 */
INLINE void vector(const Data *data, const double *weights, V *scratch, double *out) {
    const int64_t n = data->n_classes;
    const double *intercepts = weights + n;
    V *x = scratch, *e = scratch + n, *sums = scratch + 2 * n;
    Sum value = {0};
    memset(sums, 0, 5 * n * sizeof(V));
    for (int64_t i = 0; i < data->n_rows; i += LANES) {
        gather(data, data->logits, i, x);
        V top = same(-INFINITY), sum = {0}, at_label = {0}, weight = {0};
        for (int64_t j = 0; j < n; j++) {
            e[j] = x[j] * (real)weights[j] + (real)intercepts[j];
            top = larger(e[j], top);
        }
        for (int r = 0; r < LANES && i + r < data->n_rows; r++) {
            int64_t y = data->labels[i + r];
            weight[r] = data->weights ? data->weights[i + r] : 1.0;
            at_label[r] = e[y][r];
            sums[5 * y][r] -= weight[r] * x[y][r];
            sums[5 * y + 1][r] -= weight[r];
        }
        for (int64_t j = 0; j < n; j++) {
            e[j] = exp_(e[j] - top);
            sum += e[j];
        }
        V scale = 1.0 / sum;
        for (int64_t j = 0; j < n; j++) {
            V q = e[j] * scale, p = weight * q, bend = p - p * q, *of = sums + 5 * j;
            of[0] += p * x[j];
            of[1] += p;
            of[2] += bend * x[j] * x[j];
            of[3] += bend * x[j];
            of[4] += bend;
        }
        value += weighted(weight, log1p_(sum - 1.0) + top - at_label);
    }
    out[0] = total(value);
    for (int64_t j = 0; j < n; j++)
        for (int k = 0; k < 5; k++) out[1 + k * n + j] = total(wide(sums[5 * j + k]));
}

#include "apply.h"

#ifndef SINGLE /* passes that are always exact */

INLINE V some(const double *x, int64_t n) {
    V found = {0};
    if (n == LANES) return doubles(x);
    for (int64_t r = 0; r < n; r++) found[r] = x[r];
    return found;
}

/* Adds sums of rows side by side to those of their piece, two vectors, and empties them. */
INLINE void end_run(V *of_run, V *of_piece) {
    for (int k = 0; k < 8; k++) {
        of_piece[k / LANES][k % LANES] += total(of_run[k]);
        of_run[k] = same(0.0);
    }
}

/* Log-loss of a curve that is quadratic between knots: eta = a + b d + c d^2, d the distance from the knot below.
 * curve: the knots, then a, b and c of each piece. out = the sum of w (log(1 + exp(eta)) - y eta), then for each piece the
 * sums of first derivatives in eta times d^0 ... d^2 and of second ones times d^0 ... d^4; pull, if it is not NULL, the
 * derivative in each score. Rows whose neighbours lie on the same piece, as sorted ones do, take half the time.
 */
INLINE void spline(const double *scores, const double *targets, const double *weights, int64_t n_rows,
                   const double *curve, int64_t n_knots, V *of_piece, double *pull, double *out) {
    const double *a = curve + n_knots, *b = a + n_knots + 1, *c = b + n_knots + 1;
    Sum value = {0};
    V of_run[8] = {0}; /* the sums of rows that follow each other on one piece, from `low` to `high` */
    int64_t run = 0;
    double low = -INFINITY, high = curve[0];
    memset(of_piece, 0, 2 * (n_knots + 1) * sizeof(V));
    for (int64_t i = 0; i < n_rows; i += LANES) {
        int64_t rows = n_rows - i < LANES ? n_rows - i : LANES;
        V score = some(scores + i, rows), target = some(targets + i, rows), weight = some(weights + i, rows);
        V knot = same(run ? low : high), A = same(a[run]), B = same(b[run]), C = same(c[run]);
        I inside = (score >= low) & (score < high), piece = {0}; /* the number of knots that are at most the score */
        int64_t goes_on = inside[0] & inside[1] & inside[2] & inside[3];
        if (!goes_on) {
            knot = same(curve[0]), A = same(a[0]), B = same(b[0]), C = same(c[0]);
            for (int64_t k = 0; k < n_knots; k++) {
                I above = score >= curve[k];
                piece -= above;
                knot = pick(above, same(curve[k]), knot), A = pick(above, same(a[k + 1]), A);
                B = pick(above, same(b[k + 1]), B), C = pick(above, same(c[k + 1]), C);
            }
        }
        V d = score - knot, d2 = d * d, eta = A + d * (B + d * C);
        V small = exp_(pick(eta > 0.0, -eta, eta)), sum = 1.0 + small;
        I doubled = small > 0.41421356237309503; /* sum above sqrt(2) */
        V f = pick(doubled, 0.5 * (small - 1.0), small), inverse = 1.0 / ((2.0 + f) * sum); /* as in `other` */
        V share = (2.0 + f) * inverse, p = pick(eta > 0.0, share, small * share);
        V log_sum = twice_atanh(f * sum * inverse) + keep(doubled, same(LN2));
        value += weight * (keep(eta > 0.0, eta) + log_sum - target * eta);
        V first = weight * (p - target), second = weight * small * share * share;
        V sums[8] = {first, first * d, first * d2, second, second * d, second * d2, second * d * d2, second * d2 * d2};
        if (pull != NULL) put(pull + i, first * (B + 2.0 * d * C), rows);
        if (goes_on) {
            for (int k = 0; k < 8; k++) of_run[k] += sums[k];
            continue;
        }
        V of_row[8]; /* two vectors for each row */
        turn(sums, of_row);
        turn(sums + 4, of_row + 4);
        for (int r = 0; r < LANES; r++) {
            of_piece[2 * piece[r]] += of_row[r];
            of_piece[2 * piece[r] + 1] += of_row[4 + r];
        }
        if (piece[LANES - 1] != run) {
            end_run(of_run, of_piece + 2 * run);
            run = piece[LANES - 1];
            low = run > 0 ? curve[run - 1] : -INFINITY, high = run < n_knots ? curve[run] : INFINITY;
        }
    }
    end_run(of_run, of_piece + 2 * run);
    out[0] = total(value);
    memcpy(out + 1, of_piece, 8 * (n_knots + 1) * sizeof *out);
}

/* Whether each row's first largest logit is its label's; out = the sum of all distances to the top. */
INLINE void inspect(const Data *data, V *scratch, uint8_t *correct, double *out) {
    Sum distance = {0};
    for (int64_t i = 0; i < data->n_rows; i += LANES) {
        gather(data, data->logits, i, scratch);
        Ranked ranked = rank(scratch, data->n_classes);
        V here = {0};
        for (int64_t j = 0; j < data->n_classes; j++)
            here += keep(scratch[j] > -INFINITY, ranked.top - scratch[j]);
        for (int r = 0; r < LANES && i + r < data->n_rows; r++) {
            correct[i + r] = ranked.at[r] == (real)data->labels[i + r];
            distance[r] += here[r];
        }
    }
    *out = total(distance);
}

/* Long rows in short: the top class, the class of the label if that is another, and two points for each bin of the rest.
 *
 * The rest is sorted into bins of the distance d = (second - x) / unit to the second largest logit. A bin is given by the
 * leading bits of d + NEAREST as a float: there are 1 << fine of them in each of OCTAVES octaves. For the m classes of a
 * bin, whose distances have the mean mu, the variance v and the third central moment k, stand two points
 *
 *     mu + h - r and mu + h + r,    h = k / (2 v),    r = sqrt(h^2 + v),
 *
 * that count as m (1 + h / r) / 2 and m (1 - h / r) / 2 classes: they have the same number, mean, variance and third
 * moment. A sum of exp(-d / T) over a bin is then off by less than (width / T)^4 / 4320 of itself. Classes that are 511
 * units away are left out.
 *
 * gaps (n_rows, 2 + 2 * OCTAVES << fine) are the logits less the top one, counts the classes that each stands for; used is
 * the number of entries of the longest row.
 */
#define OCTAVES 12
#define NEAREST 0.125f
typedef double Moments __attribute__((vector_size(32)));

INLINE int32_t bits_of(float x) {
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The middle of a bin, of d + NEAREST; width_bits are those of a float behind the bits that number its bin. */
INLINE double centre_of(int32_t bin, int width_bits) {
    int32_t bits = bits_of(NEAREST) + (bin << width_bits) + (1 << (width_bits - 1));
    float centre;
    memcpy(&centre, &bits, sizeof centre);
    return centre;
}

/* The two largest logits of a row, and the class of the first of the largest. */
typedef struct {
    double top, second;
    int64_t at;
} TopTwo;

INLINE TopTwo top_two(const double *x, int64_t n) {
    TopTwo two = {-INFINITY, -INFINITY, 0};
    for (int64_t j = 0; j < n; j++) {
        if (x[j] > two.top) {
            two.second = two.top;
            two.top = x[j];
            two.at = j;
        } else if (x[j] > two.second) {
            two.second = x[j];
        }
    }
    return two;
}

/* Sums over the classes of each bin but the top one and the label: their number and the first three powers of u, the
 * distance from the centre of the bin. */
INLINE void sum_moments(const double *x, int64_t n, TopTwo two, int64_t label, double scale, int width_bits,
                        Moments *bins) {
    for (int64_t j = 0; j < n; j++) {
        const double distance = (two.second - x[j]) * scale + NEAREST;
        const int is_near = distance < 511.0; /* not so where x is -inf, or NaN */
        if (j == two.at || j == label || !is_near) continue;
        const int32_t bin = (bits_of(distance) - bits_of(NEAREST)) >> width_bits;
        const double u = distance - centre_of(bin, width_bits);
        bins[bin] += (Moments){1.0, u, u * u, u * u * u};
    }
}

/* mu, h and r of the classes of a bin; r is 0, and h too, where they are all in one place. */
typedef struct {
    double mean, shift, radius;
} TwoPoints;

INLINE TwoPoints two_points(Moments sums, double centre) {
    TwoPoints points = {sums[1], 0.0, 0.0};
    if (sums[0] > 1.0) {
        const double part = 1.0 / sums[0];
        points.mean *= part;
        const double variance = sums[2] * part - points.mean * points.mean;
        const double third = sums[3] * part - points.mean * (3.0 * variance + points.mean * points.mean);
        const double rounding = 1e-12 * centre * centre;
        if (variance > rounding) {
            points.shift = 0.5 * third / variance;
            points.radius = sqrt(points.shift * points.shift + variance);
        }
    }
    return points;
}

INLINE void condense(const Data *data, double unit, int64_t fine, Moments *bins, float *gaps, float *counts,
                     int64_t *used) {
    const int64_t n = data->n_classes, n_bins = OCTAVES << fine, width = 2 + 2 * n_bins;
    const int width_bits = 23 - fine;
    const double scale = 1.0 / unit;
    double *x = (double *)(bins + n_bins);
    *used = 2;
    for (int64_t i = 0; i < data->n_rows; i++, gaps += width, counts += width) {
        const int64_t label = data->labels[i];
        for (int64_t j = 0; j < n; j++)
            x[j] = data->is_double ? ((const double *)data->logits)[i * data->stride + j]
                                   : ((const float *)data->logits)[i * data->stride + j];
        const TopTwo two = top_two(x, n);
        memset(bins, 0, n_bins * sizeof *bins);
        sum_moments(x, n, two, label, scale, width_bits, bins);

        gaps[0] = 0.0f;
        counts[0] = 1.0f;
        gaps[1] = label == two.at ? -INFINITY : x[label] - two.top;
        counts[1] = label != two.at;
        int64_t k = 2;
        for (int32_t bin = 0; bin < n_bins; bin++) {
            const double m = bins[bin][0];
            if (m == 0.0) continue;
            const double centre = centre_of(bin, width_bits);
            const TwoPoints points = two_points(bins[bin], centre);
            const int is_spread = points.radius > 0.0;
            const double lean = is_spread ? points.shift / points.radius : 1.0; /* all in the first point otherwise */
            for (int side = 1; side >= (is_spread ? -1 : 1); side -= 2, k++) {
                const double place = centre + points.mean + points.shift - side * points.radius - NEAREST;
                gaps[k] = two.second - two.top - (place > 0.0 ? unit * place : 0.0);
                counts[k] = 0.5 * m * (1.0 + side * lean);
            }
        }
        *used = k > *used ? k : *used;
        for (; k < width; k++) {
            gaps[k] = -INFINITY;
            counts[k] = 0.0f;
        }
    }
}

/* Half precision → single, exactly: the exponent is moved by a product, which also makes subnormal numbers normal. */
INLINE void widen(const uint16_t *half, float *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = half[i], magnitude = (bits & 0x7fffu) << 13, sign = (bits & 0x8000u) << 16;
        float value;
        memcpy(&value, &magnitude, sizeof value);
        value *= 0x1p112f;
        uint32_t found;
        memcpy(&found, &value, sizeof found);
        found |= sign | ((bits & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u); /* infinities and NaN stay so */
        memcpy(out + i, &found, sizeof found);
    }
}

#endif

/* --- what the library exports: each pass for processors with wide vectors and for all ----------------------------- */

#if defined(__x86_64__)
#define PASS(name, parameters, arguments)                                                                              \
    __attribute__((target("avx2,fma"))) static void name##_wide parameters { name arguments; }                         \
    EXPORT void NAMED(name) parameters {                                                                            \
        if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) name##_wide arguments;                    \
        else name arguments;                                                                                           \
    }
#else
#define PASS(name, parameters, arguments)                                                                              \
    EXPORT void NAMED(name) parameters { name arguments; }
#endif

PASS(temperature, (const Data *data, double slope, void *scratch, double *out), (data, slope, scratch, out))
PASS(focal, (const Data *data, double gamma, double slope, void *scratch, double *out),
     (data, gamma, slope, scratch, out))
PASS(split, (const Data *data, double gamma, double slope, void *scratch, double *out, int64_t out_stride),
     (data, gamma, slope, scratch, out, out_stride))
PASS(predict,
     (const Data *data, const double *gammas, int64_t n_gammas, double slope, void *scratch, double *log_p,
      double *confidence, double *squares, int64_t out_stride),
     (data, gammas, n_gammas, slope, scratch, log_p, confidence, squares, out_stride))
PASS(vector, (const Data *data, const double *weights, void *scratch, double *out), (data, weights, scratch, out))
PASS(apply_chain,
     (const Data *data, const int64_t *steps, int64_t n_steps, const double *numbers, int64_t is_log, void *out,
      int64_t out_stride, int64_t *found),
     (data, steps, n_steps, numbers, is_log, out, out_stride, found))
#ifndef SINGLE
PASS(inspect, (const Data *data, void *scratch, uint8_t *correct, double *out), (data, scratch, correct, out))
PASS(condense,
     (const Data *data, double unit, int64_t fine, void *scratch, float *gaps, float *counts, int64_t *used),
     (data, unit, fine, scratch, gaps, counts, used))
PASS(spline,
     (const double *scores, const double *targets, const double *weights, int64_t n_rows, const double *curve,
      int64_t n_knots, void *scratch, double *pull, double *out),
     (scores, targets, weights, n_rows, curve, n_knots, scratch, pull, out))
PASS(widen, (const uint16_t *half, float *out, int64_t n), (half, out, n))

/* Raised with every change of what a pass takes or computes; KERNEL_VERSION of c_engine.py is the same number. */
EXPORT int64_t refocal_version(void) { return 2; }
#endif
