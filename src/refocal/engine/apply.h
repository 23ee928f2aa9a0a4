/* Probabilities behind a chain of steps (refocal/maps/steps.py, curves.py), or their logarithms, a few rows at a time.
 * refocal/engine/program.py compiles a chain into the instructions that are run here; docs/focal-map.md derives the focal
 * map.
 *
 * Steps of scores come first. From the focal map on, or from the end of the chain, a row is held as the log-odds of its
 * top class and the weights of the others relative to the second: those stand for any row without overflow or loss.
 * A mixture is the steps of each member in turn, which end with its weight.
 */

/* A step is three integers: its kind (Opcode of program.py), where its numbers start, and how many there are. */
enum { FLOOR, TEMPERATURE, AFFINE, OFFSET, FOCAL, CONFIDENCE, TWO_CLASSES, REWEIGHT, ONE_VS_REST, UNIFORM, MEMBER,
       MATRIX };
enum { LOGITS, TEMPERED, LOG_PROBABILITIES }; /* what an affine step is a map of */
enum { NOT_NUMBERS = 1, NOT_PROBABILITIES = 2, LOST = 4 }; /* Findings of program.py */

#define ROUNDINGS ((real)4.0)
#define LOWEST_FEATURE ((real)-87.0) /* -FLOOR of maps/steps.py */
#define MASKED_GAP ((real)-2e4)      /* -MASKED: where a class is masked */
#ifdef SINGLE
#define EPSILON 0x1p-23f
#define LEAST 0x1p-126f /* the smallest number with all digits */
#else
#define EPSILON 0x1p-52
#define LEAST 0x1p-1022
#endif

typedef struct {
    V log_odds; /* of the top class; of the second class, for two */
    V sum;      /* of the weights of the others, the largest of which is 1; 0 if none of them can occur */
    V at;       /* which class is the top */
} Odds;

/* Whether these are logits at all, and whether they could be probabilities: the bits of both enums above. The rows that
 * are no logits go into bad.
 */
INLINE int64_t look(const V *d, int64_t n, I *bad) {
    I wrong = {0}, some = {0}, negative = {0};
    V sum = {0};
    for (int64_t j = 0; j < n; j++) {
        wrong |= ~(d[j] < INFINITY);
        some |= d[j] > -INFINITY;
        negative |= d[j] < 0.0;
        sum += d[j];
    }
    *bad = wrong | ~some;
    I off = negative | (sum < (real)0.99) | (sum > (real)1.01);
    int64_t found = 0;
    for (int r = 0; r < LANES; r++) {
        if ((*bad)[r]) found |= NOT_NUMBERS;
        if (off[r]) found |= NOT_PROBABILITIES;
    }
    return found;
}

/* The logarithm of a sum of weights, the largest of which is 1. */
INLINE V log_sum(V sum) { return log1p_(keep(sum > 0.0, sum - 1.0)); }

/* log(u) of what has all its digits. */
INLINE V log_(V u) {
    const real round = ROUND;
    I k = ((I)u - (whole)SQRT_HALF) >> MANTISSA;
    V f = (V)((I)u - (k << MANTISSA)) - 1.0;
    return twice_atanh(f / (2.0 + f)) + ((V)((I)same(round) + k) - round) * LN2;
}

/* Divides by the sum, which is taken in parts, after Kahan: that of many thousand classes keeps its digits. */
INLINE void normalise(V *e, int64_t n) {
    V total = {0}, excess = {0};
    for (int64_t j = 0; j < n;) {
        V part = -excess;
        for (const int64_t end = n - j < 64 ? n : j + 64; j < end; j++) part += e[j];
        V sum = total + part;
        excess = (sum - total) - part;
        total = sum;
    }
    for (int64_t j = 0; j < n; j++) e[j] /= total;
}

/* Scores as log-odds and weights e; logs, unless it is NULL: the logarithms of the weights, which do not vanish. */
INLINE Odds odds_of(V *d, V *e, V *logs, int64_t n, real slope) {
    if (logs != NULL) memcpy(logs, d, n * sizeof(V));
    Rows rows = weigh(d, e, NULL, n, slope);
    V second = rows.top + keep(rows.sum > 0.0, rows.below);
    for (int64_t j = 0; logs != NULL && j < n; j++) logs[j] = (logs[j] - second) * slope;
    V log_odds = pick(rows.sum > 0.0, -(rows.below * slope + log_sum(rows.sum)), same(FARTHEST));
    return (Odds){log_odds, rows.sum, rows.at};
}

