import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";

import { openPage, until } from "./page.js";
import { startServer } from "./server.js";

const BODY = `<p id="review-lost" data-user="7" data-name="ann" data-sign-in="/sign-in/" hidden></p>
  <div id="review-kept" hidden><ul></ul></div><form id="review-form" data-review="1"></form>`;
const ANSWER = { token: "t-1", choice: "a", note: "Better.", confidence: null, reasons: [] };
const RECORD = { review: 1, queue: 5, name: "A queue", work: "/queues/5/work/", answer: ANSWER };
const SIGNED_IN = { body: { username: "ann" } };

let page;
let server;
let answers;

// What the server answers, by path; a function is called with the request.
beforeEach(async () => {
  answers = {};
  server = await startServer((request) => {
    const found = answers[request.path] ?? { status: 404, body: { detail: "Not found." } };
    return typeof found === "function" ? found(request) : found;
  });
});
afterEach(() => {
  page.close();
  server.stop();
});

async function open(storage = {}, url = server.url) {
  page = openPage(BODY, { url, storage });
  return page.load("unsent.js");
}

const held = (review = 1, kind = "unsent") => JSON.parse(page.stored()[`gymweb.${kind}.${review}`] ?? "null");
const said = () => page.find("#review-lost").textContent;
const outcomes = async (unsent) => Object.fromEntries(await unsent.sendAll());

test("an answer is sent with the page's token, and forgotten with its draft once the server has it", async () => {
  answers["/api/v1/reviews/1/submit/"] = { body: { next: { id: 2 } } };
  const unsent = await open({ "gymweb.draft.1": JSON.stringify({ user: "7", draft: ANSWER, at: Date.now() }) });
  unsent.add(RECORD);
  assert.equal(unsent.count(), 1);
  assert.deepEqual(await outcomes(unsent), { 1: "sent" });
  assert.deepEqual(Object.keys(page.stored()), []);
  assert.deepEqual(structuredClone(unsent.claimed), { id: 2 });
  const [{ method, headers, body }] = server.asked;
  assert.deepEqual([method, headers["x-csrftoken"], body], ["POST", "a-token", { ...ANSWER, claim: true }]);
});

test("after a server error an answer is kept, and the next page sends it", async () => {
  answers["/api/v1/reviews/1/submit/"] = { status: 503 };
  let unsent = await open();
  unsent.add(RECORD);
  assert.deepEqual(await outcomes(unsent), { 1: "waits" });
  assert.match(said(), /error \(503\).*stored in this browser.*Send now/);
  const kept = page.stored();
  page.close();
  answers["/api/v1/reviews/1/submit/"] = { body: {} };
  unsent = await open(kept);
  assert.deepEqual(structuredClone(unsent.find(1).answer), ANSWER);
  assert.deepEqual(await outcomes(unsent), { 1: "sent" });
  assert.equal(held(), null);
});

test("without a connection nothing is lost, and the browser sends when it is online again", async () => {
  let isAway = true;
  answers["/api/v1/reviews/1/submit/"] = { body: {} };
  const unsent = await open();
  const { fetch } = page.window;
  page.window.fetch = (...given) => fetch(isAway ? "http://127.0.0.1:1/" : given[0], given[1]);
  unsent.add(RECORD);
  assert.deepEqual(await outcomes(unsent), { 1: "waits" });
  assert.match(said(), /^No connection/);
  isAway = false;
  page.window.dispatchEvent(new page.window.Event("online"));
  await until(() => held() === null, "the answer being sent");
});

test("an invalid answer goes back into the draft, with its errors", async () => {
  const errors = [{ pointer: "/scores/clear", message: "is missing." }];
  answers["/api/v1/reviews/1/submit/"] = { status: 400, body: { detail: "Wrong.", errors } };
  const unsent = await open();
  unsent.add(RECORD);
  assert.deepEqual(await outcomes(unsent), { 1: "wrong" });
  assert.deepEqual(structuredClone(unsent.wrong), errors);
  assert.equal(held(), null);
  assert.equal(held(1, "draft").draft.note, "Better.");
});

