"use strict";
// Three classes as a triangle; a prediction (q1, q2, q3) is a point of it.

const triangle = (() => {
  const { tag, path, number, WIDTH, HEIGHT } = plots;

  function plot() {
    const side = 312, left = (WIDTH - side) / 2, low = HEIGHT - 22, high = (side * Math.sqrt(3)) / 2;
    const corners = [[left, low], [left + side, low], [left + side / 2, low - high]];
    const at = (q) => [0, 1].map((axis) => q.reduce((sum, v, i) => sum + v * corners[i][axis], 0));
    const parts = [];
    return {
      cell(points, classes) { parts.push(tag("polygon", { class: classes, points: points.map((q) => at(q).map(number)).join(" ") })); },
      arrow(from, to, classes) {
        const [[x0, y0], [x1, y1]] = [at(from), at(to)];
        const length = Math.hypot(x1 - x0, y1 - y0), angle = Math.atan2(y1 - y0, x1 - x0);
        const head = Math.min(6, 0.6 * length), wing = (turn) => [x1 - head * Math.cos(angle + turn), y1 - head * Math.sin(angle + turn)];
        parts.push(path([[x0, y0], [x1, y1]], classes), path([wing(0.45), [x1, y1], wing(-0.45)], `${classes} head`));
      },
      dot(q, classes) { const [cx, cy] = at(q).map(number); parts.push(tag("circle", { cx, cy, r: 5, class: classes })); },
      text() {
        const names = [[-12, 6], [12, 6], [0, -6]].map(([dx, dy], i) =>
          tag("text", { x: number(corners[i][0] + dx), y: number(corners[i][1] + dy), "text-anchor": "middle" }, `${i + 1}`));
        return [...parts, path([...corners, corners[0]], "axis"), ...names].join("");
      },
    };
  }

  // The prediction of i, j and the other steps of 1/steps.
  const point = (steps, i, j) => [i, j, steps - i - j].map((k) => k / steps);

  // Predictions with all probabilities a positive multiple of 1/steps.
  function innerGrid(steps) {
    const points = [];
    for (let i = 1; i < steps; i++) for (let j = 1; i + j < steps; j++) points.push(point(steps, i, j));
    return points;
  }

  // Small triangles that cover the whole one.
  function cells(steps) {
    const at = (i, j) => point(steps, i, j), found = [];
    for (let i = 0; i < steps; i++) for (let j = 0; i + j < steps; j++) {
      found.push([at(i, j), at(i + 1, j), at(i, j + 1)]);
      if (i + j + 1 < steps) found.push([at(i + 1, j), at(i + 1, j + 1), at(i, j + 1)]);
    }
    return found;
  }

  return { plot, innerGrid, cells };
})();
