import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { openPage } from "./page.js";

const BODY = `<p id="review-lost" data-user="7" data-name="ann" hidden></p>
  <div id="review-asides" hidden><ul></ul></div>`;
const SERVER = { choice: "", note: "", confidence: null, reasons: [] };
const LOCAL = { choice: "a", note: "Mine.", confidence: 2, reasons: ["shorter"] };
const NEWER = { ...LOCAL, note: "Mine, longer." };
const OTHER = { choice: "b", note: "From the other device.", confidence: null, reasons: [] };
const DAY_MS = 86_400_000;

let page;
afterEach(() => page.close());

// The same browser opens the page once more.
async function open(storage = {}) {
  page?.close();
  page = openPage(BODY, { storage });
  return page.load("drafts.js");
}

const reopen = () => open(page.stored());
const keyOf = (kind, review) => `gymweb.${kind}.${review}`;
const held = (kind, review) => JSON.parse(page.stored()[keyOf(kind, review)] ?? "null");

// What lies beside the form of a review: `form` has what the form has.
function show(drafts, review, form = {}) {
  drafts.showAsides(page.find("#review-asides"), review, () => form.answer, (answer) => { form.answer = answer; });
  return () => [...page.document.querySelectorAll("#review-asides li")].map((each) => each.querySelector("pre").textContent);
}

test("a draft comes back while the server has the same answer as before", async () => {
  let drafts = await open();
  assert.equal(drafts.open(1, SERVER), null);
  drafts.keep(1, LOCAL);
  drafts = await reopen();
  assert.deepEqual(structuredClone(drafts.open(1, SERVER)), LOCAL);
  assert.equal(drafts.open(2, SERVER), null);
});

test("a draft that equals the server's answer is removed, whatever its line breaks and order", async () => {
  const drafts = await open();
  drafts.open(1, SERVER);
  drafts.keep(1, { choice: "a", note: " One\nTwo ", confidence: null, reasons: ["b", "a"], scores: { clear: "" }, ranks: [0, 0] });
  assert.equal(drafts.open(1, { choice: "a", note: "One\r\nTwo", reasons: ["a", "b"] }), null);
  assert.equal(held("draft", 1), null);
  assert.equal(held("aside", 1), null);
});

test("where another device wrote meanwhile, its draft is shown and the local one is set aside", async () => {
  let drafts = await open();
  drafts.open(1, SERVER);
  drafts.keep(1, LOCAL);
  drafts = await reopen();
  assert.deepEqual(drafts.open(1, OTHER), OTHER);
  assert.equal(held("draft", 1), null);
  const form = { answer: OTHER };
  const texts = show(drafts, 1, form);
  assert.equal(page.find("#review-asides").hidden, false);
  assert.deepEqual(texts(), ["verdict: a\nreasons: shorter\nconfidence: 2\nnote: Mine."]);
  const [take] = page.document.querySelectorAll("#review-asides button");
  take.click();
  assert.equal(form.answer.note, "Mine.");
  assert.deepEqual(texts(), ["verdict: b\nnote: From the other device."]);
  page.document.querySelectorAll("#review-asides button")[1].click();
  assert.equal(page.find("#review-asides").hidden, true);
  assert.equal(held("aside", 1), null);
});

test("a newer draft stays although the server never confirmed an older one", async () => {
  for (const server of [SERVER, LOCAL]) {
    let drafts = await open();
    drafts.open(1, SERVER);
    drafts.keep(1, LOCAL);
    drafts.send(1, LOCAL);
    drafts.keep(1, NEWER);
    drafts = await reopen();
    assert.equal(drafts.open(1, server).note, NEWER.note);
    assert.equal(held("aside", 1), null);
  }
});

test("a confirmed draft is dropped, a newer one stays", async () => {
  const drafts = await open();
  drafts.open(1, SERVER);
  drafts.keep(1, LOCAL);
  drafts.send(1, LOCAL);
  drafts.keep(1, NEWER);
  drafts.drop(1, LOCAL);
  assert.equal(held("draft", 1).draft.note, NEWER.note);
  drafts.send(1, NEWER);
  drafts.drop(1, NEWER);
  assert.equal(held("draft", 1), null);
});

test("an answer from another device is set aside once", async () => {
  const drafts = await open();
  drafts.open(1, SERVER);
  drafts.send(1, LOCAL);
  drafts.meet(1, SERVER);
  drafts.meet(1, LOCAL);
  assert.equal(held("aside", 1), null);
  drafts.meet(1, OTHER);
  drafts.meet(1, OTHER);
  assert.deepEqual(held("aside", 1).drafts.map((each) => [each.draft.note, each.where]), [[OTHER.note, "elsewhere"]]);
});

test("an empty draft is not set aside", async () => {
  const drafts = await open();
  drafts.open(1, LOCAL);
  drafts.meet(1, SERVER);
  assert.equal(held("aside", 1), null);
});

test("drafts of three months ago are removed, younger ones and other keys stay", async () => {
  const at = (days) => JSON.stringify({ user: "7", at: Date.now() - days * DAY_MS, draft: LOCAL, drafts: [] });
  await open({ [keyOf("draft", 1)]: at(91), [keyOf("aside", 2)]: at(91), [keyOf("draft", 3)]: at(89), [keyOf("unsent", 4)]: at(91), theme: "dark" });
  assert.deepEqual(Object.keys(page.stored()).sort(), [keyOf("draft", 3), keyOf("unsent", 4), "theme"]);
});

test("where the browser's storage is full, a draft lasts as long as the page, and leaving asks first", async () => {
  const drafts = await open();
  drafts.open(1, SERVER);
  const leaving = () => page.window.dispatchEvent(new page.window.Event("beforeunload", { cancelable: true }));
  assert.equal(leaving(), true);
  const { setItem } = page.window.Storage.prototype;
  page.window.Storage.prototype.setItem = () => { throw new page.window.DOMException("full", "QuotaExceededError"); };
  drafts.keep(1, LOCAL);
  assert.equal(leaving(), false);
  assert.equal(drafts.open(1, SERVER).note, LOCAL.note);
  page.window.Storage.prototype.setItem = setItem;
  drafts.keep(1, NEWER);
  assert.equal(leaving(), true);
  assert.equal(held("draft", 1).draft.note, NEWER.note);
});
