// Keyboard shortcuts for rollouts side by side: a sequence of comparisons, the first difference, a verdict.

import { answerForm } from "./answering.js";
import { menus } from "./gymweb.js";
import * as keys from "./keys.js";

function follow(rel) {
  const link = () => document.querySelector(`a[rel="${rel}"]`);
  return { run: () => link().click(), when: () => link() !== null };
}

keys.add({ id: "comparing.next", keys: "j", label: "Next comparison", group: "Comparing", ...follow("next") });
keys.add({ id: "comparing.previous", keys: "k", label: "Previous comparison", group: "Comparing", ...follow("prev") });
keys.add({
  id: "comparing.divergence",
  keys: "d",
  label: "First difference",
  group: "Comparing",
  run: () => { location.hash = ""; location.hash = "divergence"; },
  when: () => document.getElementById("divergence") !== null,
});

// Verdicts

const group = "Comparing";
const form = document.getElementById("judge-form");
const fold = document.getElementById("compare-judge");
const flag = document.getElementById("compare-flag");
const add = (id, key, label, run, when = () => true) => keys.add({ id: `comparing.${id}`, keys: key, label, group, run, when });
if (form) {
  const { isOpener } = answerForm(form, { id: "comparing", group, reach: () => { fold.open = true; } });
  add("judge", "w", "Choose winner", () => {
    fold.open = !fold.open;
    if (fold.open) fold.scrollIntoView({ block: "nearest" });
  });
  add("submit", "Enter", "Submit verdict", () => form.requestSubmit(), () => fold.open && !isOpener());
}
if (flag) add("flag", "f", "Flag all", () => menus.open(flag, document.getElementById("flag-kind")));
