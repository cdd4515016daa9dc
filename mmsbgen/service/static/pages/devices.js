// Comparison of devices by their best configuration for a kernel and a problem.

import { get } from "../api.js";
import { bytes, count, el, failure, measured, named, number, roofed, seconds, table } from "../dom.js";
import { kernelAndProblem } from "./problem.js";

/** The page of devices. */
export async function devicesPage(main, signal) {
  const compared = el("div", { "aria-live": "polite" }, el("p", {}, "Asking …"));
  const listed = el("div", {});
  const place = el("div", {});
  main.append(
    el("h1", {}, "Devices"),
    el("p", {}, "The best known configuration of a kernel on each device of this machine and of the database."),
    place,
    compared,
    el("h2", {}, "What there is"),
    listed,
  );
  const [wanted, found] = await Promise.all([
    kernelAndProblem(signal, () => compare()),
    get("devices", {}, signal),
  ]);
  const devices = merged(found);
  place.append(el("div", { class: "panel" }, wanted.element));
  listed.append(deviceTable(devices), ...found.hints.map((hint) => el("p", { class: "quiet" }, hint)));
  let asked = 0;

  async function compare() {
    const now = (asked += 1);
    compared.setAttribute("aria-busy", "true");
    const query = (device) =>
      new URLSearchParams([
        ["family", wanted.family],
        ["kernel", wanted.kernel],
        ["device", device.query],
        ...Object.entries(wanted.problem).map(([name, value]) => ["problem", `${name}=${value}`]),
      ]);
    const answers = await Promise.all(
      devices.map(async (device) => {
        try {
          const best = await get("best", query(device), signal);
          return { device, best, trial: await trialOf(best, signal) };
        } catch (error) {
          return { device, error };
        }
      }),
    );
    if (now !== asked || signal.aborted) return;
    compared.removeAttribute("aria-busy");
    compared.replaceChildren(comparison(answers));
  }

  await compare();
}

/** The trial of an answer; null for a default, or if the trial cannot be read. */
async function trialOf(best, signal) {
  if (best.trial === null) return null;
  return get(`trials/${best.trial}`, {}, signal).catch(() => null);
}

/** Devices of this machine and of the database, without duplicates. */
function merged({ local, known }) {
  const keys = new Set(known.map((one) => one.key));
  const specs = new Map(local.map((one) => [one.key, one.spec]));
  const here = local
    .filter((one) => !keys.has(one.key))
    .map((one) => ({ ...one, query: one.spec, label: `${one.name} (${one.platform})`, local: true, trials: 0, memory_bytes: one.global_memory }));
  return [...here, ...known.map((one) => ({ ...one, query: specs.get(one.key) ?? one.key }))].sort((a, b) => Number(b.local) - Number(a.local));
}

function comparison(answers) {
  const exact = answers.filter(({ best }) => best?.tier === "exact").map(({ best }) => best.expected_s);
  const slowest = Math.max(...exact, 1e-12);
  const rows = answers.map(({ device, best, trial, error }) => {
    const name = el("div", {}, device.label, device.local ? el("div", { class: "quiet" }, "this machine") : null);
    if (error) return [name, null, null, null, failure(error)];
    const timed = best.tier === "exact";
    return [
      name,
      timed ? measured(seconds(best.expected_s), best.expected_s, slowest) : "not timed for it",
      trial?.roof_fraction ? roofed(trial.roof_fraction) : null,
      el("span", { class: `badge ${best.tier}` }, best.tier),
      el("div", {}, el("div", {}, named(best.configuration)), el("div", { class: "quiet" }, best.reason)),
    ];
  });
  return table("Best known configurations; times where a device was tuned for this very problem, with bars relative to the slowest: shorter is better", ["Device", "#Time", "#Of its roof", "Tier", "Configuration, and why"], rows);
}

function deviceTable(devices) {
  const rows = devices.map((one) => [
    one.label,
    one.driver,
    count(one.compute_units),
    bytes(one.memory_bytes),
    number(one.copy_gbps, 3),
    count(one.trials),
    [one.local ? "this machine" : "", one.shipped ? "records in the package" : ""].filter(Boolean).join(", ") || "database",
  ]);
  return table("Devices", ["Device", "Driver", "#Units", "#Memory", "#Copy, GB/s", "#Trials", "From"], rows);
}
