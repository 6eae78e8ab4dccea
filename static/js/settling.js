// Keyboard shortcuts for adjudication, as on the work page. Input stays in this browser until the server has it.

import { answerForm } from "./answering.js";
import * as drafts from "./drafts.js";
import * as keys from "./keys.js";
import { addMarkdownSwitch } from "./sides.js";
import { explainSession, post, warn } from "./unsent.js";

const DRAFT_MS = 300;
const form = document.getElementById("settle-form");
const group = "Adjudicating";
const kind = form?.dataset.kind;
const { read, write, readServed, changed, showWrong, findMissing, isOpener } = form ? answerForm(form, { id: "settle", group }) : {};
const add = (id, key, label, run, when = () => !waits) => keys.add({ id: `settle.${id}`, keys: key, label, group, run, when });
// By user, because leaders share items.
const kept = form && `item-${form.dataset.item}.${document.body.dataset.user}`;
let waits = false;
let isChanged = false;
let timer = null;

const shown = document.querySelector(".work-shown");
const box = document.createElement("div");
box.className = "switches";
addMarkdownSwitch(shown, box);
if (box.childElementCount) shown.prepend(box);

// The draft. If the adjudication changed since, neither replaces the other automatically.

const saved = document.getElementById("settle-saved");

function keep() {
  clearTimeout(timer);
  isChanged = false;
  if (waits) return;
  drafts.keep(kept, read());
  saved.textContent = "stored in this browser until you submit";
}

function takeDraft() {
  const draft = drafts.open(kept, readServed());
  if (draft) write(draft);
  drafts.showAsides(document.getElementById("review-asides"), kept, read, (taken) => {
    write(taken);
    changed();
  });
}

// Sending

async function send() {
  if (waits) return;
  const answer = read();
  const missing = findMissing(answer);
  if (missing) return warn(missing);
  keep();
  waits = true;
  form.inert = true;
  form.setAttribute("aria-busy", "true");
  let said = "";
  let wrong = [];
  try {
    const body = { ...answer, token: form.elements.token.value, saw_votes: form.dataset.saw === "1" };
    const reply = await post(`queue-items/${form.dataset.item}/adjudicate/`, body);
    if (reply.ok) {
      drafts.drop(kept, answer);
      location.assign(form.dataset.next);
      return undefined;
    }
    const isSession = [401, 403, 404].includes(reply.status) && await explainSession();
    wrong = reply.told.errors ?? [];
    if (!isSession) said = reply.told.detail || `Server error (${reply.status}).`;
  } catch {
    said = "No connection. Your answer is stored in this browser. Submit it again when you are online.";
  }
  waits = false;
  form.inert = false;
  form.removeAttribute("aria-busy");
  if (wrong.length) warn(showWrong(wrong));
  else if (said) warn(said);
  return undefined;
}

// Keys

if (form) {
  takeDraft();
  form.addEventListener("input", () => {
    isChanged = true;
    clearTimeout(timer);
    timer = setTimeout(keep, DRAFT_MS);
  });
  addEventListener("pagehide", () => { if (isChanged) keep(); });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  add("submit", kind === "rubric" ? "Ctrl+enter" : "Enter", "Adjudicate and next", () => form.requestSubmit(), () => !waits && (kind === "rubric" || !isOpener()));
}
for (const [id, key, label] of [["show", "v", "Show reviews, rewards and models"], ["hide", "v", "As shown to reviewers"]]) {
  const link = document.getElementById(`settle-${id}`);
  if (link) add(id, key, label, () => link.click());
}
for (const [rel, key, label] of [["next", "]", "Next disagreement"], ["prev", "[", "Previous disagreement"]]) {
  const link = document.querySelector(`.page-head a[rel=${rel}]`);
  if (link) add(rel, key, label, () => link.click());
}
// Keyboard shortcuts work from here on (for tests).
document.body.dataset.listens = "1";
