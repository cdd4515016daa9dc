// Progress and results of a detection.

import { download, get } from "../api.js";
import { Chart, matrix } from "../charts.js";
import { bytes, count, el, failure, field, measured, number, percent, seconds, table } from "../dom.js";

const PAGE = 50;
const MOST_OF_MATRIX = 30;
const FILES = {
  graph: "the graph, packed",
  "communities.txt": "one community a line",
  "memberships.npz": "memberships and strengths, for NumPy",
  "run.json": "settings, versions and metrics",
};
/** A live chart of the held-out trace. */
export function detectionLive() {
  const chart = new Chart({
    label: "Log-likelihood of a held-out pair over the updates of a vertex",
    x: "updates of a vertex",
    y: "log-likelihood of a held-out pair",
    format: (value) => number(value, 3),
  });
  const points = [];
  const trace = (entries) => chart.show([{ kind: "line", points: entries }]);
  return {
    element: chart.element,
    trace,
    told(data) {
      if (data.making) return `${data.making} …`;
      if (data.log_likelihood !== undefined && data.updates_per_vertex !== points.at(-1)?.[0]) {
        if (data.updates_per_vertex < points.at(-1)?.[0]) points.length = 0; // a new chain has started
        points.push([data.updates_per_vertex, data.log_likelihood]);
        trace(points);
      }
      const auc = data.auc === undefined ? "" : ` · AUC ${number(data.auc, 4)}, perplexity ${number(data.perplexity, 4)}`;
      return `Iteration ${count(data.iteration)} of at most ${count(data.of)}${auc}`;
    },
  };
}

/** The results of a detection. */
export async function detectionResult(place, job, signal, live) {
  const waiting = el("p", {}, "Reading the result … ", el("progress", { "aria-label": "Reading" }));
  place.append(waiting);
  const found = await get(`jobs/${job.id}/result`, {}, signal).finally(() => waiting.remove());
  live.trace(found.trace.map((entry) => [entry.updates_per_vertex, entry.log_likelihood]));
  const members = el("section", { "aria-live": "polite", "aria-label": "Members" });
  place.append(
    summary(found),
    downloads(job),
    el("h2", {}, "Communities"),
    communities(found, (number) => showMembers(members, job.id, number, 0)),
    members,
    el("h2", {}, "Overlap"),
    ...overlap(found),
    el("h2", {}, "A vertex"),
    vertex(job.id, (number) => showMembers(members, job.id, number, 0)),
  );
}

function summary(found) {
  const { validation, test } = found.held_out;
  const told = (pairs) => (pairs ? `AUC ${number(pairs.auc, 4)}, perplexity ${number(pairs.perplexity, 4)}` : "–");
  const spent = Object.values(found.stage_seconds).reduce((sum, one) => sum + one, 0);
  const facts = {
    Verdict: found.verdict.sentence,
    Graph: `${count(found.vertices)} vertices, ${count(found.links)} links`,
    Communities: `${count(found.count)} found (K = ${count(found.n_communities)})`,
    Coverage: `${percent(found.coverage, 1)} of the vertices, each in ${number(found.overlap, 3)} on average`,
    "Validation pairs": told(validation),
    "Test pairs": `${told(test)} (not used in fitting)`,
    Course: found.convergence.text ?? "–",
    Device: `${found.device}, ${seconds(spent)} in all stages`,
  };
  return el(
    "dl",
    { class: "facts" },
    Object.entries(facts).map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text))),
  );
}

function downloads(job) {
  const said = el("div", { "aria-live": "polite" });
  const button = (name, title, text) => {
    const made = el("button", { type: "button", class: "second", title }, text);
    made.addEventListener("click", async () => {
      made.disabled = true;
      said.replaceChildren(el("p", {}, `Getting ${name} …`));
      await download(`jobs/${job.id}/files/${name}`, name).then(
        () => said.replaceChildren(),
        (error) => said.replaceChildren(failure(error)),
      );
      made.disabled = false;
    });
    return made;
  };
  const files = Object.entries(FILES).filter(([name]) => name in job.outputs);
  return el(
    "div",
    { class: "downloads" },
    el("span", {}, "Download"),
    files.map(([name, title]) => button(name, title, `${name} (${bytes(job.outputs[name].bytes)})`)),
    said,
  );
}