/* The same behind the focal map of softmax(slope * d). */
INLINE Odds focal_odds(V *d, V *e, V *logs, int64_t n, real slope, real gamma) {
    if (logs != NULL) memcpy(logs, d, n * sizeof(V));
    Rows rows = weigh(d, e, NULL, n, slope);
    Top top = top_of(rows, slope);
    V scale = scale_of(rows, top), gap = rows.below * slope, sum = {0}, level = rows.top + keep(rows.sum > 0.0, rows.below);
    Other second = other(scale, gap - top.log_norm);
    V bent = log1p_(gamma * second.h) - log1p_(gamma * top.h);
    V second_gap = gap - gamma * (second.log_not_q - top.log_not_q) - bent;
    second_gap = keep((gap != 0.0) & (second_gap < 0.0), second_gap); /* the top stays on top, and ties stay ties */
    V damp = 1.0 + gamma * second.h, log_damp = log1p_(gamma * second.h);
    for (int64_t j = 0; j < n; j++) {
        Other o = other(e[j] * scale, d[j] * slope - top.log_norm);
        V power = gamma * (second.log_not_q - o.log_not_q), weight = e[j] * exp_(power) * damp / (1.0 + gamma * o.h);
        e[j] = smaller(weight, same(1.0));
        sum += e[j];
        if (logs != NULL)
            logs[j] = smaller((logs[j] - level) * slope + power + log_damp - log1p_(gamma * o.h), same(0.0));
    }
    return (Odds){pick(sum > 0.0, -(second_gap + log_sum(sum)), same(FARTHEST)), sum, rows.at};
}

/* What an affine map is a map of: the scores brought to a common level, in which masked classes take no part, into z
 * (`features` of maps/steps.py).
 */
/* It tells whether a class of any row is masked. */
INLINE whole features(const V *d, V *z, int64_t n, real slope, const double *numbers) {
    const int64_t kind = numbers[0];
    const real inner = slope / numbers[1], scale = kind == LOG_PROBABILITIES ? numbers[1] : 1.0;
    V top = d[0], bottom = d[0], level = {0}, count = same((real)n);
    for (int64_t j = 1; j < n; j++) {
        top = larger(d[j], top);
        bottom = smaller(d[j], bottom);
    }
    const I has_masked = (bottom - top) * inner <= MASKED_GAP;
    whole some_masked = 0;
    for (int r = 0; r < LANES; r++) some_masked |= has_masked[r];
    for (int64_t j = 0; j < n && !some_masked; j++) { /* nearly all rows: as below, with fewer operations */
        z[j] = larger((d[j] - top) * inner, same(LOWEST_FEATURE));
        level += kind == LOGITS ? z[j] : exp_(z[j] * scale);
    }
    for (int64_t j = 0; j < n && some_masked; j++) {
        V gap = (d[j] - top) * inner;
        I is_masked = gap <= MASKED_GAP;
        z[j] = pick(is_masked, same(2 * LOWEST_FEATURE), larger(gap, same(LOWEST_FEATURE)));
        level += keep(~is_masked, kind == LOGITS ? z[j] : exp_(z[j] * scale));
        count -= keep(is_masked, same(1.0));
    }
    level = kind == LOGITS ? level / count : log1p_(level - 1.0) / scale;
    for (int64_t j = 0; j < n; j++) z[j] -= level;
    return some_masked;
}

/* Features z in which masked classes are filled in: they have the mean of the others (`unmasked` of maps/steps.py). What
 * z was less these goes into d, where the score of a class is not -inf.
 */
INLINE void unmask(V *d, V *z, int64_t n) {
    V top = z[0], mean = {0}, count = {0};
    for (int64_t j = 1; j < n; j++) top = larger(z[j], top);
    const V masked_below = top + (real)1.5 * LOWEST_FEATURE;
    for (int64_t j = 0; j < n; j++) {
        I is_masked = z[j] < masked_below;
        mean += keep(~is_masked, z[j]);
        count += keep(~is_masked, same(1.0));
    }
    mean /= count;
    for (int64_t j = 0; j < n; j++) {
        V filled = pick(z[j] < masked_below, mean, z[j]);
        d[j] = pick(d[j] > -INFINITY, z[j] - filled, same(-INFINITY));
        z[j] = filled;
    }
}

