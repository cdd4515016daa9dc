// SVG charts that are redrawn when their data or width changes.

import { svg } from "./dom.js";

const HEIGHT = 260;
const MARGIN = { top: 12, right: 14, bottom: 44, left: 76 };

/** Tick values: round numbers between `low` and `high`, about `most` of them. */
function ticks(low, high, most) {
  const rough = (high - low) / most || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((one) => one * power >= rough) * power;
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step / 1e6; value += step) found.push(value);
  return found.map((value) => Number(value.toPrecision(10)));
}

function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const one of high / low > 30 ? [1] : high / low > 5 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9]) {
      const value = one * 10 ** power;
      if (value >= low / 1.0001 && value <= high * 1.0001) found.push(Number(value.toPrecision(6)));
    }
  }
  return found;
}

/**
 * A chart of series over two axes.
 *
 * `options`: `label` (what it shows, for screen readers), `x` and `y` (titles of the axes), `format` (of y), `log`
 * (whether y is logarithmic).  `show(series)` draws: each has `points` [[x, y], …], `kind` "line", "steps" or "dots",
 * and `mark`, its class.
 */
export class Chart {
  constructor(options) {
    this.options = { format: String, log: false, ...options };
    this.series = [];
    this.element = document.createElement("figure");
    this.element.className = "chart";
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  show(series) {
    this.series = series;
    this.draw();
  }

  draw() {
    const points = this.series.flatMap((one) => one.points);
    const width = this.element.clientWidth;
    if (!width || !points.length) {
      this.element.replaceChildren();
      return;
    }
    const { log, format, label } = this.options;
    const up = log ? Math.log10 : (value) => value;
    const xs = points.map(([x]) => x);
    const ys = points.map(([, y]) => y);
    let [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    if (left === right) right = left + 1;
    const gap = low === high ? Math.abs(low) * 0.1 || 1 : 0;
    [low, high] = log ? [low / 1.15, high * 1.15] : [low - gap - (high - low) * 0.05, high + gap + (high - low) * 0.05];
    const inner = { width: width - MARGIN.left - MARGIN.right, height: HEIGHT - MARGIN.top - MARGIN.bottom };
    const px = (x) => MARGIN.left + ((x - left) / (right - left)) * inner.width;
    const py = (y) => MARGIN.top + (1 - (up(y) - up(low)) / (up(high) - up(low))) * inner.height;
    const bottom = MARGIN.top + inner.height;
    const parts = (log ? logTicks(low, high) : ticks(low, high, 5)).map((value) =>
      svg(
        "g",
        { class: "tick" },
        svg("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: py(value), y2: py(value) }),
        svg("text", { x: MARGIN.left - 8, y: py(value) + 4, "text-anchor": "end" }, format(value)),
      ),
    );
    for (const value of ticks(left, right, Math.max(2, inner.width / 90))) {
      parts.push(svg("text", { class: "tick", x: px(value), y: bottom + 17, "text-anchor": "middle" }, value));
    }
    parts.push(
      svg("text", { x: MARGIN.left + inner.width / 2, y: HEIGHT - 6, "text-anchor": "middle" }, this.options.x),
      svg(
        "text",
        { transform: `translate(14 ${MARGIN.top + inner.height / 2}) rotate(-90)`, "text-anchor": "middle" },
        this.options.y,
      ),
    );
    for (const one of this.series) parts.push(...this.marks(one, px, py));
    const said = `${label}; ${points.length} points`;
    this.element.replaceChildren(
      svg("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": said }, parts),
    );
  }

  marks({ points, kind, mark = "first" }, px, py) {
    if (kind === "dots") {
      return points.map(([x, y, title]) =>
        svg("circle", { class: `dot ${mark}`, cx: px(x), cy: py(y), r: 3.5 }, title ? svg("title", {}, title) : null),
      );
    }
    const moves = points.map(([x, y], at) => {
      if (!at) return `M${px(x)} ${py(y)}`;
      return kind === "steps" ? `H${px(x)}V${py(y)}` : `L${px(x)} ${py(y)}`;
    });
    const line = svg("path", { class: `line ${mark}`, d: moves.join("") });
    const [x, y] = points.at(-1) ?? [];
    return points.length ? [line, svg("circle", { class: `dot ${mark}`, cx: px(x), cy: py(y), r: 3.5 })] : [];
  }
}

/** A picture of a matrix of shares: `at(row, column)` is the value from 0 to 1, `title(row, column)` its text. */
export function matrix(size, at, title, label) {
  const cells = [];
  for (let one = 0; one < size; one += size > 12 ? 5 : 1) {
    const text = { "font-size": size / 32, "text-anchor": "middle" };
    cells.push(svg("text", { ...text, x: one + 0.47, y: -size / 60 }, one));
    cells.push(svg("text", { ...text, x: -size / 40, y: one + 0.5 + size / 90 }, one));
  }
  for (let row = 0; row < size; row += 1) {
    for (let column = 0; column < size; column += 1) {
      const share = row === column ? null : at(row, column);
      const attributes = { x: column, y: row, width: 0.94, height: 0.94 };
      if (share === null) cells.push(svg("rect", { ...attributes, class: "self" }));
      else if (share > 0) {
        const opacity = (0.15 + 0.85 * Math.min(1, share)).toFixed(3);
        cells.push(
          svg("rect", { ...attributes, class: "shared", "fill-opacity": opacity }, svg("title", {}, title(row, column))),
        );
      }
    }
  }
  return svg("svg", { class: "matrix", viewBox: `${-size / 18} ${-size / 18} ${size * 1.06} ${size * 1.06}`, role: "img", "aria-label": label }, cells);
}
