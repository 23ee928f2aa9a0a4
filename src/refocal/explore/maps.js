"use strict";
// The maps and losses of refocal in the browser, as careful as those in Python: the top class is kept apart, since only
// from the weight of the others, r = (1-q)/q, can log q and log(1-q) of a class close to 1 be had without cancellation.
// No function here touches the page.

const refocal = (() => {
  const SMALL = Number.EPSILON ** (1 / 3);
  // log(1+r)/r, which is h(q) of the top class at r = (1-q)/q.
  const log1pRatio = (r) => (r < SMALL ? 1 - r * (0.5 - r / 3) : Math.log1p(r) / r);

  function logSumExp(values) {
    const largest = Math.max(...values);
    if (largest === -Infinity) return -Infinity;
    return largest + Math.log(values.reduce((sum, v) => sum + Math.exp(v - largest), 0));
  }

  const topOf = (logits) => logits.reduce((best, s, i) => (s > logits[best] ? i : best), 0);

  // q = softmax(logits / T) with all that the focal map and the losses need of it.
  function softmaxRow(logits, temperature) {
    const top = topOf(logits);
    const gap = logits.map((s) => (s - logits[top]) / temperature);
    const logRest = logSumExp(gap.filter((_, i) => i !== top));
    const rest = Math.exp(logRest), logNorm = Math.log1p(rest);
    const logQ = gap.map((g) => g - logNorm);
    const q = logQ.map(Math.exp);
    const logNotQ = q.map((v, i) => (i === top ? logRest - logNorm : Math.log1p(-v)));
    const h = q.map((v, i) => (i === top ? log1pRatio(rest) : v === 0 ? 0 : (-logQ[i] * v) / (1 - v)));
    return { top, gap, logQ, logNotQ, h, alone: logRest === -Infinity };
  }

  // Log-probabilities from gaps to the top class: log p_top = -log1p(Σ others).
  function normalise(gap, top) {
    const others = gap.reduce((sum, g, i) => (i === top ? sum : sum + Math.exp(g)), 0);
    return gap.map((g) => g - Math.log1p(others));
  }

  function logSoftmax(logits, temperature = 1) {
    const top = topOf(logits);
    return normalise(logits.map((s) => (s - logits[top]) / temperature), top);
  }

  // Focal temperature scaling: logits / T, then log p_j = log q_j - γ log(1-q_j) - log1p(γ h(q_j)) + const.
  function focalTemperature(logits, gamma, temperature = 1) {
    const { top, gap, logNotQ, h, alone } = softmaxRow(logits, temperature);
    const topLogNotQ = alone ? 0 : logNotQ[top];
    const after = gap.map((g, i) => {
      if (g === 0) return 0;
      if (g === -Infinity) return -Infinity;
      const moved = g - gamma * (logNotQ[i] - topLogNotQ) - (Math.log1p(gamma * h[i]) - Math.log1p(gamma * h[top]));
      return Math.min(moved, 0); // the map keeps the order of the classes; so does its rounding
    });
    return normalise(after, top);
  }

  const focal = (logQ, gamma) => focalTemperature(logQ, gamma, 1);

  const crossEntropy = (logits, label) => -logSoftmax(logits)[label];

  // Focal loss -(1-q)^γ log q. Since -log q = h (1-q)/q, the top class gets (1-q)^(1+γ) h/q: no 0·∞ as q → 1.
  function focalLoss(logits, label, gamma) {
    const row = softmaxRow(logits, 1);
    if (label !== row.top) return -Math.exp(gamma * row.logNotQ[label]) * row.logQ[label];
    return Math.exp((1 + gamma) * row.logNotQ[label] - row.logQ[label]) * row.h[label];
  }

  // Points (p, loss) of its proper part with two classes: at the p that the map gives, it is the focal loss before the map.
  function properFocal(gamma) {
    const logOdds = Array.from({ length: 199 }, (_, i) => (7 * ((i - 99) / 99) ** 3) / (1 + gamma)); // up to p of 0.002 … 0.998
    return logOdds.map((s) => [Math.exp(focal([s, 0], gamma)[0]), focalLoss([s, 0], 0, gamma)]);
  }

  // All rows of gaps to the top class up to `depth`, in steps of `step`, one class after the other.
  function sortedGaps(nClasses, { depth, step }) {
    const count = Math.round(depth / step) + 1, columns = Array.from({ length: nClasses - 1 }, () => []);
    const fill = (chosen, from) => {
      if (chosen.length === nClasses - 1) { chosen.forEach((k, j) => columns[j].push(-step * k)); return; }
      for (let k = from; k < count; k++) fill([...chosen, k], k);
    };
    fill([], 0);
    return columns.map((column) => Float64Array.from(column));
  }

  // The largest difference of a probability between focal calibration and temperature scaling, as a function of log(1/T).
  function largestDifference(gamma, gaps) {
    const n = gaps[0].length, target = Array.from({ length: gaps.length + 1 }, () => new Float64Array(n));
    for (let i = 0; i < n; i++) {
      focal([0, ...gaps.map((column) => column[i])], gamma).forEach((log_p, j) => { target[j][i] = Math.exp(log_p); });
    }
    const others = new Float64Array(gaps.length);
    return (logSlope) => {
      const slope = Math.exp(logSlope);
      let worst = 0;
      for (let i = 0; i < n; i++) {
        let sum = 1;
        for (let j = 0; j < others.length; j++) sum += others[j] = Math.exp(slope * gaps[j][i]);
        worst = Math.max(worst, Math.abs(1 / sum - target[0][i]));
        for (let j = 0; j < others.length; j++) worst = Math.max(worst, Math.abs(others[j] / sum - target[j + 1][i]));
      }
      return worst;
    };
  }

  function goldenSection(f, low, high, width) {
    const ratio = (Math.sqrt(5) - 1) / 2;
    let left = high - ratio * (high - low), right = low + ratio * (high - low), atLeft = f(left), atRight = f(right);
    while (high - low > width) {
      if (atLeft <= atRight) {
        [high, right, atRight] = [right, left, atLeft];
        left = high - ratio * (high - low); atLeft = f(left);
      } else {
        [low, left, atLeft] = [left, right, atRight];
        right = low + ratio * (high - low); atRight = f(right);
      }
    }
    return (low + high) / 2;
  }

  // The temperature whose scaling is closest to focal calibration, the error that remains, and the error over T.
  function closestTemperature(gamma, gaps, { points, margin, width }) {
    const error = largestDifference(gamma, gaps);
    const low = Math.min(0, Math.log1p(gamma)) - margin, high = Math.max(0, Math.log1p(gamma)) + margin;
    const grid = Array.from({ length: points }, (_, i) => low + ((high - low) * i) / (points - 1));
    const values = grid.map(error);
    const found = grid.slice(1, -1).flatMap((_, i) => (
      values[i + 1] <= Math.min(values[i], values[i + 2]) ? [goldenSection(error, grid[i], grid[i + 2], width)] : []));
    const best = found.reduce((a, b) => (error(b) < error(a) ? b : a));
    const curve = grid.map((u, i) => [Math.exp(-u), values[i]]);
    return { temperature: Math.exp(-best), error: error(best), curve, errorAt: (t) => error(-Math.log(t)) };
  }

  // Proposition 3: with two classes focal calibration lies between these two temperatures.
  function temperatureBounds(gamma) {
    return [1 / (gamma + 1), 1 / (gamma + 1 - Math.log1p(gamma) / 2)].sort((a, b) => a - b);
  }

  // The top probability from which on focal calibration never lowers it; γ > 0.
  function confidenceThreshold(gamma) {
    let low = -700, high = -Math.LN2;
    for (let i = 0; i < 200; i++) {
      const middle = (low + high) / 2, q = Math.exp(middle);
      const excess = gamma * Math.log1p(-q) + Math.log1p((-gamma * middle * q) / (1 - q));
      if (excess > 0) low = middle; else high = middle;
    }
    return Math.exp((low + high) / 2);
  }

  return {
    topOf, logSoftmax, focal, focalTemperature, crossEntropy, focalLoss, properFocal,
    sortedGaps, goldenSection, closestTemperature, temperatureBounds, confidenceThreshold,
  };
})();
