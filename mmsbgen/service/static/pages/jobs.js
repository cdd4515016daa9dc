// The list of jobs of a kind; the title and the state of a job.

import { get } from "../api.js";
import { el, failure, percent, table, when } from "../dom.js";

const EVERY_MS = 3000;

/** The title of a job: the graph of a detection, the kernels of a tune. */
export function title(job) {
  const { kernels, name, n_communities: k } = job.payload;
  if (job.kind === "detect") return `${name ?? "graph"}, K\u00a0=\u00a0${k ?? "auto"}`;
  return kernels?.join(", ") ?? "all kernels worth tuning";
}

export const badge = (state) => el("span", { class: `badge ${state}` }, state);

/** A list of the newest jobs of a kind, refreshed while some of them wait or run. */
export function jobList(kind, signal) {
  const place = el("div", {});
  let before = null;

  async function look() {
    try {
      const page = await get("jobs", { kind, limit: 20, ...(before ? { before } : {}) }, signal);
      place.replaceChildren(...shown(page));
      if (page.jobs.some((job) => ["queued", "running"].includes(job.state))) again();
    } catch (error) {
      if (signal.aborted) return;
      place.replaceChildren(failure(error));
      again();
    }
  }

  function again() {
    const timer = setTimeout(look, EVERY_MS);
    signal.addEventListener("abort", () => clearTimeout(timer));
  }

  function shown(page) {
    if (!page.jobs.length) return [el("p", { class: "quiet" }, "None yet.")];
    const rows = page.jobs.map((job) => [
      el("a", { href: `#job/${job.id}` }, title(job)),
      badge(job.state),
      job.state === "running" ? percent(job.progress?.share ?? 0) : "",
      when(job.created_at),
    ]);
    const older = el("button", { type: "button", class: "second" }, "Older jobs");
    older.addEventListener("click", () => {
      before = page.next;
      look();
    });
    return [table("Newest first", ["Job", "State", "#Done", "Submitted"], rows), page.next ? older : null].filter(Boolean);
  }

  look();
  return place;
}
