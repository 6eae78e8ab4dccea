// What reviewers said and the server does not have yet. It lies in the browser's storage, under the submission's own
// token, until the server has said that it has it; what the server can never take stays where it can be copied.

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

// The token is the session's in which this page was opened, so that nothing is sent in another person's. Who has
// signed in again, perhaps in another tab, has a new one in the cookie.
let session = null;
const renewed = () => /(?:^|; )csrftoken=([^;]+)/.exec(document.cookie)?.[1] ?? null;

// Rejects without a connection; a refusal is an answer.
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

// The name of the session's user: "" without a session, null without a connection.
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

// After a refusal that may be the session's: true where it is, and said.
export async function explainSession() {
  const who = await whoIs();
  if (who === name) return false;
  if (who === null) warn("No connection. What you said is kept in this browser and sent as soon as there is one.");
  else if (who === "") warn("You are signed out. What you said is kept in this browser, and sent when you have signed in.", signIn(), "Sign in and go on");
  else warn(`This browser is signed in as ${who} by now. What ${name} said is kept here and sent when ${name} has signed in again.`, signIn(), "Sign in");
  return true;
}

// What is sent has an `answer`, a reason to `skip`, or takes the review back (`undo`). The outcome of each is "sent",
// "refused" for good, "wrong" (to be corrected), or "waits".

function requestOf(record) {
  const { review, queue, answer, skip, undo } = record;
  if (undo) return [`queues/${queue}/undo/`, { review: Number(review) }];
  if (skip) return [`reviews/${review}/skip/`, { reason: skip }];
  // Who has it open goes on: the next item comes with the answer, without another request.
  return [`reviews/${review}/submit/`, isOpenHere(record) ? { ...answer, claim: true } : answer];
}

const dense = (ranks) => (ranks ?? []).map((each) => [...new Set(ranks)].sort((a, b) => a - b).indexOf(each));
const sorted = (values) => JSON.stringify(Object.entries(values ?? {}).sort());
const isSame = (one, other) =>
  (one.choice ?? "") === (other.choice ?? "") && (one.note ?? "").trim() === (other.note ?? "").trim()
  && (one.confidence ?? null) === (other.confidence ?? null) && sorted(one.scores) === sorted(other.scores)
  && JSON.stringify(dense(one.ranks)) === JSON.stringify(dense(other.ranks))
  && JSON.stringify([...(one.reasons ?? [])].sort()) === JSON.stringify([...(other.reasons ?? [])].sort());

// Sent once more with another token, such as from a second tab: the server may have just this.
async function isThere(record) {
  try {
    const reply = await ask(`reviews/${record.review}/`);
    if (record.skip) return reply.ok && reply.told.status === "skipped";
    return reply.ok && reply.told.status === "submitted" && isSame(reply.told, record.answer);
  } catch {
    return false;
  }
}

// A skipped review may be taken back, and keeps its draft for that.
function finish(record) {
  for (const kind of record.answer ? [UNSENT, DRAFT, ASIDE] : [UNSENT]) store.remove(kind + record.review);
  return "sent";
}

// It lies on the shelf: a draft of the same would come back as if it had been written since.
function refuse(record, reason) {
  if (record.undo) {
    store.remove(UNSENT + record.review);
    warn(reason);
    return "refused";
  }
  store.set(UNSENT + record.review, { ...record, refused: reason });
  store.remove(DRAFT + record.review);
  warn(`${reason} What you said is kept below: copy it, send it again, or discard it.`, record.work, "Go on");
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
// From the last answers: the claimed next item, the review that was taken back, and the errors to correct.
export let claimed = null;
export let undone = null;
export let wrong = [];

async function send(record) {
  let reply;
  try {
    reply = await post(...requestOf(record));
  } catch {
    delay = FIRST_MS;
    return wait(`No connection. ${record.undo ? "The last one is taken back" : "What you said is kept in this browser and sent"} as soon as there is one.`);
  }
  const { status, told } = reply;
  if (reply.ok) {
    claimed = told.next ?? claimed;
    if (record.undo) undone = told;
    return finish(record);
  }
  if (status === 429) return wait("The server asks to wait a little. What you said is kept in this browser until it is sent.", reply.waits);
  if (status === 408 || status >= 500) return wait(`The server answered with an error (${status}). ${record.undo ? "The last one is taken back" : "What you said is kept in this browser and sent again"} as soon as it can take it.`, reply.waits);
  if ([401, 403, 404].includes(status) && await explainSession()) {
    clearTimeout(timer);
    timer = setTimeout(sendAll, SIGNED_OUT_MS);
    return "waits";
  }
  if (status === 409 && !record.undo && await isThere(record)) return finish(record);
  const errors = (told.errors ?? []).map((each) => each.message).join(" ");
  wrong = told.errors?.length ? told.errors : [{ pointer: "", message: told.detail }];
  if (status === 400 && record.answer && isOpenHere(record)) {
    // It is in the form, and its draft in the storage.
    keep(record.review, record.answer);
    store.remove(UNSENT + record.review);
    warn(errors || told.detail);
    return "wrong";
  }
  if (status === 404) return refuse(record, "What you judged has been deleted meanwhile, or is not for you any more.");
  return refuse(record, errors || told.detail || `The server refused it (${status}).`);
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

// What cannot be sent: to be copied, tried again or given up

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
    if (!window.confirm("Discard what you said? It is nowhere else.")) return;
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
