// Marked rows of a form: says how many are marked, and lets it be sent once there are enough and not too many.
// Without this script the page that is asked says so.

import * as keys from "./keys.js";

function count(form) {
  const [fewest, most] = form.dataset.choose.split(" ").map(Number);
  const chosen = form.querySelectorAll("input[type=checkbox]:checked").length;
  const note = form.querySelector("[data-chosen]");
  const button = form.querySelector("button[type=submit]");
  if (!note || !button) return;
  const fits = chosen >= fewest && chosen <= most;
  button.setAttribute("aria-disabled", String(!fits));
  note.textContent = chosen > most ? `${chosen} marked: at most ${most}.`
    : chosen === 0 ? `Mark ${fewest === most ? fewest : `${fewest} to ${most}`}.`
    : `${chosen} marked.`;
}

function countAll() {
  for (const form of document.querySelectorAll("[data-choose]")) count(form);
}

document.addEventListener("change", (event) => {
  const form = event.target.closest("[data-choose]");
  if (form) count(form);
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
  label: "Compare what is marked",
  group: "Comparing",
  run: () => document.querySelector("[data-choose]").requestSubmit(),
  when: () => document.querySelector("[data-choose] button[type=submit][aria-disabled=false]") !== null,
});
