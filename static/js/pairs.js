// Keyboard shortcuts for pairs, on the page of a pair and in the table of a set. Links, boxes and buttons do the same.

import { announce, csrf } from "./gymweb.js";
import * as keys from "./keys.js";

const form = document.getElementById("decide");
const button = (status) => (form ?? document.getElementById("decide-marked"))?.querySelector(`button[value=${status}]`);
const reason = () => document.querySelector("#decide [name=reason], #decide-marked [name=reason]");
const group = "Pairs";
const add = (id, key, label, run, when) => keys.add({ id: `pairs.${id}`, keys: key, label, group, run, when });

document.addEventListener("input", (event) => { if (event.target === reason()) event.target.setCustomValidity(""); });
document.addEventListener("click", (event) => {
  const pressed = event.target.closest("button[name=status]");
  if (!pressed || !reason()) return;
  reason().setCustomValidity(pressed.value === "rejected" && !reason().value.trim() ? "Enter a reason." : "");
}, true);

function reject() {
  reason().focus();
  reason().select();
}

// The table

const rows = () => [...document.querySelectorAll("#pair-table tr[data-row]")];
const current = () => document.querySelector("#pair-table tr.chosen");
const boxOf = (row) => row.querySelector("input[name=pair]");
const marked = () => rows().filter((row) => boxOf(row)?.checked);
let isDeciding = false;
let after = null;

function choose(row) {
  current()?.classList.remove("chosen");
  row.classList.add("chosen");
  row.querySelector("th a").focus({ preventScroll: true });
  row.scrollIntoView({ block: "nearest" });
  tellWhich();
}

function move(by) {
  const all = rows();
  const at = all.indexOf(current());
  choose(all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by))]);
}

// Decide the selected rows, or the current row without a selection.
function decide(status) {
  if (form) return button(status).click();
  if (isDeciding) return undefined;
  const all = rows();
  const at = all.indexOf(current());
  const alone = marked().length === 0 && at >= 0 ? all[at] : null;
  const goesOn = alone !== null && status !== "proposed";
  after = { row: all[goesOn ? at + 1 : at]?.dataset.row, at };
  if (alone) boxOf(alone).checked = true;
  button(status).click();
  // Nothing was sent, because the reason is missing.
  if (!isDeciding && alone) boxOf(alone).checked = false;
  return undefined;
}

function showWhichAll(many) {
  const all = document.querySelector("#pair-table [data-mark-all]");
  if (!all) return;
  all.hidden = false;
  all.checked = many === rows().length;
  all.indeterminate = many > 0 && !all.checked;
}

function tellWhich() {
  if (!document.getElementById("decide-marked")) return;
  const many = marked().length;
  showWhichAll(many);
  reason().placeholder = many ? `Reason for the ${many} selected` : current() ? `Reason for #${current().dataset.row}` : "";
}

document.addEventListener("focusin", (event) => {
  const row = event.target.closest?.("#pair-table tr[data-row]");
  if (!row || row === current()) return;
  current()?.classList.remove("chosen");
  row.classList.add("chosen");
  tellWhich();
});
document.addEventListener("change", (event) => {
  if (event.target.matches("#pair-table [data-mark-all]")) for (const row of rows()) boxOf(row).checked = event.target.checked;
  if (event.target.matches("#pair-table :is([data-mark-all], input[name=pair])")) tellWhich();
});
document.addEventListener("htmx:beforeRequest", (event) => { if (event.target.id === "decide-marked") isDeciding = true; });
document.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.requestConfig.elt.id !== "decide-marked") return;
  isDeciding = false;
  if (event.detail.successful) return;
  after = null;
  for (const row of marked()) boxOf(row).checked = false;
  tellWhich();
});
document.addEventListener("htmx:afterSettle", tellWhich);
// The rows were replaced: continue at the same position.
document.addEventListener("htmx:afterSettle", () => {
  if (!after || !rows().length) return;
  const all = rows();
  const row = all.find((each) => each.dataset.row === after.row) ?? all[Math.min(Math.max(0, after.at), all.length - 1)];
  after = null;
  choose(row);
});

// Page of a pair: decisions are sent without leaving the page, so that a lost connection loses nothing.

let isSent = false;

async function send(status) {
  if (isSent) return;
  isSent = true;
  const why = reason().value.trim();
  try {
    const reply = await fetch(`/api/v1/pairs/${form.dataset.pair}/decide/`, {
      method: "POST",
      headers: { "X-CSRFToken": csrf(), "Content-Type": "application/json" },
      body: JSON.stringify(why ? { status, reason: why } : { status }),
    });
    if (reply.ok) {
      const here = location.pathname + location.search;
      location.assign(status === "proposed" ? here : form.dataset.next || here);
      return;
    }
    const told = await reply.json().catch(() => ({}));
    announce((told.errors ?? []).map((each) => each.message).join(" ") || told.detail || `Server error (${reply.status}).`);
  } catch {
    announce("No connection. Nothing was saved. Try again when you are online.");
  }
  isSent = false;
}

form?.addEventListener("submit", (event) => {
  event.preventDefault();
  send(event.submitter?.value ?? "rejected");
});
addEventListener("pageshow", () => { isSent = false; });

tellWhich();

const isTable = () => rows().length > 0;
const link = (rel) => document.querySelector(`.page-head a[rel=${rel}]`);
const has = () => button("accepted") !== null && button("accepted") !== undefined && (form !== null || current() !== null || marked().length > 0);
add("next", "j", form ? "Next pair" : "Next row", () => (form || !isTable() ? link("next").click() : move(1)), () => isTable() || link("next") !== null);
add("previous", "k", form ? "Previous pair" : "Previous row", () => (form || !isTable() ? link("prev").click() : move(-1)), () => isTable() || link("prev") !== null);
add("accept", "a", "Accept and next", () => decide("accepted"), has);
add("reject", "x", "Reject: enter a reason, then Enter", reject, has);
// Text in this field is a reason to reject, so Enter does not accept.
keys.add({ id: "pairs.reject-with", keys: "Enter", label: "Reject with this reason", group, run: () => decide("rejected"), when: () => reason() !== null && document.activeElement === reason(), whileTyping: true });
add("back", "u", "Reset to proposed", () => decide("proposed"), () => has() && Boolean(button("proposed")));
add("open", "o", "Open row", () => current().querySelector("th a").click(), () => current() !== null);
add("mark", "m", "Select row", () => {
  boxOf(current()).checked = !boxOf(current()).checked;
  tellWhich();
}, () => current() !== null && boxOf(current()) !== null);