function communities(found, choose) {
  const place = el("div", {});
  const largest = found.communities[0]?.size ?? 1;
  let most = 15;

  function draw() {
    const rows = found.communities.slice(0, most).map((one) => [
      el("button", { type: "button", class: "link", onclick: () => choose(one.number) }, `Community ${one.number}${one.background ? " (background)" : ""}`),
      measured(count(one.size), one.size, largest),
      measured(number(one.strength, 3), one.strength),
    ]);
    const more = el("button", { type: "button", class: "second" }, `Show all ${count(found.communities.length)}`);
    more.addEventListener("click", () => {
      most = Infinity;
      draw();
    });
    place.replaceChildren(
      table(
        "The largest first, numbered from 0 as in the files. Bars: members, relative to the largest community; strength in the model, from 0 to 1",
        ["Community", "#Members", "#Strength"],
        rows,
      ),
      ...(found.communities.length > most ? [more] : []),
      ...(found.count > found.communities.length
        ? [el("p", { class: "quiet" }, `${count(found.count - found.communities.length)} smaller ones are in the files.`)]
        : []),
    );
  }

  draw();
  return place;
}

async function showMembers(place, job, number_, offset) {
  try {
    const page = await get(`jobs/${job}/communities/${number_}`, { offset, limit: PAGE });
    const step = (label, to) =>
      el("button", { type: "button", class: "second", disabled: to === null, onclick: () => showMembers(place, job, number_, to) }, label);
    const last = offset + page.members.length;
    place.replaceChildren(
      el("h3", {}, `Members of community ${number_}`),
      el(
        "div",
        { class: "pages" },
        step("Before", offset ? Math.max(0, offset - PAGE) : null),
        el("span", {}, `${count(offset + 1)} to ${count(last)} of ${count(page.size)}`),
        step("After", page.next),
      ),
      el(
        "ul",
        { class: "members" },
        page.members.map((member) =>
          el("li", {}, member.id, " ", el("span", { class: "quiet", title: "membership" }, member.share.toFixed(2))),
        ),
      ),
    );
    place.scrollIntoView({ block: "nearest" });
  } catch (error) {
    place.replaceChildren(failure(error));
  }
}

function overlap(found) {
  const sizes = found.communities.map((one) => one.size);
  const shared = new Map(found.shared.map(([a, b, both]) => [`${a} ${b}`, both]));
  if (!shared.size) return [el("p", {}, "No two of the largest communities share a member.")];
  const both = (a, b) => shared.get(a < b ? `${a} ${b}` : `${b} ${a}`) ?? 0;
  const size = Math.min(MOST_OF_MATRIX, sizes.length);
  const share = (a, b) => both(a, b) / Math.min(sizes[a], sizes[b]);
  const rows = found.shared
    .slice(0, 15)
    .map(([a, b, vertices]) => [`${a} and ${b}`, count(vertices), percent(share(a, b), 1)]);
  return [
    el(
      "div",
      { class: "overlap" },
      el(
        "figure",
        {},
        matrix(size, share, (a, b) => `${a} and ${b}: ${both(a, b)} vertices`, `Shared members of the ${size} largest communities`),
        el("figcaption", { class: "quiet" }, `Communities by number: the stronger the colour, the larger the share of the smaller one that is in both.`),
      ),
      table("Pairs that share most members", ["Communities", "#Vertices", "#Of the smaller"], rows),
    ),
  ];
}

function vertex(job, choose) {
  const id = el("input", { type: "text", required: true, maxlength: 200 });
  const place = el("div", { "aria-live": "polite" });
  const form = el("form", { class: "look-up" }, field("Id, as the graph has it", id), el("button", {}, "Memberships"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const found = await get(`jobs/${job}/vertices`, { id: id.value.trim() });
      const rows = found.memberships.map(([number_, share]) => [
        el("button", { type: "button", class: "link", onclick: () => choose(number_) }, `Community ${number_}`),
        measured(number(share, 3), share),
      ]);
      place.replaceChildren(table(`Memberships of ${found.id}`, ["Community", "#Share"], rows));
    } catch (error) {
      place.replaceChildren(failure(error));
    }
  });
  return el("div", {}, form, place);
}
