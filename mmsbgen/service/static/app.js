// Navigation between the pages, and the token field.

import { ApiError, keepToken, token } from "./api.js";
import { communitiesPage } from "./pages/communities.js";
import { databasePage } from "./pages/database.js";
import { devicesPage } from "./pages/devices.js";
import { failure } from "./dom.js";
import { jobPage } from "./pages/job.js";
import { tunePage } from "./pages/tuning.js";

const PAGES = { communities: communitiesPage, tune: tunePage, devices: devicesPage, database: databasePage, job: jobPage };
const main = document.getElementById("main");
let shown = new AbortController();

async function show() {
  shown.abort();
  shown = new AbortController();
  const { signal } = shown;
  const [name, ...rest] = location.hash.slice(1).split("/");
  const page = PAGES[name] ?? PAGES.communities;
  mark(name in PAGES ? name : "communities");
  main.replaceChildren();
  try {
    await page(main, signal, ...rest);
  } catch (error) {
    if (signal.aborted) return;
    if (!(error instanceof ApiError)) console.error(error);
    main.append(failure(error));
  }
}

/** Mark the link of the shown page; the page of a job does so itself when it knows the kind. */
function mark(name) {
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

const field = document.getElementById("token");
const state = document.getElementById("token-state");

function kept() {
  state.textContent = token() ? "kept until this tab closes" : "";
}

/** Take the token out of a link to #token=…, so that it stays neither in the address bar nor in the history. */
function signIn() {
  if (!location.hash.startsWith("#token=")) return;
  keepToken(location.hash.slice("#token=".length));
  history.replaceState(null, "", "#communities");
}

signIn();
field.value = token();
field.addEventListener("input", () => {
  keepToken(field.value.trim());
  kept();
});
document.getElementById("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  // What was entered into a form stays; its page has nothing else that waits for the token.
  if (main.querySelector("form")) main.querySelectorAll("form .error").forEach((one) => one.remove());
  else show();
});
kept();
addEventListener("hashchange", () => {
  signIn();
  field.value = token();
  kept();
  show();
  main.focus({ preventScroll: true });
});
show();
