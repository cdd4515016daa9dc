// Trials of the tuning database: facets, columns and order, all kept in the address.

import { get } from "../api.js";
import { bytes, count, el, failure, field, named, number, roofed, seconds, table, when } from "../dom.js";

const PAGE = 500;
const SHOWN = 100;
const FACETS = ["kernel", "device", "problem", "status"];
/** Columns: heading, value for the order, and text. Headings that start with # are numbers. */
const COLUMNS = {
  kernel: ["Kernel", (one) => one.kernel],
  device: ["Device", (one) => one.device],
  problem: ["Problem", (one) => named(one.problem)],
  configuration: ["Configuration", (one) => named(one.configuration)],
  status: ["Status", (one) => one.status],
  time: ["#Time", (one) => one.median_s, seconds],
  spread: ["#Spread", (one) => one.spread_s, seconds],
  rate: ["#GB/s", (one) => one.gbps, (value) => number(value, 3)],
  roof: ["#Of the roof", (one) => one.roof_fraction, roofed],
  registers: ["#Registers", (one) => one.registers, count],
  shared: ["#Shared memory", (one) => one.shared_bytes, bytes],
  compile: ["#Compile time", (one) => one.compile_s, seconds],
  compiler: ["Compiler", (one) => one.compiler],
  message: ["Message", (one) => one.message],
  measured: ["Measured", (one) => one.created_at, when],
};
const FIRST = ["kernel", "device", "configuration", "status", "time", "roof"];

/** The page of the database; `view` has its facets, columns and order as a query. */
export async function databasePage(main, signal, view = "") {
  const chosen = new URLSearchParams(view);
  const trials = [];
  let cursor = null;
  let most = SHOWN;
  const controls = el("div", { class: "panel" });
  const place = el("div", { "aria-live": "polite" });
  main.append(
    el("h1", {}, "Tuning database"),
    el("p", {}, "The address has the filters, columns and order: bookmark it to keep this view, or send it to others."),
    controls,
    place,
  );

  const columns = () => (chosen.get("columns")?.split(",") ?? FIRST).filter((name) => name in COLUMNS);
  const passes = (trial, except) =>
    FACETS.every((name) => name === except || !chosen.has(name) || String(COLUMNS[name][1](trial)) === chosen.get(name));

  function change(name, value) {
    if (value) chosen.set(name, value);
    else chosen.delete(name);
    history.replaceState(null, "", `#database/${chosen}`);
    most = SHOWN;
    draw();
  }

  async function more() {
    const page = await get("trials", { limit: PAGE, ...(cursor ? { cursor } : {}) }, signal);
    for (const { times: _, ...trial } of page.trials) trials.push(trial);
    cursor = page.next;
    draw();
  }

  /** A choice among the values of a facet, with the number of trials that the other facets leave for each. */
  function facet(name) {
    const counts = new Map();
    for (const trial of trials.filter((one) => passes(one, name))) {
      const value = COLUMNS[name][1](trial);
      counts.set(value, (counts.get(value) ?? 0) + 1);
    }
    const now = chosen.get(name);
    if (now && !counts.has(now)) counts.set(now, 0);
    const options = [...counts].sort((a, b) => b[1] - a[1]);
    const control = el(
      "select",
      { onchange: (event) => change(name, event.target.value) },
      el("option", { value: "" }, "all"),
      options.map(([value, many]) => el("option", { value, selected: value === now }, `${value} (${count(many)})`)),
    );
    return field(COLUMNS[name][0], control);
  }

  function order() {
    const now = chosen.get("sort") ?? "-measured";
    const of = (sign, text) =>
      Object.entries(COLUMNS).map(([name, [title]]) => {
        const value = sign + name;
        return el("option", { value, selected: value === now }, `${title.replace("#", "")}, ${text}`);
      });
    const reorder = (event) => change("sort", event.target.value);
    return field("Order", el("select", { onchange: reorder }, of("", "ascending"), of("-", "descending")));
  }

  function chooser() {
    const box = (name) => {
      const on = columns();
      const toggle = ({ target }) =>
        change("columns", Object.keys(COLUMNS).filter((one) => (one === name ? target.checked : on.includes(one))).join(","));
      const input = el("input", { type: "checkbox", checked: on.includes(name), onchange: toggle });
      return el("label", { class: "line-check" }, input, COLUMNS[name][0].replace("#", ""));
    };
    return el("details", { open: controls.querySelector("details")?.open }, el("summary", {}, "Columns"), el("div", { class: "row" }, Object.keys(COLUMNS).map(box)));
  }

  function draw() {
    const now = chosen.get("sort") ?? "-measured";
    const [, value] = COLUMNS[now.replace("-", "")] ?? COLUMNS.measured;
    const sign = now.startsWith("-") ? -1 : 1;
    const compare = (a, b) => (a === b ? 0 : (a ?? null) === null ? 1 : (b ?? null) === null ? -1 : a < b ? -sign : sign);
    const found = trials.filter((trial) => passes(trial)).sort((a, b) => compare(value(a), value(b)));
    const rows = found.slice(0, most).map((trial) =>
      columns().map((name) => {
        const [, of, text = (one) => one] = COLUMNS[name];
        return (of(trial) ?? null) === null ? null : String(text(of(trial)));
      }),
    );
    controls.replaceChildren(el("div", { class: "row" }, FACETS.map(facet), order()), chooser());
    const all = () => ((most = Infinity), draw());
    place.replaceChildren(
      found.length
        ? table(`${count(found.length)} of the newest ${count(trials.length)} trials`, columns().map((name) => COLUMNS[name][0]), rows)
        : el("p", {}, trials.length ? "No trial passes these filters." : "The database has no trials yet: tune a kernel."),
      el(
        "div",
        { class: "pages" },
        found.length > most ? el("button", { type: "button", class: "second", onclick: all }, `Show all ${count(found.length)}`) : null,
        cursor ? el("button", { type: "button", class: "second", onclick: () => more().catch((error) => place.append(failure(error))) }, "Load older trials") : null,
      ),
    );
  }

  await more();
}
