// Keyboard shortcuts of the quick pass. Radio buttons and the button do the same.

import * as keys from "./keys.js";

const form = document.getElementById("quick-pass");
const items = () => [...form.querySelectorAll(".pass-item")];
const current = () => form.querySelector(".pass-item.chosen");
const group = "Quick pass";
const add = (id, key, label, run) => keys.add({ id: `pass.${id}`, keys: key, label, group, run });

function choose(item) {
  current()?.classList.remove("chosen");
  item.classList.add("chosen");
  item.focus({ preventScroll: true });
  item.scrollIntoView({ block: "nearest" });
}

function move(by) {
  const all = items();
  const at = all.indexOf(current());
  choose(all[at < 0 ? 0 : Math.min(all.length - 1, Math.max(0, at + by))]);
}

const isEmpty = (criterion) => [...criterion.querySelectorAll("input, textarea")].every((each) => (each.type === "radio" ? !each.checked : !each.value));

// Fill in the answer of the current item. Go to its next required criterion without a value, if any, or to the next item.
function answer(key) {
  const field = current().querySelector(`[data-key="${key}"]`);
  if (!field) return;
  field.checked = true;
  const missing = [...current().querySelectorAll("[data-required]")].find(isEmpty);
  if (missing) missing.querySelector("input, textarea").focus();
  else move(1);
}

if (form) {
  form.addEventListener("focusin", (event) => {
    const item = event.target.closest(".pass-item");
    if (item && item !== current()) {
      current()?.classList.remove("chosen");
      item.classList.add("chosen");
    }
  });
  add("next", "j", "Next item", () => move(1));
  add("previous", "k", "Previous item", () => move(-1));
  const labels = new Map([...form.querySelectorAll("[data-key]")].map((field) => [field.dataset.key, field.closest("label").querySelector("span").lastChild.textContent.trim()]));
  for (const [key, label] of labels) add(`answer-${key}`, key, `${label}, then the next question or item`, () => answer(key));
  add("submit", "Enter", "Submit reviews", () => form.requestSubmit());
  if (items().length) choose(form.querySelector("[data-wrong]") ?? items()[0]);
}