test("a conflict counts as sent where the server has just this answer", async () => {
  answers["/api/v1/reviews/1/submit/"] = { status: 409, body: { detail: "It was submitted before." } };
  const stored = { status: "submitted", choice: "a", note: "Better. ", scores: {}, reasons: [] };
  answers["/api/v1/reviews/1/"] = { body: stored };
  const unsent = await open();
  unsent.add(RECORD);
  assert.deepEqual(await outcomes(unsent), { 1: "sent" });
  answers["/api/v1/reviews/1/"] = { body: { ...stored, choice: "b" } };
  unsent.add(RECORD);
  assert.deepEqual(await outcomes(unsent), { 1: "refused" });
});

test("a refused answer can be sent again or discarded", async () => {
  answers["/api/v1/reviews/1/submit/"] = { status: 410, body: { detail: "The queue is closed." } };
  const unsent = await open();
  unsent.add(RECORD);
  assert.deepEqual(await outcomes(unsent), { 1: "refused" });
  assert.equal(unsent.count(), 0);
  assert.equal(page.find("#review-kept").hidden, false);
  assert.equal(page.find("#review-kept p").textContent, "A queue: The queue is closed.");
  assert.equal(page.find("#review-kept pre").textContent, "verdict: a\nnote: Better.");
  const [, again, discard] = page.document.querySelectorAll("#review-kept button");
  page.window.confirm = () => true;
  discard.click();
  assert.deepEqual([held(), page.find("#review-kept").hidden], [null, true]);
  answers["/api/v1/reviews/1/submit/"] = { body: {} };
  again.click();
  await until(() => server.asked.length === 2 && held() === null, "sending again");
});

test("after the session's end answers wait for the same person", async () => {
  answers["/api/v1/reviews/1/submit/"] = { status: 403, body: {} };
  answers["/api/v1/me/"] = { status: 401, body: {} };
  const unsent = await open();
  unsent.add(RECORD);
  assert.deepEqual(await outcomes(unsent), { 1: "waits" });
  assert.match(said(), /^You are signed out/);
  assert.equal(page.find("#review-lost a").getAttribute("href"), "/sign-in/?next=%2F");
  answers["/api/v1/me/"] = { body: { username: "ben" } };
  assert.deepEqual(await outcomes(unsent), { 1: "waits" });
  assert.match(said(), /signed in as ben/);
  assert.deepEqual(held().answer, ANSWER);
});

test("after another sign-in the new session's token is used", async () => {
  answers["/api/v1/me/"] = SIGNED_IN;
  answers["/api/v1/reviews/1/submit/"] = ({ headers }) => (headers["x-csrftoken"] === "new-token" ? { body: {} } : { status: 403, body: {} });
  const unsent = await open();
  page.document.cookie = "csrftoken=new-token";
  unsent.add(RECORD);
  assert.deepEqual(await outcomes(unsent), { 1: "sent" });
  assert.equal(unsent.token(), "new-token");
});

test("records of another user are neither sent nor shown", async () => {
  const record = { ...RECORD, user: "8", refused: "The queue is closed." };
  const unsent = await open({ "gymweb.unsent.1": JSON.stringify(record), "gymweb.unsent.2": JSON.stringify({ ...RECORD, review: 2, user: "8" }) });
  assert.deepEqual(await outcomes(unsent), {});
  assert.deepEqual([server.asked.length, page.find("#review-kept").hidden], [0, true]);
  assert.equal(Object.keys(page.stored()).length, 2);
});

test("skips and undone reviews are sent in their order, and stop where the server does not respond", async () => {
  answers["/api/v1/reviews/1/skip/"] = { body: {} };
  answers["/api/v1/queues/5/undo/"] = { status: 500 };
  const unsent = await open();
  unsent.add({ review: 1, queue: 5, skip: "No idea." });
  unsent.add({ review: 2, queue: 5, undo: true });
  unsent.add({ ...RECORD, review: 3 });
  assert.deepEqual(await outcomes(unsent), { 1: "sent", 2: "waits" });
  assert.deepEqual(server.asked.map(({ path, body }) => [path, body]), [["/api/v1/reviews/1/skip/", { reason: "No idea." }], ["/api/v1/queues/5/undo/", { review: 2 }]]);
  assert.equal(unsent.count(), 2);
});
