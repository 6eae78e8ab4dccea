// Reviews that the server does not have yet. They stay in the browser's storage under their token until the server
// confirms them; rejected ones stay so that the user can copy them.

import { button, keep, tell } from "./drafts.js";
import { csrf } from "./gymweb.js";
import { ASIDE, DRAFT, UNSENT, store, user } from "./storage.js";

const FIRST_MS = 1500;
const LONGEST_MS = 60_000;
const SIGNED_OUT_MS = 15_000;
const line = document.getElementById("review-lost");
const shelf = document.getElementById("review-kept");
const name = line?.dataset.name ?? "";
const listeners = [];

// The CSRF token of the session that opened this page, so that nothing is sent as another user. Signing in again,
// perhaps in another tab, puts a new one in the cookie.
let session = null;
const renewed = () => /(?:^|; )csrftoken=([^;]+)/.exec(document.cookie)?.[1] ?? null;

// Rejects without a connection; an error response does not reject.
async function ask(path, body) {
  const sent = { method: "POST", headers: { "X-CSRFToken": token(), "Content-Type": "application/json" }, body: JSON.stringify(body ?? {}) };
  const reply = await fetch(`/api/v1/${path}`, body === undefined ? {} : sent);
  let told = {};
  try { told = await reply.json(); } catch { /* no body, or one of a proxy */ }
  const wanted = Number(reply.headers.get("Retry-After"));
  return { ok: reply.ok, status: reply.status, told, waits: wanted > 0 ? wanted * 1000 : 0 };
}

export async function post(path, body) {
  const reply = await ask(path, body ?? {});
  if (reply.status !== 403 || !renewed() || renewed() === session || (await whoIs()) !== name) return reply;
  session = renewed();
  return ask(path, body ?? {});
}

export function warn(text, address, words) {
  if (!line) return;
  line.hidden = !text;
  line.textContent = text;
  if (text && address) {
    const link = document.createElement("a");
    link.href = address;
    link.textContent = words;
    line.append(" ", link);
  }
}

// Return the name of the session's user: "" without a session, null without a connection.
async function whoIs() {
  try {
    const reply = await ask("me/");
    if (reply.status === 401 || reply.status === 403) return "";
    return reply.ok ? reply.told.username : null;
  } catch {
    return null;
  }
}

const signIn = () => `${line?.dataset.signIn ?? "/sign-in/"}?next=${encodeURIComponent(location.pathname + location.search)}`;

// After an error that may be caused by the session: if so, show it and return true.
export async function explainSession() {
  const who = await whoIs();
  if (who === name) return false;
  if (who === null) warn("No connection. Your answer is stored in this browser and will be sent when you are online.");
  else if (who === "") warn("You are signed out. Your answer is stored in this browser and will be sent after you sign in.", signIn(), "Sign in and continue");
  else warn(`This browser is now signed in as ${who}. The answer of ${name} is stored here and will be sent when ${name} signs in again.`, signIn(), "Sign in");
  return true;
}

// Each record has an `answer`, a reason to `skip`, or `undo`. Its outcome is "sent", "refused" for good, "wrong" (to be
// corrected), or "waits".

function requestOf(record) {
  const { review, queue, answer, skip, undo } = record;
  if (undo) return [`queues/${queue}/undo/`, { review: Number(review) }];
  if (skip) return [`reviews/${review}/skip/`, { reason: skip }];
  // If the review is open here, the response includes the next item, which saves a request.
  return [`reviews/${review}/submit/`, isOpenHere(record) ? { ...answer, claim: true } : answer];
}

const dense = (ranks) => (ranks ?? []).map((each) => [...new Set(ranks)].sort((a, b) => a - b).indexOf(each));
const sorted = (values) => JSON.stringify(Object.entries(values ?? {}).sort());
const isSame = (one, other) =>
  (one.choice ?? "") === (other.choice ?? "") && (one.note ?? "").trim() === (other.note ?? "").trim()
  && (one.confidence ?? null) === (other.confidence ?? null) && sorted(one.scores) === sorted(other.scores)
  && JSON.stringify(dense(one.ranks)) === JSON.stringify(dense(other.ranks))
  && JSON.stringify([...(one.reasons ?? [])].sort()) === JSON.stringify([...(other.reasons ?? [])].sort());

// The submission was repeated with another token, for example from a second tab: the server may have this answer.
async function isThere(record) {
  try {
    const reply = await ask(`reviews/${record.review}/`);
    if (record.skip) return reply.ok && reply.told.status === "skipped";
    return reply.ok && reply.told.status === "submitted" && isSame(reply.told, record.answer);
  } catch {
    return false;
  }
}

// A skipped review can be undone, and keeps its draft for that.
function finish(record) {
  for (const kind of record.answer ? [UNSENT, DRAFT, ASIDE] : [UNSENT]) store.remove(kind + record.review);
  return "sent";
}

