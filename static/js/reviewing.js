// Work pages: keyboard shortcuts, renewing the lease, and drafts. Submissions go through unsent.js, which keeps them
// until the server has them. Without this script the forms are submitted normally.

import { answerForm } from "./answering.js";
import * as drafts from "./drafts.js";
import { show } from "./forms.js";
import { menus } from "./gymweb.js";
import * as keys from "./keys.js";
import { unfold } from "./reading.js";
import * as unsent from "./unsent.js";
import { post, warn } from "./unsent.js";

const group = "Reviewing";
const DRAFT_MS = 700;
const RETRY_MS = 1500;
const AWAY_MS = 20_000;
const SLOW_MS = 300;
const form = document.getElementById("review-form");
const saved = document.getElementById("review-saved");
const reach = (what) => { if (["note", "confidence"].includes(what)) unfold(); };
const { read, write, readServed, changed, showWrong, findMissing, isOpener } = form ? answerForm(form, { id: "review", group, reach }) : {};

// Submissions

let waits = false;
let telling = null;

// Lock the form while it is being sent.
function hold(isOn) {
  waits = isOn;
  if (!form) return;
  form.inert = isOn;
  form.setAttribute("aria-busy", String(isOn));
  clearTimeout(telling);
  if (isOn) telling = setTimeout(() => { saved.textContent = "sending…"; }, SLOW_MS);
  else if (saved.textContent === "sending…") saved.textContent = "";
}

// Message for the next page.
const SAID = "gymweb.said";
function say(text) {
  try { sessionStorage.setItem(SAID, text); } catch { /* it is no more than a word */ }
}

function hear() {
  try {
    if (saved) saved.textContent = sessionStorage.getItem(SAID) ?? "";
    sessionStorage.removeItem(SAID);
  } catch { /* as above */ }
}

const newToken = () => (crypto.randomUUID ? crypto.randomUUID() : String(Math.random()).slice(2));

function submit() {
  if (waits) return;
  const answer = { token: form.elements.token.value, ...read() };
  const missing = findMissing(answer);
  if (missing) {
    warn(missing);
    return;
  }
  hold(true);
  const { queue, name, work } = form.dataset;
  unsent.add({ review: Number(form.dataset.review), queue, name, work, answer });
  unsent.sendAll();
}

// Skip and undo are kept like answers until the server has them. Their forms are submitted normally if the page does
// not name the last review.

const skipped = document.querySelector("#review-skip form");
const undone = document.getElementById("review-undo");
let undoing = null;

skipped?.addEventListener("submit", (event) => {
  event.preventDefault();
  const reason = skipped.elements.reason.value.trim();
  if (waits || !reason) return;
  document.getElementById("review-skip").open = false;
  hold(true);
  const { queue, name, work } = form.dataset;
  unsent.add({ review: Number(form.dataset.review), queue, name, work, skip: reason });
  unsent.sendAll();
});

