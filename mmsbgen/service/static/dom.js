// HTML and SVG elements, and formatted numbers. Text is only inserted as text nodes, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** An HTML element; attributes such as `onclick` are functions, children are nodes or texts. */
export const el = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);

/** An SVG element, as `el`. */
export const svg = (tag, attributes = {}, ...children) =>
  filled(document.createElementNS(SVG, tag), attributes, children);

/** A labelled control with a hint below it. */
export function field(label, control, hint = "") {
  const id = `field-${(field.count = (field.count ?? 0) + 1)}`;
  control.id = id;
  if (hint) control.setAttribute("aria-describedby", `${id}-hint`);
  return el(
    "div",
    { class: "field" },
    el("label", { for: id }, label),
    control,
    hint ? el("span", { class: "quiet", id: `${id}-hint` }, hint) : null,
  );
}

/**
 * A table that scrolls if it is too wide; one with many columns becomes cards on narrow screens. Cells are nodes or
 * texts; columns whose title starts with `#` are numbers.
 */
export function table(caption, columns, rows) {
  const numeric = columns.map((name) => name.startsWith("#"));
  const cell = (content, at) =>
    el("td", { class: numeric[at] ? "number" : null, "data-label": columns[at].replace("#", "") }, content ?? "–");
  return el(
    "div",
    { class: columns.length > 4 ? "wide cards" : "wide", tabindex: "0", role: "region", "aria-label": caption },
    el("p", { class: "quiet" }, caption),
    el(
      "table",
      { "aria-label": caption },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          columns.map((name, at) =>
            el("th", { scope: "col", class: numeric[at] ? "number" : null }, name.replace("#", "")),
          ),
        ),
      ),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map(cell)))),
    ),
  );
}

/**
 * A number with a bar: of a share of 1, on a track that is the whole; or, if `largest` is given, of the value relative
 * to it, without a track.
 */
export function measured(text, value, largest = undefined) {
  const width = `${(100 * Math.max(0, value / (largest ?? 1))).toFixed(2)}%`;
  return el(
    "div",
    { class: "measured" },
    el("span", {}, text),
    svg(
      "svg",
      { class: "bar", "aria-hidden": "true" },
      largest === undefined ? svg("rect", { class: "track", width: "100%", height: "100%", rx: 2 }) : null,
      svg("rect", { class: "value", width, height: "100%", rx: 2 }),
    ),
  );
}

/** An error message, announced by screen readers. */
export const failure = (error) => el("p", { class: "error", role: "alert" }, error.message ?? String(error));

export const number = (value, digits = 4) =>
  value === null || value === undefined || !Number.isFinite(value)
    ? "–"
    : Number(value.toPrecision(digits)).toLocaleString("en", { maximumSignificantDigits: digits });

export const count = (value) => (value ?? 0).toLocaleString("en");

export const percent = (share, digits = 0) =>
  share === null || share === undefined ? "–" : `${(100 * share).toFixed(digits)} %`;

/** A share of the roof of gathers; above it there is no whole. */
export const roofed = (share) => (share > 1 ? ">100%" : percent(share));

const scaled = (value, units, step) => {
  let at = 0;
  let rest = value;
  while (at < units.length - 1 && Math.abs(rest) >= step) {
    rest /= step;
    at += 1;
  }
  return `${number(rest, 3)} ${units[at]}`;
};

export const bytes = (value) => scaled(value, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);

/** A duration in seconds as text in a suitable unit. */
export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 120) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
  if (value >= 1) return `${number(value, 3)} s`;
  return scaled(value * 1e9, ["ns", "µs", "ms"], 1000);
}

export const when = (text) => (text ? new Date(text).toLocaleString() : "–");

/** Names and values as text: `a=1 b=2`. */
export const named = (values) =>
  Object.entries(values ?? {})
    .map(([name, value]) => `${name}=${value}`)
    .join(" ");
