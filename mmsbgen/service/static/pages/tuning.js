// Form for a tuning run, and its progress and results.

import { get, post } from "../api.js";
import { Chart } from "../charts.js";
import { count, el, failure, field, measured, named, number, percent, roofed, seconds, table } from "../dom.js";
import { searchSpace } from "../space.js";
import { jobList } from "./jobs.js";
import { kernelAndProblem } from "./problem.js";

/** The page of tunes. */
export async function tunePage(main, signal) {
  const place = el("div", {}, el("p", {}, "Asking for the kernels …"));
  main.append(
    el("h1", {}, "Tune a kernel"),
    el("p", {}, "A worker compiles, checks and times configurations on its device; each is shown as it comes."),
    place,
    el("h2", {}, "Tunes"),
    jobList("tune", signal),
  );
  place.replaceChildren(await form(signal));
}

async function form(signal) {
  const wanted = await kernelAndProblem(signal);
  const { local } = await get("devices", {}, signal);
  const device = el(
    "select",
    {},
    el("option", { value: "" }, "of any worker"),
    local.map((one) => el("option", { value: one.name }, `${one.name} (${one.platform})`)),
  );
  const trials = el("input", { type: "number", min: 1, max: 100000, value: 40 });
  const time = el("input", { type: "number", min: 1, max: 604800, placeholder: "no limit" });
  const again = el("input", { type: "checkbox", id: "again" });
  const said = el("div", { "aria-live": "polite" });
  const button = el("button", {}, "Tune");
  const body = el(
    "form",
    { class: "panel" },
    wanted.element,
    el(
      "div",
      { class: "row" },
      el("div", { class: "broad field" }, ...field("Device", device).children),
      field("Trials", trials, "at most"),
      field("Seconds", time, "at most, for a kernel"),
    ),
    el("label", { class: "line-check", for: "again" }, again, "measure again what the database knows"),
    button,
    said,
  );
  body.addEventListener("submit", async (event) => {
    event.preventDefault();
    const request = { family: wanted.family, kernels: [wanted.kernel], problem: wanted.problem, retune: again.checked };
    if (device.value) request.device = device.value;
    if (trials.value) request.budget_trials = Number(trials.value);
    if (time.value) request.budget_seconds = Number(time.value);
    button.disabled = true;
    try {
      location.hash = `job/${(await post("jobs/tune", request)).id}`;
    } catch (error) {
      said.replaceChildren(failure(error));
    } finally {
      button.disabled = false;
    }
  });
  return body;
}

/** A live chart of trials: each a dot, the best so far a line. */
export function tuneLive() {
  const chart = new Chart({
    label: "Time of every configuration measured, and the best so far",
    x: "measurement",
    y: "time of a call",
    format: seconds,
    log: true,
  });
  const best = el("p", { class: "best", "aria-live": "polite" });
  const of = { kernel: null, run: null, trials: new Map() };
  let asking = null;

  function draw() {
    const tried = [...of.trials.values()].sort((a, b) => (a.created_at < b.created_at ? -1 : 1));
    const dots = [];
    const steps = [];
    tried.forEach((trial, at) => {
      if (trial.status !== "ok") return;
      dots.push([at + 1, trial.median_s, `${seconds(trial.median_s)}: ${named(trial.configuration)}`]);
      steps.push([at + 1, Math.min(trial.median_s, steps.at(-1)?.[1] ?? Infinity)]);
    });
    chart.show([{ kind: "steps", points: steps, mark: "second" }, { kind: "dots", points: dots }]);
  }

  /** Fetch new trials, newest first, until a page has a known one. */
  async function ask() {
    const { run, kernel, trials } = of;
    let cursor = null;
    do {
      const page = await get("trials", { run, kernel, limit: 100, ...(cursor ? { cursor } : {}) });
      if (of.run !== run || of.kernel !== kernel) return;
      const fresh = page.trials.filter((trial) => !trials.has(trial.trial));
      for (const { times: _, ...trial } of fresh) trials.set(trial.trial, trial);
      cursor = fresh.length === page.trials.length ? page.next : null;
    } while (cursor);
    draw();
  }

  return {
    element: el("div", {}, best, chart.element, el("p", { class: "quiet" }, "Dots: configurations, finalists at the end once more; line: the best so far.")),
    told(data) {
      if (data.kernel !== of.kernel || data.run !== of.run) {
        Object.assign(of, { kernel: data.kernel, run: data.run, trials: new Map() });
      }
      if (data.run) asking = (asking ?? Promise.resolve()).then(ask).catch((error) => best.replaceChildren(failure(error)));
      if (data.best) {
        const roof = data.roof_fraction ? `, of the roof: ${roofed(data.roof_fraction)}` : "";
        best.textContent = `Best so far: ${seconds(data.best_s)}${roof} with ${named(data.best)}`;
      }
      const known = data.known ? `, ${count(data.known)} known before` : "";
      return `${data.kernel}: ${count(data.trials)} of ${count(data.of)} configurations${known}`;
    },
  };
}

/** A share of the roof with its bar; above 1 there is no whole that a bar could be a share of. */
function roofBar(share) {
  return share === null || share > 1 ? roofed(share) : measured(percent(share), share);
}

/** The results of a tuning run. */
export async function tuneResult(place, job, signal) {
  const { kernels, device, seconds: spent, roofs } = job.result;
  const rows = kernels.map((one) => [
    one.kernel,
    seconds(one.median_s),
    one.speedup_over_default ? `${number(one.speedup_over_default, 3)} ×` : null,
    roofBar(one.roof_fraction),
    one.best ? named(one.best) : one.note || "no configuration works",
    named(one.trials),
  ]);
  place.append(
    el("h2", {}, "Result"),
    el("p", {}, `${device.name} (${device.platform}), ${seconds(spent)}; copy ${number(roofs?.copy, 3)} GB/s, rows at random ${number(roofs?.gather, 3)} GB/s.`),
    table("Winners", ["Kernel", "#Time", "#Over default", "#Of the roof", "Configuration", "Trials"], rows),
    el("p", { class: "quiet" }, "Runs take it from now on where device and problem are these. Above 100 % of the roof, which is that of the memory, the caches hold the data."),
  );
  await searchSpaces(place, job, signal);
}

/** The search space of a kernel of the tune that is chosen, the first one at first. */
async function searchSpaces(place, job, signal) {
  const names = job.result.kernels.filter((one) => one.best).map((one) => one.kernel);
  if (!names.length || !job.result.run) return;
  const kernel = el("select", {}, names.map((name) => el("option", {}, name)));
  const shown = el("div", { "aria-live": "polite" });
  place.append(el("h2", {}, "Search space"), el("div", { class: "row" }, field("Kernel", kernel)), shown);

  async function draw() {
    const query = { run: job.result.run, kernel: kernel.value, status: "ok", limit: 500 };
    const { trials } = await get("trials", query, signal);
    const parts = searchSpace(trials);
    shown.replaceChildren(...(parts.length ? parts : [el("p", {}, "Too few configurations were measured.")]));
  }

  kernel.addEventListener("change", () => draw().catch((error) => shown.replaceChildren(failure(error))));
  await draw();
}
