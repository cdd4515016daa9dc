// Form for a detection, and the list of detections.

import { post } from "../api.js";
import { el, failure, field } from "../dom.js";
import { jobList } from "./jobs.js";

/** The page of detections. */
export async function communitiesPage(main, signal) {
  main.append(
    el("h1", {}, "Communities of a graph"),
    el("p", {}, "Upload the links of a graph and see its overlapping communities as they are found."),
    form(),
    el("h2", {}, "Detections"),
    jobList("detect", signal),
  );
}

function form() {
  const graph = el("input", { type: "file", required: true });
  const k = el("input", { type: "number", min: 2, max: 4096, value: 20, required: true });
  const auto = el("input", { type: "checkbox", id: "auto" });
  auto.addEventListener("change", () => (k.disabled = auto.checked));
  const name = el("input", { type: "text", maxlength: 200 });
  const iterations = el("input", { type: "number", min: 1, placeholder: "until it has settled" });
  const seed = el("input", { type: "number", min: 0, placeholder: "0" });
  const device = el("input", { type: "text", maxlength: 200, placeholder: "any" });
  graph.addEventListener("change", () => {
    name.value = (graph.files[0]?.name ?? "").replace(/(\.(txt|tsv|csv|edges|edgelist))?(\.gz)?$/i, "");
  });
  const said = el("div", { "aria-live": "polite" });
  const button = el("button", {}, "Find communities");
  const body = el(
    "form",
    { class: "panel" },
    field("Graph", graph, "an edge list or a CSV of links, plain or .gz"),
    el(
      "div",
      { class: "row" },
      field("Communities (K)", k),
      el("label", { class: "check", for: "auto" }, auto, "choose K by held-out pairs (slower)"),
    ),
    el(
      "details",
      {},
      el("summary", {}, "More"),
      el(
        "div",
        { class: "row" },
        field("Name", name, "of the graph, for records"),
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
    const options = new URLSearchParams({ n_communities: auto.checked ? "auto" : k.value });
    for (const [key, control] of Object.entries({ name, iterations, seed, device })) {
      if (control.value.trim()) options.set(key, control.value.trim());
    }
    const form = new FormData();
    form.set("graph", graph.files[0]);
    button.disabled = true;
    said.replaceChildren(el("p", {}, "Sending the graph, and having it checked … "), el("progress", { "aria-label": "Sending" }));
    try {
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
