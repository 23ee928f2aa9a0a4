/* Probabilities behind a chain of steps (refocal/maps/steps.py, curves.py), a few rows at a time and each row once.
 *
 * Steps of scores come first. From the focal map on, or from the end of the chain, a row is held as the log-odds of its
 * top class and the weights of the others relative to the second: those stand for any row without overflow or loss.
 */

/* A step is three integers: its kind, where its numbers start, and how many there are. */
enum { FLOOR, TEMPERATURE, AFFINE, OFFSET, FOCAL, CONFIDENCE, TWO_CLASSES, REWEIGHT };
enum { LOGITS, TEMPERED, LOG_PROBABILITIES }; /* what an affine step is a map of */
enum { NOT_NUMBERS = 1, NOT_PROBABILITIES = 2 };

#define ROUNDINGS ((real)4.0)
#define LOWEST_FEATURE ((real)-87.0)
#ifdef SINGLE
#define EPSILON 0x1p-23f
#else
#define EPSILON 0x1p-52
#endif

typedef struct {
    V log_odds; /* of the top class; of the second class, for two */
    V sum;      /* of the weights of the others, the largest of which is 1; 0 if none of them can occur */
    V at;       /* which class is the top */
} Odds;

/* Whether these are logits at all, and whether they could be probabilities: the bits of both enums above. */
INLINE int64_t look(const V *d, int64_t n) {
    I wrong = {0}, some = {0}, negative = {0};
    V sum = {0};
    for (int64_t j = 0; j < n; j++) {
        wrong |= ~(d[j] < INFINITY);
        some |= d[j] > -INFINITY;
        negative |= d[j] < 0.0;
        sum += d[j];
    }
    I off = negative | (sum < (real)0.99) | (sum > (real)1.01);
    int64_t found = 0;
    for (int r = 0; r < LANES; r++) {
        if (wrong[r] || !some[r]) found |= NOT_NUMBERS;
        if (off[r]) found |= NOT_PROBABILITIES;
    }
    return found;
}

/* The logarithm of a sum of weights, the largest of which is 1. */
INLINE V log_sum(V sum) { return log1p_(keep(sum > 0.0, sum - 1.0)); }

INLINE Odds odds_of(V *d, V *e, int64_t n, real slope) {
    Rows rows = weigh(d, e, NULL, n, slope);
    V log_odds = pick(rows.sum > 0.0, -(rows.below * slope + log_sum(rows.sum)), same(FARTHEST));
    return (Odds){log_odds, rows.sum, rows.at};
}

/* The same behind the focal map of softmax(slope * d). */
INLINE Odds focal_odds(V *d, V *e, int64_t n, real slope, real gamma) {
    Rows rows = weigh(d, e, NULL, n, slope);
    Top top = top_of(rows, slope);
    V scale = scale_of(rows, top), gap = rows.below * slope, sum = {0};
    Other second = other(scale, gap - top.log_norm);
    V bent = log1p_(gamma * second.h) - log1p_(gamma * top.h);
    V second_gap = gap - gamma * (second.log_not_q - top.log_not_q) - bent;
    second_gap = keep((gap != 0.0) & (second_gap < 0.0), second_gap); /* the top stays on top, and ties stay ties */
    V damp = 1.0 + gamma * second.h;
    for (int64_t j = 0; j < n; j++) {
        Other o = other(e[j] * scale, d[j] * slope - top.log_norm);
        V weight = e[j] * exp_(gamma * (second.log_not_q - o.log_not_q)) * damp / (1.0 + gamma * o.h);
        e[j] = smaller(weight, same(1.0));
        sum += e[j];
    }
    return (Odds){pick(sum > 0.0, -(second_gap + log_sum(sum)), same(FARTHEST)), sum, rows.at};
}

/* A diagonal affine map of the scores brought to a common level: maps/affine.py. */
INLINE void affine(V *d, int64_t n, real slope, const double *numbers) {
    const int64_t kind = numbers[0];
    const real inner = slope / numbers[1], scale = kind == LOG_PROBABILITIES ? numbers[1] : 1.0;
    const double *weights = numbers + 2, *intercept = weights + n;
    V top = d[0], level = {0};
    for (int64_t j = 1; j < n; j++) top = larger(d[j], top);
    for (int64_t j = 0; j < n; j++) {
        V gap = larger((d[j] - top) * inner, same(LOWEST_FEATURE));
        level += kind == LOGITS ? gap : exp_(gap * scale);
    }
    level = kind == LOGITS ? level / (real)n : log1p_(level - 1.0) / scale;
    for (int64_t j = 0; j < n; j++) {
        V gap = larger((d[j] - top) * inner, same(LOWEST_FEATURE));
        d[j] = pick(d[j] > -INFINITY, (gap - level) * (real)weights[j] + (real)intercept[j], same(-INFINITY));
    }
}