/* The scores behind a diagonal affine map, whose numbers are the kind of z, T, the weights and the intercept. */
INLINE void affine(V *d, V *z, int64_t n, real slope, const double *numbers) {
    const double *weights = numbers + 2, *intercept = weights + n;
    features(d, z, n, slope, numbers);
    for (int64_t j = 0; j < n; j++)
        d[j] = pick(d[j] > -INFINITY, z[j] * (real)weights[j] + (real)intercept[j], same(-INFINITY));
}

/* The scores behind a map by a matrix, whose rows stand in place of the weights. Four classes at a time, so that four
 * sums, none of which waits for another, share what is read of z.
 */
INLINE void matrix(V *d, V *z, int64_t n, real slope, const double *numbers) {
    const double *weights = numbers + 2, *intercept = weights + n * n;
    if (features(d, z, n, slope, numbers))
        unmask(d, z, n);
    else
        for (int64_t j = 0; j < n; j++) d[j] = pick(d[j] > -INFINITY, same(0.0), same(-INFINITY));
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) {
        const double *a = weights + j * n, *b = a + n, *c = b + n, *e = c + n;
        V sums[4] = {{0}};
        for (int64_t k = 0; k < n; k++) {
            sums[0] += z[k] * (real)a[k];
            sums[1] += z[k] * (real)b[k];
            sums[2] += z[k] * (real)c[k];
            sums[3] += z[k] * (real)e[k];
        }
        for (int r = 0; r < 4; r++)
            d[j + r] = pick(d[j + r] > -INFINITY, sums[r] + d[j + r] * (real)weights[(j + r) * (n + 1)] + (real)intercept[j + r],
                            same(-INFINITY));
    }
    for (; j < n; j++) {
        V sum = {0};
        for (int64_t k = 0; k < n; k++) sum += z[k] * (real)weights[j * n + k];
        d[j] = pick(d[j] > -INFINITY, sum + d[j] * (real)weights[j * (n + 1)] + (real)intercept[j], same(-INFINITY));
    }
}

INLINE V softplus(V s) {
    I up = s > 0.0;
    return keep(up, s) + log1p_(exp_(pick(up, -s, s)));
}

/* A piecewise polynomial: the numbers of knots and of powers, the knots, the coefficients of each power. Without knots
 * a beta curve, whose three coefficients are a, b and c.
 */
INLINE V curve(V s, const double *numbers) {
    const int64_t n_knots = numbers[0], n_powers = numbers[1];
    const double *knots = numbers + 2, *coefficients = knots + n_knots;
    if (n_knots == 0) return (real)knots[1] * softplus(s) - (real)knots[0] * softplus(-s) + (real)knots[2];
    int64_t piece[LANES] = {0}, left = n_knots; /* the number of knots that are at most s, by halves */
    for (int64_t half; left > 1; left -= half) {
        half = left / 2;
        for (int r = 0; r < LANES; r++) piece[r] += knots[piece[r] + half - 1] <= s[r] ? half : 0;
    }
    V out;
    for (int r = 0; r < LANES; r++) {
        piece[r] += knots[piece[r]] <= s[r];
        double distance = s[r] - knots[piece[r] > 0 ? piece[r] - 1 : 0], value = 0.0;
        for (int64_t k = n_powers - 1; k >= 0; k--) value = value * distance + coefficients[k * (n_knots + 1) + piece[r]];
        out[r] = value;
    }
    return out;
}

