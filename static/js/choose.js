// Selected rows of a form: shows their number, and enables submitting if it is within the limits. A box can select all
// rows. Without this script the server checks the number.

import * as keys from "./keys.js";

// Only forms that open another page have the key: it must not change rows.
const COMPARED = "form[data-choose][method=get]";
const boxes = (form) => [...form.querySelectorAll("input[type=checkbox]:not([data-mark-all])")];

function count(form) {
  const [fewest, most] = form.dataset.choose.split(" ").map(Number);
  const chosen = boxes(form).filter((box) => box.checked).length;
  const all = form.querySelector("[data-mark-all]");
  if (all) {
    all.hidden = false;
    all.checked = chosen === boxes(form).length;
    all.indeterminate = chosen > 0 && !all.checked;
  }
  const note = form.querySelector("[data-chosen]");
  const button = form.querySelector("button[type=submit]");
  if (!note || !button) return;
  // The text of the page names the rows; it comes back when none is selected.
  note.dataset.hint ??= note.textContent;
  const fits = chosen >= fewest && chosen <= most;
  button.setAttribute("aria-disabled", String(!fits));
  note.textContent = chosen > most ? `${chosen} selected; maximum ${most}.`
    : chosen === 0 ? note.dataset.hint
    : `${chosen} selected.`;
}

function countAll() {
  for (const form of document.querySelectorAll("[data-choose]")) count(form);
}

document.addEventListener("change", (event) => {
  const form = event.target.closest("[data-choose]");
  if (!form) return;
  if (event.target.matches("[data-mark-all]")) for (const box of boxes(form)) box.checked = event.target.checked;
  count(form);
});
document.addEventListener("submit", (event) => {
  const button = event.target.matches("[data-choose]") && event.target.querySelector("button[aria-disabled=true]");
  if (button) event.preventDefault();
});
document.addEventListener("htmx:afterSettle", countAll);
addEventListener("pageshow", countAll);
countAll();

keys.add({
  id: "choose.compare",
  keys: "c",
  label: "Compare selected",
  group: "Comparing",
  run: () => document.querySelector(COMPARED).requestSubmit(),
  when: () => document.querySelector(`${COMPARED} button[type=submit][aria-disabled=false]`) !== null,
});
