"use strict";
// Plots as SVG text: an axes with ticks, and the triangle of three classes. What they show is decided in page.js.

const plots = (() => {
  const WIDTH = 400, HEIGHT = 320, LEFT = 56, RIGHT = 12, TOP = 12, BOTTOM = 44;
  const number = (v) => (Number.isFinite(v) ? v.toFixed(2) : "0");
  const tag = (name, attributes, content = "") =>
    `<${name} ${Object.entries(attributes).map(([key, value]) => `${key}="${value}"`).join(" ")}>${content}</${name}>`;
  const path = (points, classes) =>
    tag("path", { class: classes, d: points.map(([x, y], i) => `${i ? "L" : "M"}${number(x)} ${number(y)}`).join("") });

  // Axes over [low, high] ranges; `log` makes the first one logarithmic.
  function axes({ x, y, xTicks, yTicks, xLabel, yLabel, log = false, yNames = [] }) {
    const scale = log ? Math.log : (v) => v;
    const toX = (v) => LEFT + ((scale(v) - scale(x[0])) / (scale(x[1]) - scale(x[0]))) * (WIDTH - LEFT - RIGHT);
    const toY = (v) => HEIGHT - BOTTOM - ((v - y[0]) / (y[1] - y[0])) * (HEIGHT - TOP - BOTTOM);
    const parts = [path([[LEFT, TOP], [LEFT, HEIGHT - BOTTOM], [WIDTH - RIGHT, HEIGHT - BOTTOM]], "axis")];
    for (const v of xTicks) {
      parts.push(path([[toX(v), HEIGHT - BOTTOM], [toX(v), HEIGHT - BOTTOM + 4]], "axis"));
      parts.push(tag("text", { x: number(toX(v)), y: HEIGHT - BOTTOM + 17, "text-anchor": "middle" }, `${v}`));
    }
    for (const v of yTicks) {
      parts.push(path([[LEFT - 4, toY(v)], [LEFT, toY(v)]], "axis"));
      parts.push(tag("text", { x: LEFT - 7, y: number(toY(v) + 4), "text-anchor": "end" }, `${v}`));
    }
    yNames.forEach((name, row) => parts.push(tag("text", { x: LEFT - 7, y: number(toY(row) + 4), "text-anchor": "end" }, `${name}`)));
    const middle = (HEIGHT - BOTTOM + TOP) / 2;
    parts.push(tag("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 8, "text-anchor": "middle" }, xLabel));
    parts.push(tag("text", { x: 12, y: middle, "text-anchor": "middle", transform: yLabel.length > 2 ? `rotate(-90 12 ${middle})` : "" }, yLabel));
    const place = ([a, b]) => [toX(a), toY(b)];
    return {
      // What lies above the plot is left out.
      line(points, classes) { parts.push(path(points.filter(([, b]) => b <= y[1]).map(place), classes)); },
      dot(a, b, classes, tip = "") {
        const [cx, cy] = place([a, Math.min(b, y[1])]);
        parts.push(tag("circle", { cx: number(cx), cy: number(cy), r: 5, class: tip ? `${classes} mark` : classes }, tip && tag("title", {}, tip)));
      },
      bar([a, b], [low, high], classes, tip, opacity = 1) {
        const [left, top] = place([a, high]), [right, bottom] = place([b, low]);
        const shape = { x: number(left), y: number(top), width: number(right - left), height: number(bottom - top) };
        parts.push(tag("rect", { ...shape, class: `${classes} mark`, "fill-opacity": opacity }, tag("title", {}, tip)));
      },
      // From pixels back to values.
      from(px, py) {
        const share = (px - LEFT) / (WIDTH - LEFT - RIGHT), at = scale(x[0]) + share * (scale(x[1]) - scale(x[0]));
        return [log ? Math.exp(at) : at, y[0] + ((HEIGHT - BOTTOM - py) / (HEIGHT - TOP - BOTTOM)) * (y[1] - y[0])];
      },
      text: () => parts.join(""),
    };
  }

  // Three classes as a triangle; a prediction (q1, q2, q3) is a point of it.
  function triangle() {
    const side = 312, left = (WIDTH - side) / 2, low = HEIGHT - 22, high = (side * Math.sqrt(3)) / 2;
    const corners = [[left, low], [left + side, low], [left + side / 2, low - high]];
    const at = (q) => [0, 1].map((axis) => q.reduce((sum, v, i) => sum + v * corners[i][axis], 0));
    const parts = [];
    return {
      at,
      cell(points, classes) { parts.push(tag("polygon", { class: classes, points: points.map((q) => at(q).map(number)).join(" ") })); },
      arrow(from, to, classes) {
        const [[x0, y0], [x1, y1]] = [at(from), at(to)];
        const length = Math.hypot(x1 - x0, y1 - y0), angle = Math.atan2(y1 - y0, x1 - x0);
        const head = Math.min(6, 0.6 * length), wing = (turn) => [x1 - head * Math.cos(angle + turn), y1 - head * Math.sin(angle + turn)];
        parts.push(path([[x0, y0], [x1, y1]], classes), path([wing(0.45), [x1, y1], wing(-0.45)], `${classes} head`));
      },
      dot(q, classes) { const [cx, cy] = at(q); parts.push(tag("circle", { cx: number(cx), cy: number(cy), r: 5, class: classes })); },
      text() {
        const names = [[-12, 6], [12, 6], [0, -6]].map(([dx, dy], i) =>
          tag("text", { x: number(corners[i][0] + dx), y: number(corners[i][1] + dy), "text-anchor": "middle" }, `${i + 1}`));
        return [...parts, path([...corners, corners[0]], "axis"), ...names].join("");
      },
    };
  }

  // Predictions with all probabilities a positive multiple of 1/steps.
  function innerGrid(steps) {
    const points = [];
    for (let i = 1; i < steps; i++) for (let j = 1; i + j < steps; j++) points.push([i, j, steps - i - j].map((k) => k / steps));
    return points;
  }

  // Small triangles that cover the whole one.
  function cells(steps) {
    const point = (i, j) => [i, j, steps - i - j].map((k) => k / steps);
    const found = [];
    for (let i = 0; i < steps; i++) for (let j = 0; i + j < steps; j++) {
      found.push([point(i, j), point(i + 1, j), point(i, j + 1)]);
      if (i + j + 1 < steps) found.push([point(i + 1, j), point(i + 1, j + 1), point(i, j + 1)]);
    }
    return found;
  }

  return { axes, triangle, innerGrid, cells, WIDTH, HEIGHT };
})();
