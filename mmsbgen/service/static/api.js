// Requests to the service that served this page, with the token stored for this tab.

const TOKEN = "mmsbgen-token";
const API = "/api/v1/";

export const token = () => sessionStorage.getItem(TOKEN) ?? "";

export function keepToken(text) {
  if (text) sessionStorage.setItem(TOKEN, text);
  else sessionStorage.removeItem(TOKEN);
}

/** An error of the service or the network, with the HTTP status (0 without an answer) and the seconds to wait. */
export class ApiError extends Error {
  constructor(status, detail, wait = 0) {
    super(detail);
    this.status = status;
    this.wait = wait;
  }
}

async function send(path, options = {}) {
  const headers = new Headers(options.headers);
  if (token()) headers.set("Authorization", `Bearer ${token()}`);
  let answer;
  try {
    answer = await fetch(API + path, { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, "The service does not answer: it may have been stopped, or the network is down.");
  }
  if (answer.ok) return answer;
  throw await refusal(answer);
}

async function refusal(answer) {
  let detail = `The service answers ${answer.status} ${answer.statusText}`;
  try {
    detail = (await answer.json()).detail ?? detail;
  } catch {
    // Not JSON, such as a proxy's error page: the status is enough.
  }
  if (answer.status === 401) {
    document.getElementById("token").focus();
    detail = token()
      ? "The service does not take this token. It is in the file service-token of its data folder, or was chosen at its start: enter it at the top."
      : "This needs the token of the service: enter it at the top. It is in the file service-token of the service's data folder, or was chosen at its start.";
  }
  return new ApiError(answer.status, detail, Number(answer.headers.get("Retry-After") ?? 0));
}

/** Get a path's JSON; `query` is an object or URLSearchParams. */
export async function get(path, query = {}, signal = undefined) {
  const text = new URLSearchParams(query).toString();
  return (await send(text ? `${path}?${text}` : path, { signal })).json();
}

/** Post a form, or an object as JSON. */
export async function post(path, body = undefined, signal = undefined) {
  if (body === undefined || body instanceof FormData) return (await send(path, { method: "POST", body, signal })).json();
  const headers = { "Content-Type": "application/json" };
  return (await send(path, { method: "POST", headers, body: JSON.stringify(body), signal })).json();
}

/** The content of a file of the API. */
export const blob = async (path) => (await send(path)).blob();

/** Delete what a path names. */
export const remove = (path) => send(path, { method: "DELETE" });

/** Download a file of the API; a plain link could not send the token. */
export async function download(path, name) {
  const url = URL.createObjectURL(await blob(path));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

const pause = (milliseconds, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });

/**
 * Call `told(name, data)` for each event of a job until its end.
 *
 * EventSource cannot send the token, so this function reads the stream itself. If the connection is lost, it calls
 * `lost(error)`, reconnects after the last event and calls `lost(null)`.
 */
export async function follow(job, { told, lost = () => {}, signal }) {
  let last = 0;
  for (;;) {
    try {
      const headers = last ? { "Last-Event-ID": String(last) } : {};
      const answer = await send(`jobs/${job}/events`, { headers, signal });
      if (answer.status === 204) return;
      lost(null);
      for await (const event of events(answer.body)) {
        if (event.id) last = Number(event.id);
        if (!event.data) continue;
        told(event.event, JSON.parse(event.data));
        if (event.event === "end") return;
      }
    } catch (error) {
      if (signal?.aborted) throw error;
      if (error instanceof ApiError && [401, 404, 422].includes(error.status)) throw error;
      lost(error);
    }
    await pause(2000, signal);
  }
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const event = {};
        for (const line of block.split("\n")) {
          const at = line.indexOf(": ");
          if (at > 0) event[line.slice(0, at)] = line.slice(at + 2);
        }
        yield event;
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
