// Controls for a kernel and the parameters of its problem, as the family declares them.

import { get } from "../api.js";
import { el, field } from "../dom.js";

/** Controls with the chosen `kernel` and `problem`; `changed()` is called after each change. */
export async function kernelAndProblem(signal, changed = () => {}) {
  const family = await get("kernels", {}, signal);
  const kernels = family.kernels.filter((one) => one.worth_tuning);
  const kernel = el("select", {}, kernels.map((one) => el("option", { value: one.name }, one.name)));
  if (kernels.some((one) => one.name === "update_phi")) kernel.value = "update_phi";
  const doc = el("p", { class: "quiet" });
  const place = el("div", { class: "row" });
  const chosen = new Map();
  const spec = () => kernels.find((one) => one.name === kernel.value);

  const control = (one) => {
    const first = chosen.get(one.name) ?? one.default;
    if (one.choices.length) {
      return el("select", {}, one.choices.map((value) => el("option", { value, selected: value === first }, value)));
    }
    return el("input", { type: "number", required: true, min: one.minimum, max: one.maximum, value: first });
  };

  function draw() {
    doc.textContent = spec().doc;
    const parts = family.parameters
      .filter((one) => spec().parameters.includes(one.name))
      .map((one) => {
        const made = control(one);
        made.addEventListener("change", () => {
          chosen.set(one.name, made.value);
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
      return kernel.value;
    },
    /** The parameters' values by name; numbers are not texts. */
    get problem() {
      const asked = family.parameters.filter((one) => spec().parameters.includes(one.name));
      return Object.fromEntries(
        asked.map((one) => {
          const value = chosen.get(one.name) ?? one.default;
          return [one.name, one.choices.length ? value : Number(value)];
        }),
      );
    },
  };
}
