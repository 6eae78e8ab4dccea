// Keeps form input if the session has ended: it is stored in this tab on submit, and restored if the response was the
// sign-in page. Any other response means that the server has it.

const KEPT = "gymweb.typed";
const user = document.body.dataset.user ?? "";
// Secrets are never stored and must be typed again.
const SKIPPED = "[type=password], [type=hidden], [type=file], [type=submit], [type=button]";

const fieldsOf = (form) => [...form.elements].filter((each) => each.name && !each.matches(`button, fieldset, ${SKIPPED}`));
const pathOf = (form) => new URL(form.getAttribute("action") || location.href, location.href).pathname;
const isChecked = (field) => field.matches("[type=checkbox], [type=radio]");

function keep(form) {
  const isPosted = form.method === "post" || form.hasAttribute("hx-post");
  if (!user || !isPosted || form.matches("[data-theme-switch]")) return;
  const typed = fieldsOf(form).map((each) => [each.name, isChecked(each) ? each.checked : each.multiple ? [...each.selectedOptions].map((one) => one.value) : each.value, each.value]);
  try {
    if (typed.length) sessionStorage.setItem(KEPT, JSON.stringify({ user, path: pathOf(form), typed }));
  } catch {
    // The storage is disabled or full.
  }
}

function read() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT));
  } catch {
    return null;
  }
}

function fill(form, typed) {
  const fields = fieldsOf(form);
  for (const [name, what, value] of typed) {
    const field = fields.find((each) => each.name === name && (!isChecked(each) || each.value === value));
    if (!field) continue;
    if (isChecked(field)) field.checked = what;
    else if (field.multiple) for (const one of field.options) one.selected = what.includes(one.value);
    else field.value = what;
  }
  for (let fold = form.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  const note = document.createElement("p");
  note.className = "message warning";
  note.setAttribute("role", "status");
  note.textContent = "You were signed out, so this was not saved. Your input is restored below. Submit it again.";
  form.prepend(note);
  fields[0].dispatchEvent(new Event("change", { bubbles: true }));
  (fields.find((each) => each.matches("textarea")) ?? fields[0]).focus();
}

function restore() {
  const kept = read();
  if (!kept) return;
  if (!user) {
    // Between form and sign-in, keep only what the server sent back.
    if (document.querySelector("[data-unsent]")) sessionStorage.setItem(KEPT, JSON.stringify({ ...kept, isBack: true }));
    const note = document.querySelector("[data-unsent-kept]");
    if (note) note.hidden = false;
    return;
  }
  sessionStorage.removeItem(KEPT);
  if (!kept.isBack || kept.user !== user) return;
  const form = [...document.forms].find((each) => each.method === "post" && pathOf(each) === kept.path && fieldsOf(each).length);
  if (form) fill(form, kept.typed);
}

document.addEventListener("submit", (event) => { if (!event.defaultPrevented) keep(event.target); });
document.addEventListener("htmx:beforeRequest", (event) => { if (event.target instanceof HTMLFormElement) keep(event.target); });
restore();
