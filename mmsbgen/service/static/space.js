// What a tune found about its search space: the importance of axes, and parallel coordinates.

import { el, measured, named, percent, seconds, svg, table } from "./dom.js";

const HEIGHT = 300;
const TOP = 40;
const FASTEST = 0.1;

/** The newest trial of each configuration that works, the fastest last; `trials` are newest first. */
function newest(trials) {
  const found = new Map();
  for (const trial of trials) {
    const key = named(trial.configuration);
    if (trial.status === "ok" && !found.has(key)) found.set(key, trial);
  }
  return [...found.values()].sort((a, b) => b.median_s - a.median_s);
}

const values = (trials, axis) =>
  [...new Set(trials.map((trial) => trial.configuration[axis]))].sort((a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)),
  );

/** The axes that trials differ in. */
const varied = (trials) =>
  [...new Set(trials.flatMap((trial) => Object.keys(trial.configuration)))].filter(
    (axis) => values(trials, axis).length > 1,
  );

/**
 * The share of the variance of the logarithm of time that an axis alone explains, corrected for what as many groups
 * would explain by chance (epsilon squared of a one-way analysis of variance); null with too few trials.
 */
export function importance(trials, axis) {
  const groups = values(trials, axis).map((value) =>
    trials.filter((trial) => trial.configuration[axis] === value).map((trial) => Math.log(trial.median_s)),
  );
  const free = trials.length - groups.length;
  const squares = (logs) => {
    const mean = logs.reduce((sum, one) => sum + one, 0) / logs.length;
    return logs.reduce((sum, one) => sum + (one - mean) ** 2, 0);
  };
  const total = squares(groups.flat());
  if (free < 1 || total === 0) return null;
  const within = groups.reduce((sum, logs) => sum + squares(logs), 0);
  return Math.max(0, (total - within - ((groups.length - 1) * within) / free) / total);
}

/** The table of importance and the parallel coordinates of trials; nothing with fewer than four configurations. */
export function searchSpace(trials) {
  const tried = newest(trials);
  if (tried.length < 4) return [];
  const axes = varied(tried)
    .map((axis) => [axis, importance(tried, axis)])
    .sort((a, b) => (b[1] ?? -1) - (a[1] ?? -1));
  const rows = axes.map(([axis, share]) => [
    axis,
    share === null ? null : measured(percent(share), share),
    values(tried, axis).join(", "),
  ]);
  return [
    table(
      `Importance: share of the variance of log(time) that the parameter alone explains, corrected for chance; ${tried.length} configurations`,
      ["Parameter", "#Importance", "Values tried"],
      rows,
    ),
    parallel(tried, axes.map(([axis]) => axis)),
  ];
}

/** A line for each configuration across its values and its time; the fastest are drawn last and in colour. */
function parallel(trials, axes) {
  const width = Math.max(640, 120 * axes.length);
  const px = (at) => 60 + (at / axes.length) * (width - 130);
  const bottom = HEIGHT - 15;
  const place = (share) => bottom - share * (bottom - TOP - 20);
  const [slow, fast] = [trials[0], trials.at(-1)].map((trial) => Math.log(trial.median_s));
  const time = (trial) => place((slow - Math.log(trial.median_s)) / (slow - fast || 1));
  const shown = axes.map((axis) => values(trials, axis));
  const py = (trial, at) => place(shown[at].indexOf(trial.configuration[axes[at]]) / (shown[at].length - 1));
  const leading = trials.length - Math.max(1, Math.round(FASTEST * trials.length));
  const lines = trials.map((trial, rank) => {
    const points = [...axes.map((_, at) => `${px(at)} ${py(trial, at)}`), `${px(axes.length)} ${time(trial)}`];
    const title = svg("title", {}, `${seconds(trial.median_s)}: ${named(trial.configuration)}`);
    return svg("path", { class: `across ${rank >= leading ? "fast" : ""}`, d: `M${points.join("L")}` }, title);
  });
  const axis = (at, name, marks) =>
    svg(
      "g",
      { class: "tick" },
      svg("line", { x1: px(at), x2: px(at), y1: TOP + 20, y2: bottom }),
      // Neighbours' names are on two lines, so that long ones do not meet.
      svg("text", { x: px(at), y: TOP - (at % 2 ? 4 : 22), "text-anchor": "middle" }, name),
      marks.map(([share, text]) => svg("text", { class: "mark", x: px(at) + 5, y: place(share) + 4 }, text)),
    );
  const label = `Parallel coordinates of ${trials.length} configurations over ${axes.join(", ")} and time`;
  return el(
    "figure",
    { class: "wide chart", tabindex: "0", role: "region", "aria-label": "Parallel coordinates" },
    svg(
      "svg",
      { width, height: HEIGHT, role: "img", "aria-label": label },
      lines,
      axes.map((name, at) => axis(at, name, shown[at].map((value, rank) => [rank / (shown[at].length - 1), value]))),
      axis(axes.length, "time, fast at the top", [[0, seconds(trials[0].median_s)], [1, seconds(trials.at(-1).median_s)]]),
    ),
    el("figcaption", { class: "quiet" }, "A line is a configuration; the fastest tenth is in colour."),
  );
}
