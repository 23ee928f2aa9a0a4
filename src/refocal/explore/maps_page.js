"use strict";
// From the three controls to the plots and the numbers beside them.

(() => {
  const { byId, settings, show, write, put } = shared;
  const gaps = { 2: refocal.sortedGaps(2, settings.range[2]), 3: refocal.sortedGaps(3, settings.range[3]) };
  const state = { ...settings.start };
  const grid = triangle.innerGrid(14), cells = triangle.cells(45);
  const probabilities = Array.from({ length: 199 }, (_, i) => (i + 1) / 200);
  const exp = (values) => values.map(Math.exp);
  const two = (q) => [Math.log(q), Math.log1p(-q)];

  const remembered = new Map(); // the search depends on γ alone, and T may move on its own
  function closest(n) {
    const key = `${n} ${state.gamma}`;
    if (!remembered.has(key)) {
      if (remembered.size > 60) remembered.clear();
      remembered.set(key, refocal.closestTemperature(state.gamma, gaps[n], settings.search));
    }
    return remembered.get(key);
  }

  const scaled = (logits) => refocal.logSoftmax(logits, state.temperature);
  const calibrated = (logits) => refocal.focal(logits, state.gamma);
  const both = (logits) => refocal.focalTemperature(logits, state.gamma, state.temperature);
  // The example: the label has probability q, two thirds of the rest go to a second class.
  const example = () => [state.q, ((1 - state.q) * 2) / 3, (1 - state.q) / 3];

  function drawBinary() {
    const plot = plots.axes({ xLabel: "probability by the network", yLabel: "probability after" });
    const curve = (map) => probabilities.map((q) => [q, Math.exp(map(two(q))[0])]);
    plot.line([[0, 0], [1, 1]], "faint");
    plot.line(curve(scaled), "second dashed");
    plot.line(curve(calibrated), "first");
    plot.line(curve(both), "third dotted");
    const after = Math.exp(both(two(state.q))[0]);
    plot.dot(state.q, after, "third-fill");
    put("fig-binary", plot, `Two classes: a probability of ${show(state.q, 2)} becomes ${show(Math.exp(calibrated(two(state.q))[0]))} by focal calibration, ${show(Math.exp(scaled(two(state.q))[0]))} by temperature scaling and ${show(after)} by both.`);
    return after;
  }

  function drawLoss() {
    const plot = plots.axes({ y: [0, 3], xLabel: "probability of the true class", yLabel: "loss" });
    const curve = (loss) => probabilities.map((q) => [q, loss(two(q))]);
    plot.line(curve((l) => refocal.crossEntropy(l, 0)), "faint");
    plot.line(curve((l) => refocal.focalLoss(l, 0, state.gamma)), "first dashed");
    plot.line(refocal.properFocal(state.gamma), "first");
    const before = scaled(two(state.q)), after = both(two(state.q));
    const loss = refocal.focalLoss(before, 0, state.gamma);
    const height = Math.min(loss, 3); // a loss beyond the plot is shown at its top
    plot.line([[Math.exp(before[0]), height], [Math.exp(after[0]), height]], "third dotted");
    plot.dot(Math.exp(before[0]), loss, "first-fill");
    plot.dot(Math.exp(after[0]), loss, "third-fill");
    put("fig-loss", plot, `Focal loss and its proper part: focal loss at ${show(Math.exp(before[0]))} equals the proper part at ${show(Math.exp(after[0]))}; both are ${show(loss)}.`);
    return loss;
  }

  function drawArrows() {
    const plot = triangle.plot();
    for (const q of grid) plot.arrow(q, exp(both(q.map(Math.log))), "first");
    const from = example(), to = exp(both(from.map(Math.log)));
    plot.arrow(from, to, "third");
    plot.dot(from, "third-fill");
    const list = (values) => `(${values.map((v) => show(v, 3)).join(", ")})`;
    put("fig-arrows", plot, `Three classes: focal temperature scaling takes the start of each arrow to its end, such as ${list(from)} to ${list(to)}.`);
  }

  function drawDifference() {
    const plot = triangle.plot();
    const values = cells.map((corners) => {
      const middle = [0, 1, 2].map((j) => Math.log((corners[0][j] + corners[1][j] + corners[2][j]) / 3));
      const top = middle.indexOf(Math.max(...middle));
      return Math.exp(calibrated(middle)[top]) - Math.exp(scaled(middle)[top]);
    });
    const largest = Math.max(...values.map(Math.abs)) || 1;
    values.forEach((v, i) => plot.cell(cells[i], `shade s${Math.round((20 * v) / largest)}`));
    put("fig-difference", plot, `Focal calibration minus temperature scaling, for the top of three classes: from ${show(Math.min(...values))} to ${show(Math.max(...values))}.`);
    byId("difference-low").textContent = show(-largest, 3);
    byId("difference-high").textContent = `+${show(largest, 3)}`;
  }

  function drawClosest() {
    const found = { 2: closest(2), 3: closest(3) };
    const ends = found[2].curve.map(([t]) => t).concat(state.temperature);
    const low = Math.min(...ends), high = Math.max(...ends);
    const most = Math.max(...found[2].curve.concat(found[3].curve).map(([, e]) => e), 0.01);
    const plot = plots.axes({ x: [low, high], y: [0, 1.05 * most], log: true, xLabel: "temperature T", yLabel: "largest difference" });
    plot.line([[state.temperature, 0], [state.temperature, most]], "second dashed");
    for (const [n, classes] of [[2, "first"], [3, "third"]]) {
      plot.line(found[n].curve, classes);
      plot.dot(found[n].temperature, found[n].error, `${classes}-fill`);
    }
    put("fig-closest", plot, `The largest difference between focal calibration and temperature scaling, against T. It is least at T = ${show(found[2].temperature)} for two classes (${show(found[2].error)}) and at T = ${show(found[3].temperature)} for three (${show(found[3].error)}).`);
    return found;
  }

  function draw() {
    if (byId("page-maps").hidden) return; // drawn when it is turned to
    const after = drawBinary(), loss = drawLoss(), found = drawClosest();
    drawArrows();
    drawDifference();
    const [low, high] = refocal.temperatureBounds(state.gamma);
    const threshold = state.gamma > 0 ? refocal.confidenceThreshold(state.gamma) : null;
    write({
      "out-after": show(after), "out-loss": show(loss), "out-threshold": show(threshold),
      "out-bounds": `${show(low)} … ${show(high)}`,
      "out-closest-2": show(found[2].temperature), "out-error-2": show(found[2].error),
      "out-closest-3": show(found[3].temperature), "out-error-3": show(found[3].error),
      "out-at-2": show(found[2].errorAt(state.temperature)), "out-at-3": show(found[3].errorAt(state.temperature)),
      "out-call": `focal_temperature(logits, gamma=${state.gamma}, temperature=${state.temperature})`,
    });
  }

  const redraw = shared.onceAFrame(draw);
  function set(name, value) {
    const exact = byId(`${name}-number`);
    state[name] = shared.move(name, value);
    if (document.activeElement !== exact || Number(exact.value) !== state[name]) exact.value = state[name];
    redraw();
  }
  const setAll = (values) => { for (const [name, value] of Object.entries(values)) set(name, value); };

  for (const name of ["gamma", "temperature", "q"]) {
    byId(name).addEventListener("input", (event) => set(name, Number(event.target.value)));
    // While someone types, half a number is left alone.
    byId(`${name}-number`).addEventListener("change", (event) => {
      const value = Number(event.target.value);
      set(name, event.target.value.trim() === "" || !Number.isFinite(value) ? state[name] : value);
    });
  }
  for (const n of [2, 3]) byId(`take-${n}`).addEventListener("click", () => set("temperature", Number(closest(n).temperature.toFixed(4))));
  byId("reset").addEventListener("click", () => setAll(settings.start));

  window.refocal = { ...refocal, state, draw, closest: (gamma, n) => refocal.closestTemperature(gamma, gaps[n], settings.search) };
  setAll(settings.start);
  draw();
})();
