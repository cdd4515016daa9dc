// Form for a detection, and the list of detections.

import { blob, get, post } from "../api.js";
import { el, failure, field } from "../dom.js";
import { jobList, title } from "./jobs.js";

/** The page of detections; the form has graph and settings of the job `again`, if one is given. */
export async function communitiesPage(main, signal, again = undefined) {
  const before = again ? await get(`jobs/${again}`, {}, signal) : null;
  main.append(
    el("h1", {}, "Communities of a graph"),
    el("p", {}, "Upload the links of a graph and see its overlapping communities as they are found."),
    form(before),
    el("h2", {}, "Detections"),
    jobList("detect", signal),
  );
}

function form(before) {
  const graph = el("input", { type: "file", required: true });
  const k = el("input", { type: "number", min: 1, max: 4096, placeholder: "auto" });
  const name = el("input", { type: "text", maxlength: 200 });
  const columns = el("input", { type: "text", maxlength: 200, placeholder: "found" });
  const weights = el("input", { type: "text", maxlength: 200, placeholder: "none" });
  const iterations = el("input", { type: "number", min: 1, placeholder: "until it has settled" });
  const seed = el("input", { type: "number", min: 0, placeholder: "0" });
  const device = el("input", { type: "text", maxlength: 200, placeholder: "any" });
  graph.addEventListener("change", () => {
    name.value = (graph.files[0]?.name ?? "").replace(/(\.(txt|tsv|csv|edges|edgelist))?(\.gz)?$/i, "");
  });
  const settings = { name, columns, weights, iterations, seed, device };
  const kept = Boolean(before?.outputs.graph);
  if (before) {
    const given = { ...before.payload, device: before.device };
    for (const [key, control] of Object.entries(settings)) control.value = given[key] ?? "";
    k.value = given.n_communities ?? ""; // "auto" is no number, and leaves it empty
    graph.required = !kept;
  }
  const said = el("div", { "aria-live": "polite" });
  const button = el("button", {}, "Find communities");
  const body = el(
    "form",
    { class: "panel" },
    field("Graph", graph, kept ? `${title(before)}: its graph, unless you choose another` : "an edge list or a CSV of links, plain or .gz"),
    el("div", { class: "row" }, field("Communities (K)", k, "held-out pairs choose, if it is empty")),
    el(
      "details",
      { open: before !== null },
      el("summary", {}, "More"),
      el(
        "div",
        { class: "row" },
        field("Name", name, "of the graph, for records"),
        field("Columns", columns, "of a table: A,B or A,B,W"),
        field("Weights", weights, "ignore, or threshold=X"),
        field("Iterations", iterations, "at most"),
        field("Seed", seed),
        field("Device", device, "a part of its name"),
      ),
    ),
    button,
    said,
  );
  body.addEventListener("submit", async (event) => {
    event.preventDefault();
    // Options of a job of the API that the form does not show stay as they are.
    const others = Object.entries(before?.payload ?? {}).filter(([key]) => !(key in settings));
    const options = new URLSearchParams(others);
    options.set("n_communities", k.value || "auto");
    for (const [key, control] of Object.entries(settings)) {
      if (control.value.trim()) options.set(key, control.value.trim());
    }
    const form = new FormData();
    button.disabled = true;
    said.replaceChildren(el("p", {}, "Sending the graph, and having it checked … "), el("progress", { "aria-label": "Sending" }));
    try {
      form.set("graph", graph.files[0] ?? (await blob(`jobs/${before.id}/files/graph`)));
      const job = await post(`jobs/detect?${options}`, form);
      location.hash = `job/${job.id}`;
    } catch (error) {
      said.replaceChildren(failure(error));
    } finally {
      button.disabled = false;
    }
  });
  return body;
}
