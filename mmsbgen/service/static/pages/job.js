// One job: its state, progress and result.

import { follow, get, post, remove } from "../api.js";
import { detectionLive, detectionResult } from "./detection.js";
import { el, failure, when } from "../dom.js";
import { badge, title } from "./jobs.js";
import { tuneLive, tuneResult } from "./tuning.js";

const KINDS = {
  detect: { title: "Detection", live: detectionLive, result: detectionResult, page: "communities", again: prefilled },
  tune: { title: "Tune", live: tuneLive, result: tuneResult, page: "tune", again: resubmitted },
};
const ENDED = ["done", "failed", "cancelled"];

/** Open the form of a detection with the job's graph and settings. */
async function prefilled(job) {
  location.hash = `communities/${job.id}`;
}

async function resubmitted({ payload, device }) {
  location.hash = `job/${(await post("jobs/tune", device ? { ...payload, device } : payload)).id}`;
}

/** The page of a job. */
export async function jobPage(main, signal, id) {
  const job = await get(`jobs/${id}`, {}, signal);
  const kind = KINDS[job.kind];
  document.querySelector(`nav a[href="#${kind.page}"]`).setAttribute("aria-current", "page");
  const state = el("span", { role: "status" });
  const bar = el("progress", { max: 1, "aria-label": "Progress" });
  const doing = el("p", { class: "doing" });
  const notes = el("div", {});
  const messages = el("ol", { class: "messages", role: "log" });
  const result = el("div", {});
  const cancel = el("button", { type: "button", class: "second" }, "Cancel");
  cancel.addEventListener("click", async () => {
    cancel.disabled = true;
    try {
      await post(`jobs/${id}/cancel`);
      doing.textContent = "Asked to end; it does so after what is at hand …";
    } catch (error) {
      cancel.disabled = false;
      notes.replaceChildren(failure(error));
    }
  });
  const again = el("button", { type: "button", class: "second" }, "Run again");
  again.addEventListener("click", () => kind.again(job).catch((error) => notes.replaceChildren(failure(error))));
  const forget = el("button", { type: "button", class: "second" }, "Delete");
  forget.addEventListener("click", async () => {
    if (!confirm("Delete this job and its files?")) return;
    try {
      await remove(`jobs/${id}`);
      location.hash = kind.page;
    } catch (error) {
      notes.replaceChildren(failure(error));
    }
  });
  const live = kind.live(job);
  main.append(
    el("h1", {}, `${kind.title}: ${title(job)} `, state),
    el("p", { class: "quiet" }, `Submitted ${when(job.created_at)} · job ${id}`),
    el("div", { class: "going" }, bar, cancel, again, forget),
    doing,
    notes,
    live.element,
    result,
    el("details", { open: !ENDED.includes(job.state) }, el("summary", {}, "Messages"), messages),
  );

  const showState = (now) => {
    state.replaceChildren(badge(now));
    const over = ENDED.includes(now);
    cancel.hidden = over;
    again.hidden = forget.hidden = !over;
    bar.hidden = over;
    if (now === "queued") doing.textContent = "Waiting for a worker …";
    else if (over) doing.textContent = "";
  };
  const told = {
    state: (data) => {
      showState(data.state);
      if (data.state === "running") doing.textContent = `Taken by ${data.worker ?? "a worker"}; getting ready …`;
    },
    progress: (data) => {
      if ("share" in data) bar.value = data.share;
      doing.textContent = live.told(data);
    },
    message: (data) => messages.append(el("li", {}, el("time", {}, new Date(data.at).toLocaleTimeString()), " ", data.text)),
  };
  showState(job.state);
  await follow(id, {
    signal,
    told: (name, data) => told[name]?.(data),
    lost: (error) => notes.replaceChildren(...(error ? [failure(error), el("p", {}, "Trying again …")] : [])),
  });
  const ended = await get(`jobs/${id}`, {}, signal);
  showState(ended.state);
  if (ended.state === "failed") result.append(failure({ message: `It failed: ${ended.error ?? "no reason is known"}` }));
  if (ended.state === "cancelled") result.append(el("p", {}, "It was cancelled; there is no result."));
  if (ended.state === "done") await kind.result(result, ended, signal, live);
}
