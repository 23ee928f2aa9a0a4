"use strict";
// Axes as SVG text, for the explorer and the classes of a report. The style of a mark is a class of the page, or
// attributes where the picture must stand alone.

const plots = (() => {
  const WIDTH = 400, HEIGHT = 320, LEFT = 56, RIGHT = 12, TOP = 12, BOTTOM = 44;
  const number = (v) => (Number.isFinite(v) ? v.toFixed(2) : "0");
  const styled = (style) => (typeof style === "string" ? { class: style } : style);
  const tag = (name, attributes, content = "") =>
    `<${name} ${Object.entries(attributes).map(([key, value]) => `${key}="${value}"`).join(" ")}>${content}</${name}>`;
  const path = (points, style) =>
    tag("path", { fill: "none", ...styled(style), d: points.map(([x, y], i) => `${i ? "L" : "M"}${number(x)} ${number(y)}`).join("") });
  // A mark with a tip says its numbers.
  const mark = (name, shape, style, tip) => {
    const { class: classes = "", ...more } = styled(style);
    return tag(name, { ...shape, ...more, class: tip ? `${classes} mark` : classes }, tip && tag("title", {}, tip));
  };

  // About five round numbers in a range, of a logarithmic one the usual ones.
  function ticks([low, high], log) {
    if (log) return [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 20, 50].filter((v) => low <= v && v <= high);
    const raw = (high - low) / 5, power = 10 ** Math.floor(Math.log10(raw));
    const step = power * [1, 2, 5, 10].find((factor) => power * factor >= 0.999 * raw);
    const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
    return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toFixed(10)));
  }

  // Axes over [low, high] ranges; `log` makes the first one logarithmic, names stand beside y = 0, 1, ….
  function axes({ x = [0, 1], y = [0, 1], xLabel, yLabel, log = false, yNames = null }) {
    const scale = log ? Math.log : (v) => v;
    const toX = (v) => LEFT + ((scale(v) - scale(x[0])) / (scale(x[1]) - scale(x[0]))) * (WIDTH - LEFT - RIGHT);
    const toY = (v) => HEIGHT - BOTTOM - ((v - y[0]) / (y[1] - y[0])) * (HEIGHT - TOP - BOTTOM);
    const line = { stroke: "var(--muted,#5c6570)", "stroke-width": 1, class: "axis" };
    const words = (left, top, anchor, content, more = {}) => tag("text", { x: number(left), y: number(top), "text-anchor": anchor, ...more }, content);
    const parts = [path([[LEFT, TOP], [LEFT, HEIGHT - BOTTOM], [WIDTH - RIGHT, HEIGHT - BOTTOM]], line)];
    for (const v of ticks(x, log)) {
      parts.push(path([[toX(v), HEIGHT - BOTTOM], [toX(v), HEIGHT - BOTTOM + 4]], line), words(toX(v), HEIGHT - BOTTOM + 17, "middle", v));
    }
    for (const v of yNames ? [] : ticks(y)) parts.push(path([[LEFT - 4, toY(v)], [LEFT, toY(v)]], line), words(LEFT - 7, toY(v) + 4, "end", v));
    yNames?.forEach((name, row) => parts.push(words(LEFT - 7, toY(row) + 4, "end", name)));
    const middle = (HEIGHT - BOTTOM + TOP) / 2;
    parts.push(words((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "middle", xLabel));
    parts.push(words(12, middle, "middle", yLabel, yLabel.length > 2 ? { transform: `rotate(-90 12 ${middle})` } : {}));
    const place = ([a, b]) => [toX(a), toY(b)];
    return {
      // What lies above the plot is left out.
      line(points, style) { parts.push(path(points.filter(([, b]) => b <= y[1]).map(place), style)); },
      dot(a, b, style, tip = "") {
        const [cx, cy] = place([a, Math.min(b, y[1])]).map(number);
        parts.push(mark("circle", { cx, cy, r: 5 }, style, tip));
      },
      bar([a, b], [low, high], style, tip) {
        const [left, top] = place([a, high]), [right, bottom] = place([b, low]);
        parts.push(mark("rect", { x: number(left), y: number(top), width: number(right - left), height: number(bottom - top) }, style, tip));
      },
      // From pixels back to values.
      from(px, py) {
        const share = (px - LEFT) / (WIDTH - LEFT - RIGHT), at = scale(x[0]) + share * (scale(x[1]) - scale(x[0]));
        return [log ? Math.exp(at) : at, y[0] + ((HEIGHT - BOTTOM - py) / (HEIGHT - TOP - BOTTOM)) * (y[1] - y[0])];
      },
      text: () => parts.join(""),
    };
  }

  return { axes, tag, path, number, WIDTH, HEIGHT };
})();