// Keep the record and drop its draft, which would look as if it had been written later.
function refuse(record, reason) {
  if (record.undo) {
    store.remove(UNSENT + record.review);
    warn(reason);
    return "refused";
  }
  store.set(UNSENT + record.review, { ...record, refused: reason });
  store.remove(DRAFT + record.review);
  warn(`${reason} Your answer is below: copy it, send it again, or discard it.`, record.work, "Continue");
  return "refused";
}

let delay = FIRST_MS;
let timer = null;

function wait(text, ms = 0) {
  warn(text);
  line?.append(" ", button("Send now", sendAll));
  clearTimeout(timer);
  timer = setTimeout(sendAll, Math.max(ms, delay));
  delay = Math.min(delay * 2, LONGEST_MS);
  return "waits";
}

const isOpenHere = (record) => document.getElementById("review-form")?.dataset.review === String(record.review);
// From the last responses: the next item, the review that was undone, and the errors to correct.
export let claimed = null;
export let undone = null;
export let wrong = [];

async function send(record) {
  let reply;
  try {
    reply = await post(...requestOf(record));
  } catch {
    delay = FIRST_MS;
    return wait(`No connection. ${record.undo ? "The last review will be undone" : "Your answer is stored in this browser and will be sent"} when you are online.`);
  }
  const { status, told } = reply;
  if (reply.ok) {
    claimed = told.next ?? claimed;
    if (record.undo) undone = told;
    return finish(record);
  }
  if (status === 429) return wait("The server is busy. Your answer is stored in this browser until it is sent.", reply.waits);
  if (status === 408 || status >= 500) return wait(`Server error (${status}). ${record.undo ? "The last review will be undone" : "Your answer is stored in this browser and will be sent again"} when the server recovers.`, reply.waits);
  if ([401, 403, 404].includes(status) && await explainSession()) {
    clearTimeout(timer);
    timer = setTimeout(sendAll, SIGNED_OUT_MS);
    return "waits";
  }
  if (status === 409 && !record.undo && await isThere(record)) return finish(record);
  const errors = (told.errors ?? []).map((each) => each.message).join(" ");
  wrong = told.errors?.length ? told.errors : [{ pointer: "", message: told.detail }];
  if (status === 400 && record.answer && isOpenHere(record)) {
    // It is shown in the form, and stored as a draft.
    keep(record.review, record.answer);
    store.remove(UNSENT + record.review);
    warn(errors || told.detail);
    return "wrong";
  }
  if (status === 404) return refuse(record, "The item was deleted, or is no longer assigned to you.");
  return refuse(record, errors || told.detail || `The server rejected it (${status}).`);
}

// Records of other users, and of pages without a user, are left alone.
const all = () => store.keys(UNSENT).map(store.get).filter((each) => (each?.answer || each?.skip || each?.undo) && user && each.user === user);

async function pass() {
  const outcomes = new Map();
  for (const record of all()) {
    if (record.refused) continue;
    const outcome = await send(record);
    outcomes.set(String(record.review), outcome);
    if (outcome === "waits") break;
    delay = FIRST_MS;
  }
  show();
  for (const each of listeners) each(outcomes);
  return outcomes;
}

let last = Promise.resolve();
export function sendAll() {
  clearTimeout(timer);
  last = last.then(pass);
  return last;
}

// Rejected records: copy, retry or discard

function draw(record) {
  const entry = document.createElement("li");
  const head = document.createElement("p");
  head.textContent = `${record.name || `Queue ${record.queue}`}: ${record.refused}`;
  const text = document.createElement("pre");
  text.className = "code";
  text.id = `unsent-${record.review}`;
  text.tabIndex = 0;
  text.textContent = record.skip ? `skip: ${record.skip}` : tell(record.answer);
  const copy = button("Copy");
  copy.dataset.copy = text.id;
  const again = button("Send again", () => {
    const { refused, ...rest } = record;
    store.set(UNSENT + record.review, rest);
    warn("");
    sendAll();
  });
  const discard = button("Discard", () => {
    if (!window.confirm("Discard your answer? There is no other copy.")) return;
    store.remove(UNSENT + record.review);
    show();
  });
  const actions = document.createElement("p");
  actions.className = "actions";
  actions.append(copy, again, discard);
  entry.append(head, text, actions);
  return entry;
}

function show() {
  if (!shelf) return;
  const refused = all().filter((each) => each.refused);
  shelf.hidden = !refused.length;
  shelf.querySelector("ul").replaceChildren(...refused.map(draw));
}

addEventListener("online", sendAll);
document.addEventListener("visibilitychange", () => { if (!document.hidden && all().some((each) => !each.refused)) sendAll(); });
show();

export const token = () => session ?? csrf();
export const add = (record) => store.set(UNSENT + record.review, { user, ...record });
export const find = (review) => all().find((each) => String(each.review) === String(review) && !each.refused) ?? null;
export const count = () => all().filter((each) => !each.refused).length;
export const listen = (listener) => listeners.push(listener);