undone?.addEventListener("submit", (event) => {
  const last = undone.elements.review?.value;
  if (!last) return;
  event.preventDefault();
  if (waits) return;
  undoing = last;
  hold(true);
  unsent.add({ review: Number(last), queue: /\/queues\/(\d+)\//.exec(undone.action)[1], work: location.pathname, undo: true });
  unsent.sendAll();
});

unsent.listen((outcomes) => {
  if (undoing && outcomes.get(undoing) === "sent") {
    say("Undone. The item is open again.");
    location.assign(unsent.undone?.status === "lapsed" ? `?review=${undoing}` : location.pathname);
    return;
  }
  if (undoing && outcomes.get(undoing) === "refused") {
    undoing = null;
    hold(false);
  }
  const outcome = form && outcomes.get(form.dataset.review);
  if (outcome === "sent") goOn();
  else if (outcome === "refused" || outcome === "wrong") {
    hold(false);
    if (outcome === "wrong") warn(showWrong(unsent.wrong));
    form.elements.token.value = newToken();
  } else if (!waits && [...outcomes.values()].includes("sent")) location.reload();
});

// Go to the next item after this one was stored. If the response had none, claim it as the page's form does, whose
// response leads to the page without a trace. If there is none, the page says why.
async function goOn() {
  if (unsent.claimed) {
    location.assign(form.dataset.work);
    return;
  }
  try {
    const reply = await fetch(form.dataset.work, { method: "POST", redirect: "manual", headers: { "X-CSRFToken": unsent.token() } });
    if (reply.status < 500) {
      location.assign(form.dataset.work);
      return;
    }
    warn(`Review saved. The next item could not be loaded (server error ${reply.status}). Trying again.`);
  } catch {
    warn("Review saved. The next item loads when you are online.");
  }
  setTimeout(goOn, RETRY_MS);
}

// Draft and lease, saved together

let until = form ? Date.parse(form.dataset.until) : 0;
let timer = null;
let touchedAt = Date.now();
const lease = form ? Number(form.dataset.minutes) * 60_000 : 0;

// In sequence: a slow older draft must not overwrite a newer one.
let kept = Promise.resolve();
function keep(withDraft) {
  kept = kept.then(() => keepNow(withDraft));
}

// After a lost connection or a break, the server's draft may come from elsewhere, so read it before replacing it.
let isDoubtful = false;
let metAt = Date.now();

async function keepNow(withDraft) {
  const { review } = form.dataset;
  const tell = (text) => { if (saved && withDraft) saved.textContent = text; };
  try {
    let reply = null;
    let draft = null;
    if (!withDraft || isDoubtful || Date.now() - metAt > AWAY_MS) {
      reply = await post(`reviews/${review}/renew/`);
      if (reply.ok) drafts.meet(review, reply.told.draft);
      isDoubtful = isDoubtful && !reply.ok;
    }
    // A lost lease still accepts the draft.
    if (withDraft && (reply === null || reply.ok || reply.status === 409)) {
      draft = read();
      drafts.send(review, draft);
      reply = await post(`reviews/${review}/renew/`, { draft });
    }
    if (reply.ok) {
      metAt = Date.now();
      until = Date.parse(reply.told.leased_until);
      if (draft) drafts.drop(review, draft);
      tell("draft kept");
      if (!unsent.count()) warn("");
      return;
    }
    tell("draft stored in this browser");
    if (waits) return;
    if ([401, 403, 404].includes(reply.status) && await unsent.explainSession()) return;
    warn(reply.told.detail ?? `Server error (${reply.status}). Your text is stored in this browser.`);
  } catch {
    isDoubtful = true;
    tell("draft stored in this browser");
  }
}

function tick() {
  const left = until - Date.now();
  const shown = document.getElementById("review-lease");
  if (shown) {
    const seconds = Math.max(0, Math.round(left / 1000));
    shown.textContent = `${Math.floor(seconds / 60)} min ${String(seconds % 60).padStart(2, "0")} s`;
    document.getElementById("review-word").textContent = "for";
    shown.parentElement.dataset.low = String(seconds < 60);
  }
  // Input in the last third of the lease renews it.
  if (left < (lease * 2) / 3 && Date.now() - touchedAt < lease / 3 && !waits) {
    touchedAt -= lease;
    keep(false);
  }
}

if (form) {
  const sent = unsent.find(form.dataset.review);
  const local = drafts.open(form.dataset.review, readServed());
  if (sent?.answer || local) write(sent?.answer ?? local);
  if (form.elements.note.value) unfold();
  if (sent) hold(true);
  drafts.showAsides(document.getElementById("review-asides"), form.dataset.review, read, (draft) => { write(draft); changed(); });
  document.addEventListener("visibilitychange", () => { isDoubtful = true; });
  form.addEventListener("submit", (event) => { event.preventDefault(); submit(); });
  form.addEventListener("input", () => {
    if (waits) return;
    drafts.keep(form.dataset.review, read());
    clearTimeout(timer);
    timer = setTimeout(() => { if (!waits) keep(true); }, DRAFT_MS);
  });
  for (const kind of ["keydown", "pointerdown", "scroll"]) addEventListener(kind, () => { touchedAt = Date.now(); }, { passive: true, capture: true });
  setInterval(tick, 1000);
  tick();
}
// Back on a page that was left: the user may hold another item by now.
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
hear();
// Instructions in Markdown, rendered when opened.
for (const text of document.querySelectorAll("[data-markdown]")) {
  const fold = text.closest("details");
  const render = async () => { if (text.isConnected && (fold?.open ?? true)) text.replaceWith((await show(text.textContent, "markdown", text.dataset, "")) ?? text); };
  render().catch(() => { /* the source text stays */ });
  fold?.addEventListener("toggle", () => render().catch(() => { /* as above */ }));
}
// Send what earlier visits could not send.
if (unsent.count()) unsent.sendAll();

// Keys

if (form) {
  keys.add({ id: "review.submit", keys: form.dataset.kind === "rubric" ? "Ctrl+enter" : "Enter", label: "Submit and next", group, run: () => form.requestSubmit(), when: () => form.dataset.kind === "rubric" || !isOpener() });
  keys.add({
    id: "review.skip",
    keys: "s",
    label: "Skip with a reason",
    group,
    run: () => {
      const menu = document.getElementById("review-skip");
      menus.open(menu, menu.querySelector("input[name=reason]"));
    },
  });
} else if (document.getElementById("review-next")) {
  keys.add({ id: "review.next", keys: "Enter", label: "Start, or check for items", group, run: () => document.getElementById("review-next").requestSubmit() });
}
keys.add({ id: "review.undo", keys: "u", label: "Undo the last review", group, run: () => document.getElementById("review-undo").requestSubmit(), when: () => document.getElementById("review-undo") !== null });
// Keyboard shortcuts work from here on (for tests).
document.body.dataset.listens = "1";
