"use strict";
// The first page: real logits, sliders for γ, T and a curve of the confidence, and what they do to the calibration.

const logits = (() => {
  const N_BINS = 15, SURFACE_ROWS = 250, MOST_ROWS = 5000;
  const GAMMAS = [-0.5, -0.25, 0, 0.25, 0.5, 1, 2, 3, 5], LOWEST = 0.4, STEP = 1.125;
  const TEMPERATURES = Array.from({ length: 20 }, (_, i) => Number((LOWEST * STEP ** i).toFixed(3)));
  // Log-odds of the confidences at which the curve can be moved.
  const KNOTS = [0.5, 0.7, 0.9, 0.97, 0.995], LOG_ODDS = KNOTS.map((p) => Math.log(p / (1 - p)));

  // The shift of log-odds at x: lines between the knots, the same beyond them as at the last one.
  function shiftAt(x, shifts) {
    let i = LOG_ODDS.findIndex((knot) => x < knot);
    if (i === 0) return shifts[0];
    if (i < 0) return shifts[shifts.length - 1];
    const share = (x - LOG_ODDS[i - 1]) / (LOG_ODDS[i] - LOG_ODDS[i - 1]);
    return shifts[i - 1] + share * (shifts[i] - shifts[i - 1]);
  }

  // Log-probabilities of a row: focal temperature scaling, then the curve of the confidence; the others share the rest.
  function calibrate(row, gamma, temperature, shifts) {
    const logP = refocal.focalTemperature(row, gamma, temperature);
    if (shifts.every((shift) => shift === 0)) return logP;
    const top = refocal.topOf(logP);
    const rest = logP.reduce((sum, v, i) => (i === top ? sum : sum + Math.exp(v)), 0);
    if (rest === 0) return logP;
    const before = logP[top] - Math.log(rest), share = logP.map((v) => v - Math.log(rest));
    const second = Math.max(...share.filter((_, i) => i !== top));
    const logOdds = Math.max(before + shiftAt(before, shifts), second); // the top class stays on top
    const logTop = -Math.log1p(Math.exp(-logOdds)), logRest = logTop - logOdds;
    return share.map((v, i) => (i === top ? logTop : v + logRest));
  }

  // Confidence, whether right, and log-probability of the label, of every row.
  function measure(data, { gamma, temperature, shifts }) {
    const found = data.rows.map((row, i) => {
      const logP = calibrate(row, gamma, temperature, shifts), top = refocal.topOf(logP);
      return [Math.exp(logP[top]), top === data.labels[i] ? 1 : 0, logP[data.labels[i]]];
    });
    const n = found.length, sorted = found.map(([c, y]) => [c, y]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    const bins = Array.from({ length: N_BINS }, () => [0, 0, 0]);
    for (let i = 0, from = 0; i < n; i++) { // rows of equal confidence share a bin, that of the first of them
      if (sorted[i][0] !== sorted[from][0]) from = i;
      const bin = bins[Math.floor((N_BINS * from) / n)];
      bin[0] += 1; bin[1] += sorted[i][0]; bin[2] += sorted[i][1];
    }
    const mean = (k) => found.reduce((sum, row) => sum + row[k], 0) / n;
    const counts = Array.from({ length: 20 }, () => [0, 0]);
    for (const [c, y] of found) counts[Math.min(19, Math.floor(20 * c))][y ? 0 : 1] += 100 / n;
    const used = bins.filter(([count]) => count > 0);
    return {
      ece: used.reduce((sum, [, c, y]) => sum + Math.abs(c - y), 0) / n,
      logLoss: -mean(2), accuracy: mean(1), confidence: mean(0), counts,
      curve: used.map(([count, c, y]) => ({ count, confidence: c / count, accuracy: y / count })),
    };
  }

  const logLoss = (data, gamma, temperature) =>
    data.rows.reduce((sum, row, i) => sum - refocal.focalTemperature(row, gamma, temperature)[data.labels[i]], 0) / data.rows.length;

  // The temperature of least log-loss for a γ, by golden section in log T.
  const bestTemperature = (data, gamma) => Math.exp(refocal.goldenSection((u) => logLoss(data, gamma, Math.exp(u)), Math.log(0.1), Math.log(5), 1e-4));

  function bestPoint(data) {
    const loss = (u) => logLoss(data, Math.expm1(u), bestTemperature(data, Math.expm1(u)));
    const gamma = Math.expm1(refocal.goldenSection(loss, Math.log1p(-0.5), Math.log1p(5), 1e-3));
    return { gamma, temperature: bestTemperature(data, gamma) };
  }

  // At most `most` rows, evenly spaced.
  function some(data, most) {
    const n = Math.min(data.rows.length, most), at = Array.from({ length: n }, (_, i) => Math.floor((i * data.rows.length) / n));
    return { ...data, rows: at.map((i) => data.rows[i]), labels: at.map((i) => data.labels[i]) };
  }

  function decode({ title, n_classes, scale, logits: packed, labels: packedLabels }) {
    const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const values = new Int16Array(bytes(packed).buffer), labels = [...bytes(packedLabels)];
    return { title, labels, rows: labels.map((_, i) => Array.from({ length: n_classes }, (_, j) => values[i * n_classes + j] * scale)) };
  }

  return { GAMMAS, TEMPERATURES, LOWEST, STEP, KNOTS, LOG_ODDS, SURFACE_ROWS, MOST_ROWS, calibrate, measure, logLoss, bestTemperature, bestPoint, some, decode };
})();
