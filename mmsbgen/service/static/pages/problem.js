// Controls for a kernel and the parameters of its problem, as the family declares them.

import { get } from "../api.js";
import { el, field } from "../dom.js";

/** Controls with the chosen `family`, `kernel` and `problem`; `changed()` is called after each change. */
export async function kernelAndProblem(signal, changed = () => {}) {
  const { families } = await get("kernels", {}, signal);
  const all = await Promise.all(families.map((name) => get("kernels", { family: name }, signal)));
  const kernels = all.flatMap((one) => one.kernels.filter((kernel) => kernel.worth_tuning));
  const several = (name) => kernels.filter((one) => one.name === name).length > 1;
  const named = (one) => (several(one.name) ? `${one.family}/${one.name}` : one.name);
  const kernel = el("select", {}, kernels.map((one) => el("option", { value: named(one) }, named(one))));
  const first = kernels.find((one) => one.name === "update_phi") ?? kernels[0];
  kernel.value = named(first);
  const doc = el("p", { class: "quiet" });
  const place = el("div", { class: "row" });
  const chosen = new Map();
  const spec = () => kernels.find((one) => named(one) === kernel.value);
  const parameters = () =>
    all.find((one) => one.family === spec().family).parameters.filter((one) => spec().parameters.includes(one.name));

  const key = (one) => `${spec().family} ${one.name}`;
  const control = (one) => {
    const first = chosen.get(key(one)) ?? one.default;
    if (one.choices.length) {
      return el("select", {}, one.choices.map((value) => el("option", { value, selected: value === first }, value)));
    }
    return el("input", { type: "number", required: true, min: one.minimum, max: one.maximum, value: first });
  };

  function draw() {
    doc.textContent = spec().doc;
    const parts = parameters().map((one) => {
      const made = control(one);
      made.addEventListener("change", () => {
        chosen.set(key(one), made.value);
        changed();
      });
      return field(one.name, made, one.doc);
    });
    place.replaceChildren(...parts);
  }

  kernel.addEventListener("change", () => {
    draw();
    changed();
  });
  draw();
  return {
    element: el("div", {}, el("div", { class: "row" }, field("Kernel", kernel)), doc, place),
    get kernel() {
      return spec().name;
    },
    get family() {
      return spec().family;
    },
    /** The parameters' values by name; numbers are not texts. */
    get problem() {
      return Object.fromEntries(
        parameters().map((one) => {
          const value = chosen.get(key(one)) ?? one.default;
          return [one.name, one.choices.length ? value : Number(value)];
        }),
      );
    },
  };
}
