// Keyboard shortcuts for the table of rollouts: move, select, open, preview. Links, boxes and buttons do the same.

import { menus } from "./gymweb.js";
import * as keys from "./keys.js";

const rows = () => [...document.querySelectorAll("#rollouts tr[data-row]")];
const current = () => document.querySelector("#rollouts tr.chosen");
const linkOf = (row) => row.querySelector("th a");
const boxOf = (row) => row.querySelector("input[name=r]");
const peek = () => document.getElementById("peek");
const isPeeking = () => peek() !== null && !peek().hidden;
// True if the browser has no own action for Space and Enter on the focused element.
const isFree = () => !document.activeElement?.matches("input, button, summary, select, textarea");
// Selected rows of this table in this tab, visible or not. Sorting, paging, filtering and going back keep them.
const KEPT = `gymweb.marks.${document.body.dataset.user}.${location.pathname}`;
const marked = new Set(readMarks());
let lastMarked = null;
let asking = null;

function readMarks() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT)) ?? [];
  } catch {
    return [];
  }
}

function keepMarks() {
  try {
    sessionStorage.setItem(KEPT, JSON.stringify([...marked]));
  } catch {
    // Without storage, they last as long as the page.
  }
}

function choose(row) {
  current()?.classList.remove("chosen");
  row.classList.add("chosen");
  linkOf(row).focus({ preventScroll: true });
  row.scrollIntoView({ block: "nearest" });
  if (isPeeking()) look(row, 150);
}

function move(by) {
  const all = rows();
  const at = all.indexOf(current());
  choose(all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by))]);
}

function look(row, wait = 0) {
  clearTimeout(asking);
  const list = new URL(linkOf(row).href).searchParams.get("list");
  const address = `/rollouts/${row.dataset.row}/peek/${list ? `?list=${encodeURIComponent(list)}` : ""}`;
  peek().hidden = false;
  asking = setTimeout(() => htmx.ajax("GET", address, { target: "#peek", swap: "innerHTML show:none" }), wait);
}

function close() {
  clearTimeout(asking);
  const inside = peek().contains(document.activeElement);
  peek().hidden = true;
  peek().replaceChildren();
  if (inside && current()) linkOf(current()).focus();
}

function mark(row, on) {
  set(row, on);
  lastMarked = row;
  count();
}

function set(row, on) {
  boxOf(row).checked = on;
  if (on) marked.add(row.dataset.row);
  else marked.delete(row.dataset.row);
  keepMarks();
}

function showMarks() {
  for (const row of rows()) if (boxOf(row)) boxOf(row).checked = marked.has(row.dataset.row);
  count();
}

function markRange() {
  const all = rows();
  const from = all.indexOf(lastMarked);
  const to = all.indexOf(current());
  const [first, last] = from < 0 ? [to, to] : [Math.min(from, to), Math.max(from, to)];
  for (const row of all.slice(first, last + 1)) set(row, true);
  lastMarked = current();
  count();
}

function count() {
  const note = document.querySelector("[data-marked]");
  if (!note) return;
  const shown = rows().filter((row) => boxOf(row).checked).length;
  const hidden = marked.size - shown;
  note.textContent = !marked.size ? "Select rollouts for bulk actions."
    : hidden ? `${marked.size} selected, ${hidden} on other pages.` : `${marked.size} selected.`;
  document.querySelector("[data-unmark-all]").hidden = !marked.size;
  const all = document.querySelector("[data-mark-all]");
  all.hidden = false;
  all.checked = shown === rows().length;
  all.indeterminate = shown > 0 && !all.checked;
}

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-mark-all]")) for (const row of rows()) set(row, event.target.checked);
  else if (event.target.matches("#rollouts input[name=r]")) mark(event.target.closest("tr"), event.target.checked);
  count();
});
// Submit selected rows on other pages too.
document.addEventListener("submit", (event) => {
  if (event.target.id !== "marked") return;
  for (const each of event.target.querySelectorAll("[data-carried]")) each.remove();
  const shown = new Set(rows().map((row) => row.dataset.row));
  for (const id of marked) {
    if (shown.has(id)) continue;
    const field = document.createElement("input");
    Object.assign(field, { type: "hidden", name: "r", value: id });
    field.dataset.carried = "";
    event.target.append(field);
  }
});
document.addEventListener("click", (event) => {
  if (event.target.closest("[data-peek-close]")) return close();
  if (event.target.closest("[data-unmark-all]")) {
    marked.clear();
    keepMarks();
    showMarks();
    document.querySelector("[data-mark-all]").focus();
    return undefined;
  }
  const row = event.target.closest("#rollouts tr[data-row]");
  if (row && !event.target.closest("a, input, button, label")) choose(row);
});
document.addEventListener("focusin", (event) => {
  // Continue with the stored selection.
  if (event.target.id === "q") event.target.setSelectionRange(event.target.value.length, event.target.value.length);
  const row = event.target.closest?.("#rollouts tr[data-row]");
  if (row && row !== current()) {
    current()?.classList.remove("chosen");
    row.classList.add("chosen");
  }
});

// Open the counts if there is enough space.
function openFacets() {
  const facets = document.querySelector("[data-facets]");
  if (facets && matchMedia("(min-width: 76rem)").matches) facets.open = true;
}
document.addEventListener("htmx:afterSettle", () => { openFacets(); showMarks(); });
// Browsers restore check boxes; the stored selection is newer.
addEventListener("pageshow", () => {
  marked.clear();
  for (const id of readMarks()) marked.add(id);
  showMarks();
});
openFacets();

const group = "Table";
const when = () => rows().length > 0;
const add = (id, key, label, run, more = () => true) => keys.add({ id: `table.${id}`, keys: key, label, group, run, when: () => when() && more() });
add("next", "j", "Next row", () => move(1));
add("previous", "k", "Previous row", () => move(-1));
add("open", "o", "Open row", () => linkOf(current()).click(), () => current() !== null);
add("enter", "Enter", "Open row (second key)", () => linkOf(current()).click(), () => current() !== null && isFree() && !document.activeElement?.matches("a"));
add("mark", "x", "Select row", () => mark(current(), !boxOf(current()).checked), () => current() !== null && boxOf(current()) !== null);
add("range", "X", "Select all rows from the last selected row to this one", markRange, () => current() !== null && boxOf(current()) !== null);
add("peek", "Space", "Preview row", () => (isPeeking() ? close() : look(current() ?? rows()[0])), isFree);
add("queue", "q", "Send selected to a queue", () => document.getElementById("marked-queue").click(), () => document.getElementById("marked-queue") !== null && marked.size > 0);
add("compare", "c", "Compare selected", () => document.getElementById("marked").requestSubmit(), () => document.getElementById("marked") !== null && marked.size > 0);
add("close", "Escape", "Close preview", close, () => isPeeking() && menus.find() === null);