/* The probabilities of more than two classes, each by a curve of its own log-odds: maps/curves.py. */
INLINE void one_vs_rest(V *d, V *e, V *scores, int64_t n, real slope, const double *numbers, int64_t size) {
    memcpy(scores, d, n * sizeof(V));
    Rows rows = weigh(d, e, NULL, n, slope);
    I some = rows.sum > 0.0;
    V log_rest = rows.below * slope + log_sum(rows.sum), rest = keep(some, exp_(log_rest)), highest = same(-INFINITY);
    V scale = 1.0 / pick(some, rows.sum, same(1.0));
    for (int64_t j = 0; j < n; j++) {
        V odds = (scores[j] - rows.top) * slope - log1p_(rest * (1.0 - e[j] * scale));
        odds = pick(rows.at == (real)j, pick(some, -log_rest, same(FARTHEST)), odds);
        odds = smaller(larger(odds, same(-FARTHEST)), same(FARTHEST));
        d[j] = curve(odds, numbers + j * size / n);
        highest = larger(pick(scores[j] > -INFINITY, d[j], same(-INFINITY)), highest);
    }
    V shift = keep(highest < 0.0, highest), least = exp_(shift); /* so that the largest does not vanish */
    for (int64_t j = 0; j < n; j++) {
        I up = d[j] > 0.0;
        V small = exp_(pick(up, -d[j], d[j] - shift));
        e[j] = keep(scores[j] > -INFINITY, pick(up, same(1.0), small) / (1.0 + small * pick(up, same(1.0), least)));
    }
    normalise(e, n);
}

INLINE V confidence_curve(Odds odds, const double *numbers) {
    V curved = curve(pick(odds.log_odds < FARTHEST, odds.log_odds, same(FARTHEST)), numbers);
    V second = -log_sum(odds.sum), least = second + ROUNDINGS * EPSILON * (1.0 - second);
    return pick((odds.sum > 0.0) & (curved < least), least, curved);
}

/* The probabilities of a row of odds into e, whose weights are there, or their logarithms from those of the weights. */
INLINE void end(Odds odds, V *e, const V *logs, int64_t n, int keeps_top) {
    I some = odds.sum > 0.0, up = odds.log_odds > 0.0; /* exp of what is not positive */
    V small = exp_(pick(up, -odds.log_odds, odds.log_odds)), share = 1.0 / (1.0 + small);
    V top = pick(some, pick(up, share, small * share), same(1.0)), most = keeps_top ? top : same(1.0);
    V scale = keep(some, pick(up, small * share, share)) / pick(some, odds.sum, same(1.0));
    for (int64_t j = 0; logs == NULL && j < n; j++) {
        V p = e[j] * scale; /* at most the top's, against the last rounding */
        e[j] = pick(odds.at == (real)j, top, pick(p < most, p, most));
    }
    if (logs == NULL) return;
    V norm = log1p_(small), level = keep(some, keep(up, -odds.log_odds) - norm - log_sum(odds.sum));
    top = keep(some, keep(~up, odds.log_odds) - norm), most = keeps_top ? top : same(0.0);
    for (int64_t j = 0; j < n; j++) e[j] = pick(odds.at == (real)j, top, smaller(logs[j] + level, most));
}

/* All steps of a chain, or of one member of a mixture, for a few rows: the probabilities into e, or their logarithms
 * if logs are given. Returns the number of steps, that of the member's weight included.
 */
INLINE int64_t run(V *d, V *e, V *logs, V *scores, int64_t n, const int64_t *steps, int64_t n_steps,
                   const double *numbers) {
    real slope = 1.0; /* temperatures that are still to be divided by */
    Odds odds;
    const double *factors = NULL;
    int is_weighed = 0, is_done = 0, keeps_top = 1;
    int64_t k = 0;
    for (; k < n_steps && steps[3 * k] != MEMBER; k++) {
        const double *own = numbers + steps[3 * k + 1];
        switch (steps[3 * k]) {
        case FLOOR:
            for (int64_t j = 0; j < n; j++) d[j] = larger(d[j], same(own[0] / slope));
            break;
        case TEMPERATURE: slope /= own[0]; break;
        case AFFINE: affine(d, e, n, slope, own), slope = 1.0; break;
        case MATRIX: matrix(d, e, n, slope, own), slope = 1.0; break;
        case OFFSET:
            for (int64_t j = 0; j < n; j++) d[j] = d[j] * slope + (real)own[j];
            slope = 1.0;
            break;
        case FOCAL: odds = focal_odds(d, e, logs, n, slope, own[0]), is_weighed = 1; break;
        case REWEIGHT: factors = own; break;
        case ONE_VS_REST: one_vs_rest(d, e, scores, n, slope, own, steps[3 * k + 2]), is_done = 1; break;
        case UNIFORM:
            for (int64_t j = 0; j < n; j++) e[j] = keep(d[j] > -INFINITY, same(1.0));
            normalise(e, n), is_done = 1;
            break;
        default:
            if (!is_weighed) odds = odds_of(d, e, logs, n, slope), is_weighed = 1;
            if (steps[3 * k] == CONFIDENCE) odds.log_odds = confidence_curve(odds, own);
            else { /* of two classes the curve is about the second */
                keeps_top = 0;
                V sign = pick(odds.at == 1.0, same(1.0), same(-1.0)), bounded = odds.log_odds;
                bounded = sign * pick(bounded < FARTHEST, bounded, same(FARTHEST));
                odds.log_odds = pick(odds.sum > 0.0, sign * curve(bounded, own), odds.log_odds);
            }
        }
    }
    if (is_done) return k + 1;
    if (!is_weighed) odds = odds_of(d, e, logs, n, slope);
    end(odds, e, logs, n, keeps_top);
    if (factors == NULL) return k + 1;
    for (int64_t j = 0; j < n; j++) e[j] *= (real)factors[j];
    normalise(e, n);
    return k + 1;
}