/* A piecewise polynomial: the numbers of knots and of powers, the knots, the coefficients of each power. */
INLINE V curve(V s, const double *numbers) {
    const int64_t n_knots = numbers[0], n_powers = numbers[1];
    const double *knots = numbers + 2, *coefficients = knots + n_knots;
    V out;
    for (int r = 0; r < LANES; r++) {
        int64_t low = 0, high = n_knots; /* the piece is the number of knots that are at most s */
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if ((real)knots[middle] <= s[r]) low = middle + 1;
            else high = middle;
        }
        double distance = s[r] - knots[low > 0 ? low - 1 : 0], value = 0.0;
        for (int64_t k = n_powers - 1; k >= 0; k--) value = value * distance + coefficients[k * (n_knots + 1) + low];
        out[r] = value;
    }
    return out;
}

INLINE V confidence_curve(Odds odds, const double *numbers) {
    V curved = curve(pick(odds.log_odds < FARTHEST, odds.log_odds, same(FARTHEST)), numbers);
    V second = -log_sum(odds.sum), least = second + ROUNDINGS * EPSILON * (1.0 - second);
    return pick((odds.sum > 0.0) & (curved < least), least, curved);
}

/* All steps for a few rows; the probabilities into e. */
INLINE void run(V *d, V *e, int64_t n, const int64_t *steps, int64_t n_steps, const double *numbers) {
    real slope = 1.0; /* temperatures that are still to be divided by */
    Odds odds;
    const double *factors = NULL;
    int is_weighed = 0, keeps_top = 1;
    for (int64_t k = 0; k < n_steps; k++) {
        const double *own = numbers + steps[3 * k + 1];
        switch (steps[3 * k]) {
        case FLOOR:
            for (int64_t j = 0; j < n; j++) d[j] = larger(d[j], same(own[0] / slope));
            break;
        case TEMPERATURE: slope /= own[0]; break;
        case AFFINE: affine(d, n, slope, own), slope = 1.0; break;
        case OFFSET:
            for (int64_t j = 0; j < n; j++) d[j] = d[j] * slope + (real)own[j];
            slope = 1.0;
            break;
        case FOCAL: odds = focal_odds(d, e, n, slope, own[0]), is_weighed = 1; break;
        case REWEIGHT: factors = own; break;
        default:
            if (!is_weighed) odds = odds_of(d, e, n, slope), is_weighed = 1;
            if (steps[3 * k] == CONFIDENCE) odds.log_odds = confidence_curve(odds, own);
            else { /* of two classes the curve is about the second */
                keeps_top = 0;
                V sign = pick(odds.at == 1.0, same(1.0), same(-1.0)), bounded = odds.log_odds;
                bounded = sign * pick(bounded < FARTHEST, bounded, same(FARTHEST));
                odds.log_odds = pick(odds.sum > 0.0, sign * curve(bounded, own), odds.log_odds);
            }
        }
    }
    if (!is_weighed) odds = odds_of(d, e, n, slope);
    I up = odds.log_odds > 0.0; /* exp of what is not positive */
    V small = exp_(pick(up, -odds.log_odds, odds.log_odds)), share = 1.0 / (1.0 + small);
    V top = pick(odds.sum > 0.0, pick(up, share, small * share), same(1.0));
    V scale = keep(odds.sum > 0.0, pick(up, small * share, share)) / pick(odds.sum > 0.0, odds.sum, same(1.0));
    V most = keeps_top ? top : same(1.0); /* against the last rounding */
    for (int64_t j = 0; j < n; j++) {
        V p = e[j] * scale;
        e[j] = pick(odds.at == (real)j, top, pick(p < most, p, most));
    }
    if (factors == NULL) return;
    V total = {0};
    for (int64_t j = 0; j < n; j++) total += e[j] *= (real)factors[j];
    for (int64_t j = 0; j < n; j++) e[j] /= total;
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

/* The probabilities of every row into out; found: the bits of `look` over all rows. */
INLINE void apply(const Data *data, const int64_t *steps, int64_t n_steps, const double *numbers, void *out,
                  int64_t out_stride, int64_t *found) {
    const int64_t n = data->n_classes;
    V *scratch = aligned_alloc(64, (2 * n * sizeof(V) + 63) / 64 * 64), *d = scratch, *e = scratch + n;
    *found = scratch == NULL ? NOT_NUMBERS : 0;
    for (int64_t i = 0; scratch != NULL && i < data->n_rows; i += LANES) {
        gather(data, data->logits, i, d);
        *found |= look(d, n);
        run(d, e, n, steps, n_steps, numbers);
        store(e, n, (real *)out + i * out_stride, out_stride, data->n_rows - i < LANES ? data->n_rows - i : LANES);
    }
    free(scratch);
}
