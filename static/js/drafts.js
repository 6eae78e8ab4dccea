// Drafts of answers in the browser's storage. A draft records the server's version on which it is based. If the server
// has another version now, another device or tab wrote it, and neither replaces the other.

import { ASIDE, DRAFT, store, user } from "./storage.js";

const OLD_MS = 90 * 86_400_000;
const MOST = 40;

// Equal for equal answers, because form, storage and server leave out empty parts differently.
function mark(answer) {
  const { choice = "", note = "", confidence = null, scores = {}, ranks = [], reasons = [] } = answer ?? {};
  const scored = Object.entries(scores).filter(([, value]) => value !== "" && value !== null).map(([key, value]) => [key, typeof value === "string" ? value.trim() : value]);
  return JSON.stringify([choice, note.trim().replaceAll("\r\n", "\n"), confidence, scored.sort(), ranks.some(Boolean) ? ranks : [], [...reasons].sort()]);
}

// Drafts by review that the server has, or may have received from here.
const bases = new Map();
const known = (review) => bases.get(String(review)) ?? [];

const find = (review) => store.get(DRAFT + review);
const forget = (review) => store.remove(DRAFT + review);

// Return the browser's draft if it is based on the server's version. An older draft is set aside.
export function open(review, server) {
  const local = find(review);
  bases.set(String(review), [mark(server)]);
  if (!local) return null;
  if (mark(local.draft) === mark(server)) {
    forget(review);
    return null;
  }
  if (local.bases?.includes(mark(server))) {
    bases.set(String(review), local.bases);
    return local.draft;
  }
  setAside(review, local.draft, local.at, "in this browser");
  forget(review);
  return server;
}

export const keep = (review, draft) => store.set(DRAFT + review, { user, draft, at: Date.now(), bases: known(review) });

// Record a draft that is being sent: the server may have it even if its response is lost.
export function send(review, draft) {
  bases.set(String(review), [...known(review), mark(draft)].slice(-MOST));
  if (find(review)) keep(review, find(review).draft);
}

// Drop the local copy of a draft that the server has. A newer draft is kept.
export function drop(review, draft) {
  bases.set(String(review), [mark(draft)]);
  const local = find(review);
  if (!local) return;
  if (mark(local.draft) === mark(draft)) forget(review);
  else keep(review, local.draft);
}

// Compare with the server's draft. If it was not written here, set it aside before it is overwritten.
export function meet(review, server) {
  if (known(review).includes(mark(server))) return;
  bases.set(String(review), [...known(review), mark(server)].slice(-MOST));
  setAside(review, server, Date.now(), "elsewhere");
}

// Drafts set aside, until the user takes or discards them

let redraw = () => {};
const asides = (review) => store.get(ASIDE + review)?.drafts ?? [];

function putAside(review, drafts) {
  if (drafts.length) store.set(ASIDE + review, { user, drafts, at: Date.now() });
  else store.remove(ASIDE + review);
  redraw();
}

function setAside(review, draft, at, where) {
  const others = asides(review).filter((each) => mark(each.draft) !== mark(draft));
  putAside(review, mark(draft) === mark({}) ? others : [...others, { draft, at, where }]);
}

// Return an answer as text.
export function tell(answer) {
  const said = [["verdict", answer.choice], ["ranks", (answer.ranks ?? []).join(", ")]];
  for (const [key, value] of Object.entries(answer.scores ?? {})) said.push([key, value]);
  said.push(["reasons", (answer.reasons ?? []).join(", ")], ["confidence", answer.confidence], ["note", answer.note]);
  return said.filter(([, value]) => value !== "" && value !== null && value !== undefined).map(([key, value]) => `${key}: ${value}`).join("\n");
}

export function button(text, run) {
  const made = document.createElement("button");
  made.type = "button";
  made.className = "button small";
  made.textContent = text;
  if (run) made.addEventListener("click", run);
  return made;
}

// Show the drafts in `box`. Taking one sets aside the current form's content.
export function showAsides(box, review, read, write) {
  const without = (one) => asides(review).filter((each) => mark(each.draft) !== mark(one.draft));
  const draw = (one) => {
    const entry = document.createElement("li");
    const head = document.createElement("p");
    const told = one.where === "elsewhere" ? "Draft on the server" : "Draft in this browser";
    head.textContent = `${told} on ${new Date(one.at).toLocaleString([], { dateStyle: "medium", timeStyle: "short" })}:`;
    const text = document.createElement("pre");
    text.className = "code";
    text.tabIndex = 0;
    text.textContent = tell(one.draft);
    const actions = document.createElement("p");
    actions.className = "actions";
    const take = button("Use this draft", () => {
      const now = read();
      putAside(review, without(one));
      setAside(review, now, Date.now(), "in this browser");
      write(one.draft);
    });
    const discard = button("Discard", () => putAside(review, without(one)));
    actions.append(take, discard);
    entry.append(head, text, actions);
    return entry;
  };
  redraw = () => {
    box.hidden = !asides(review).length;
    box.querySelector("ul").replaceChildren(...asides(review).map(draw));
  };
  redraw();
}

for (const prefix of [DRAFT, ASIDE]) {
  for (const key of store.keys(prefix)) if ((store.get(key)?.at ?? Date.now()) < Date.now() - OLD_MS) store.remove(key);
}