/* The weighted mean of the members' probabilities into sum, or its logarithm; returns LOST or 0. */
INLINE int64_t mix(const Data *data, int64_t first, V *d, V *e, V *scores, V *sum, int64_t n, const int64_t *steps,
                   int64_t n_steps, const double *numbers, int is_log) {
    int64_t found = 0;
    memset(sum, 0, n * sizeof(V));
    for (int64_t k = 0; k < n_steps;) {
        gather(data, data->logits, first, d);
        k += run(d, e, NULL, scores, n, steps + 3 * k, n_steps - k, numbers);
        const real weight = numbers[steps[3 * k - 2]];
        for (int64_t j = 0; j < n; j++) sum[j] += weight * e[j];
    }
    normalise(sum, n); /* the weights add up to 1 but for their rounding */
    if (!is_log) return 0;
    gather(data, data->logits, first, d);
    for (int64_t j = 0; j < n; j++) {
        I possible = d[j] > -INFINITY, lost = possible & ~(sum[j] >= LEAST);
        for (int r = 0; r < LANES; r++) found |= lost[r] ? LOST : 0;
        sum[j] = pick(possible, log_(sum[j]), same(-INFINITY));
    }
    return found;
}

INLINE void store(V *e, int64_t n, real *out, int64_t stride, int rows) {
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        V square[LANES];
        turn(e + j, square);
        for (int r = 0; r < rows; r++) memcpy(out + r * stride + j, &square[r], sizeof(V));
    }
    for (; j < n; j++)
        for (int r = 0; r < rows; r++) out[r * stride + j] = e[j][r];
}

/* The probabilities of every row, or their logarithms, into out; found: the bits of `look` over all rows, and LOST,
   which also says that there was no memory for a few rows, and nothing is in out. */
INLINE void apply_chain(const Data *data, const int64_t *steps, int64_t n_steps, const double *numbers, int64_t is_log,
                        void *out, int64_t out_stride, int64_t *found) {
    const int64_t n = data->n_classes, is_mixture = n_steps > 0 && steps[3 * n_steps - 3] == MEMBER;
    V *scratch = aligned_alloc(64, (4 * n * sizeof(V) + 63) / 64 * 64);
    V *d = scratch, *e = d + n, *more = e + n, *sum = more + n;
    *found = scratch == NULL ? LOST : 0;
    for (int64_t i = 0; scratch != NULL && i < data->n_rows; i += LANES) {
        gather(data, data->logits, i, d);
        I bad;
        const int64_t seen = look(d, n, &bad);
        *found |= seen;
        if (is_mixture) *found |= mix(data, i, d, e, more, sum, n, steps, n_steps, numbers, is_log);
        else if (is_log) run(d, e, more, more, n, steps, n_steps, numbers);
        else run(d, e, NULL, more, n, steps, n_steps, numbers);
        V *p = is_mixture ? sum : e;
        for (int64_t j = 0; (seen & NOT_NUMBERS) && j < n; j++) p[j] = pick(bad, same(NAN), p[j]);
        const int rows = data->n_rows - i < LANES ? data->n_rows - i : LANES;
        store(p, n, (real *)out + i * out_stride, out_stride, rows);
    }
    free(scratch);
}
