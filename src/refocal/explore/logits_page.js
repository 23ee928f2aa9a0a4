"use strict";
// From the controls of the first page to its plots; its state stands in the address.

(() => {
  const { byId, settings, put } = shared, percent = (v) => `${(100 * v).toFixed(2)} %`;
  const start = { gamma: 0, temperature: 1, shifts: logits.KNOTS.map(() => 0) };
  const state = { ...start, shifts: [...start.shifts], network: 0 };
  let data = null, before = null, surface = null;
  const curveOf = (found) => found.curve.map((bin) => [bin.confidence, bin.accuracy]);

  function drawReliability(found) {
    const plot = plots.axes({ xLabel: "confidence", yLabel: "accuracy" });
    plot.line([[0, 0], [1, 1]], "faint");
    plot.line(curveOf(before), "second dashed");
    plot.line(curveOf(found), "first");
    found.curve.forEach((bin) => plot.dot(bin.confidence, bin.accuracy, "first-fill", `${bin.count} rows: confidence ${percent(bin.confidence)}, accuracy ${percent(bin.accuracy)}`));
    put("fig-reliability", plot, `Reliability diagram: calibration error ${percent(before.ece)} before and ${percent(found.ece)} with these settings.`);
  }

  function drawHistogram(found) {
    const most = Math.max(...found.counts.map(([right, wrong]) => right + wrong));
    const plot = plots.axes({ y: [0, 1.05 * most], xLabel: "confidence", yLabel: "predictions (%)" });
    found.counts.forEach(([right, wrong], i) => {
      plot.bar([i / 20, (i + 0.9) / 20], [0, right], "first-fill", `${i / 20} to ${(i + 1) / 20}: ${right.toFixed(2)} % right`);
      plot.bar([i / 20, (i + 0.9) / 20], [right, right + wrong], "second-fill", `${i / 20} to ${(i + 1) / 20}: ${wrong.toFixed(2)} % wrong`);
    });
    put("fig-histogram", plot, `Histogram of the confidence; its mean is ${percent(found.confidence)}, the accuracy ${percent(found.accuracy)}.`);
  }

  // The surface: the log-loss over γ and T, computed row by row while the page stays usable.
  const rank = (gamma) => { // the place of a γ among those of the grid
    const grid = logits.GAMMAS, i = Math.min(Math.max(grid.findIndex((g) => g >= gamma), 1), grid.length - 1) || grid.length - 1;
    return Math.min(Math.max(i - 1 + (gamma - grid[i - 1]) / (grid[i] - grid[i - 1]), 0), grid.length - 1);
  };
  const surfaceAxes = () => plots.axes({ x: [logits.TEMPERATURES[0], logits.TEMPERATURES.at(-1)], y: [-0.5, logits.GAMMAS.length - 0.5], log: true,
    xLabel: "temperature T", yLabel: "γ", yNames: logits.GAMMAS });
  function drawSurface() {
    const plot = surfaceAxes(), known = surface.values.flat();
    const best = Math.min(...known), spread = known.sort((a, b) => a - b)[Math.floor(0.7 * known.length)] - best || 1;
    surface.values.forEach((row, g) => row.forEach((value, k) => {
      const [low, high] = [k, k + 1].map((i) => Math.max(logits.LOWEST * logits.STEP ** (i - 0.5), logits.LOWEST));
      const strength = Math.max(0.05, 1 - Math.sqrt((value - best) / spread));
      plot.bar([low, Math.min(high, logits.TEMPERATURES.at(-1))], [g - 0.5, g + 0.5], { class: "cell", "fill-opacity": strength.toFixed(2) }, `γ ${logits.GAMMAS[g]}, T ${logits.TEMPERATURES[k]}: log-loss ${value.toFixed(4)}`);
    }));
    plot.dot(Math.min(Math.max(state.temperature, logits.LOWEST), logits.TEMPERATURES.at(-1)), rank(state.gamma), "third-fill handle");
    put("fig-surface", plot, `Log-loss over γ and T, lower where the colour is stronger; your point is γ = ${state.gamma.toFixed(2)}, T = ${state.temperature.toFixed(2)}.`);
  }
  function computeSurface() {
    const mine = { values: [], rows: logits.some(data, logits.SURFACE_ROWS) };
    surface = mine;
    const next = () => {
      if (surface !== mine) return; // other data came
      mine.values.push(logits.TEMPERATURES.map((t) => logits.logLoss(mine.rows, logits.GAMMAS[mine.values.length], t)));
      drawSurface();
      if (mine.values.length < logits.GAMMAS.length) setTimeout(next, 0);
    };
    next();
  }

  function advise(found) {
    const gap = 100 * (found.confidence - found.accuracy);
    const chance = 200 * Math.sqrt((found.accuracy * (1 - found.accuracy)) / data.rows.length); // two standard errors
    if (Math.abs(gap) <= chance) return "Confidence and accuracy agree on average. Do the points lie on the dotted line everywhere? γ and the knots bend the curve.";
    return gap > 0
      ? `Overconfident by ${gap.toFixed(1)} points: the model claims more than is true. Raise T.`
      : `Underconfident by ${(-gap).toFixed(1)} points: the model is better than it claims. Lower T.`;
  }

  function draw() {
    const found = logits.measure(data, state);
    drawReliability(found);
    drawHistogram(found);
    if (surface.values.length) drawSurface();
    shared.write({
      "now-ece": `${percent(before.ece)} → ${percent(found.ece)}`, "now-loss": `${before.logLoss.toFixed(4)} → ${found.logLoss.toFixed(4)}`,
      "now-accuracy": percent(found.accuracy), "now-confidence": percent(found.confidence), advice: advise(found),
      "logits-call": `focal_temperature(logits, gamma=${Number(state.gamma.toFixed(4))}, temperature=${Number(state.temperature.toFixed(4))})${state.shifts.some(Boolean) ? "  # and the curve" : ""}`,
    });
    const numbers = [["g", state.gamma], ["t", state.temperature], ...(state.shifts.some(Boolean) ? [["k", state.shifts.join(",")]] : []), ["d", state.network]];
    if (state.network !== null && !byId("page-logits").hidden) history.replaceState(null, "", `#logits?${numbers.map(([key, v]) => `${key}=${typeof v === "number" ? Number(v.toFixed(4)) : v}`).join("&")}`);
  }
  const redraw = shared.onceAFrame(draw);
  function set(name, value) {
    const kept = shared.move(name, value);
    if (name.startsWith("knot-")) state.shifts[Number(name.slice(5))] = kept;
    else state[name.replace("logits-", "")] = kept;
    byId(`${name}-number`).textContent = kept.toFixed(2);
    redraw();
  }
  const setAll = ({ gamma, temperature, shifts }) => {
    set("logits-gamma", gamma);
    set("logits-temperature", temperature);
    (shifts ?? state.shifts).forEach((shift, i) => set(`knot-${i}`, shift));
  };
  function use(next, network = null) {
    data = logits.some(next, logits.MOST_ROWS);
    state.network = network;
    before = logits.measure(data, start);
    const n = next.rows.length, kept = data.rows.length;
    byId("data-about").textContent = `${next.title}: ${n.toLocaleString("en")} rows, ${next.rows[0].length} classes${kept < n ? `; ${kept.toLocaleString("en")} of them are used` : ""}.${next.rows[0].length === 2 ? " The ECE here is that of the confidence; of two classes refocal measures that of class 1." : ""}`;
    computeSurface();
    redraw();
  }

  for (const slider of document.querySelectorAll("#page-logits input[type=range]")) slider.addEventListener("input", () => set(slider.id, Number(slider.value)));
  byId("fit-t").addEventListener("click", () => set("logits-temperature", logits.bestTemperature(data, state.gamma)));
  byId("fit-both").addEventListener("click", () => setAll({ ...logits.bestPoint(logits.some(data, 1000)) }));
  byId("logits-reset").addEventListener("click", () => setAll(start));
  const choice = byId("network");
  choice.addEventListener("change", () => use(logits.decode(settings.networks[Number(choice.value)]), Number(choice.value)));
  async function load(file) {
    byId("data-error").textContent = "";
    try { use(await files.read(file)); setAll(start); } catch (error) { byId("data-error").textContent = `${file.name}: ${error.message}`; }
  }
  byId("file").addEventListener("change", (event) => { if (event.target.files[0]) load(event.target.files[0]); });
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => { event.preventDefault(); if (event.dataTransfer.files[0]) load(event.dataTransfer.files[0]); });

  for (const id of ["fig-reliability", "fig-histogram"]) tips.attach(byId(id).querySelector("svg"), (text) => { byId("status").textContent = text; });

  // The point on the surface: dragged, or moved by arrow keys.
  const figure = byId("fig-surface").querySelector("svg");
  const drag = (event) => {
    const box = figure.getBoundingClientRect(), plot = surfaceAxes();
    const [t, row] = plot.from(((event.clientX - box.left) / box.width) * plots.WIDTH, ((event.clientY - box.top) / box.height) * plots.HEIGHT);
    const at = Math.min(Math.max(row, 0), logits.GAMMAS.length - 1), i = Math.min(Math.floor(at), logits.GAMMAS.length - 2);
    set("logits-temperature", t);
    set("logits-gamma", logits.GAMMAS[i] + (at - i) * (logits.GAMMAS[i + 1] - logits.GAMMAS[i]));
  };
  figure.addEventListener("pointerdown", (event) => { figure.setPointerCapture(event.pointerId); drag(event); });
  figure.addEventListener("pointermove", (event) => { if (event.buttons) drag(event); });
  figure.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: [0, 1 / 1.03], ArrowRight: [0, 1.03], ArrowUp: [0.1, 1], ArrowDown: [-0.1, 1] }[event.key];
    if (!by) return;
    event.preventDefault();
    set("logits-gamma", state.gamma + by[0]);
    set("logits-temperature", state.temperature * by[1]);
  });

  // Two pages in one; the address says which is shown, and with what.
  const pages = ["logits", "maps"];
  function turn(name) {
    for (const page of pages) {
      byId(`page-${page}`).hidden = page !== name;
      if (page === name) byId(`to-${page}`).setAttribute("aria-current", "page"); else byId(`to-${page}`).removeAttribute("aria-current");
    }
    if (name === "maps") window.refocal.draw();
  }
  function fromAddress() {
    const [page, query] = location.hash.slice(1).split("?");
    turn(pages.includes(page) ? page : "logits");
    const wanted = new URLSearchParams(query), number = (key, usual) => (wanted.has(key) && Number.isFinite(Number(wanted.get(key))) ? Number(wanted.get(key)) : usual);
    const shifts = (wanted.get("k") ?? "").split(",").map(Number);
    const network = Math.min(Math.max(Math.floor(number("d", 0)), 0), settings.networks.length - 1);
    if (!data || (query && network !== state.network)) { choice.value = network; use(logits.decode(settings.networks[network]), network); }
    if (query || !before) setAll({ gamma: number("g", 0), temperature: number("t", 1), shifts: shifts.length === start.shifts.length && shifts.every(Number.isFinite) ? shifts : start.shifts });
  }
  addEventListener("hashchange", fromAddress);
  setAll(start);
  fromAddress();
  draw();
  window.explorer = { state, logits, files, load, data: () => data, measure: () => logits.measure(data, state) };
})();
