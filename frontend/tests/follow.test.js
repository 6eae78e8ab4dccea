import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { openPage, until } from "./page.js";
import { startServer } from "./server.js";

const card = (seq, content = "") => `<article class="event" id="e${seq}">${content}</article>`;
const call = (result) => `<div class="block call"><p>call</p>${result}</div>`;
const AWAITED = "<p><span data-awaited>waiting…</span></p>";
const RESULT = '<div class="result" id="e2">42</div>';

// What the server sends: the parts of a rollout's page from some event on.
function news(mark, cards = "", { settled = false, chip = "running", outline = "" } = {}) {
  return `<div id="rollout-live" data-mark="${mark}" data-settled="${settled}">
    <nav id="rollout-attempts"></nav><section id="rollout-figures"></section><div id="rollout-facts"><span class="chip">${chip}</span></div><p id="rollout-note"></p>
    <div id="rollout-trace">${cards}</div><ol id="rollout-outline">${outline}</ol></div>`;
}

const PAGE = `<h1><span id="rollout-chip"></span></h1>
  <nav id="rollout-attempts"></nav><section id="rollout-figures"></section><div id="rollout-facts"></div><p id="rollout-note"></p>
  <div data-follow="/live/1/" data-poll="/rollouts/1/" data-mark="running-1-1">
    <div id="rollout-trace"><section class="chunk" id="chunk-0" data-last="0">${card(0)}</section></div><ol id="rollout-outline"></ol></div>
  <div id="follow"><a href="#" hidden></a><button aria-pressed="false">Follow</button></div>`;

let page;
let server;
afterEach(() => {
  page.close();
  server.stop();
});

// The page, once its socket is open.
async function open(answer = () => ({ status: 204 })) {
  server = await startServer(answer);
  page = openPage(PAGE, { url: server.url });
  await page.load("follow.js");
  return until(() => server.sockets[0], "the socket");
}

const cards = () => [...page.document.querySelectorAll("#rollout-trace .event")].map((each) => each.id);
const chip = (text) => until(() => page.find("#rollout-facts").textContent === text, text);

test("a new event is added once, however often it arrives", async () => {
  const socket = await open();
  assert.equal(socket.path, "/live/1/?seen=running-1-1");
  const line = '<li id="o1">call</li>';
  socket.send(news("running-1-2", card(1), { outline: line }));
  socket.send(news("running-1-2", card(1), { outline: line }));
  socket.send(news("running-1-3", card(2), { chip: "last" }));
  await chip("last");
  assert.deepEqual(cards(), ["e0", "e1", "e2"]);
  assert.equal(page.find("#rollout-outline").children.length, 1);
  assert.equal(page.find(".chunk").dataset.last, "2");
});

test("an answer older than the page changes nothing", async () => {
  const socket = await open();
  socket.send(news("running-1-4", card(3), { chip: "newer" }));
  await chip("newer");
  socket.send(news("running-1-2", card(1), { chip: "older" }));
  socket.send(news("running-1-5", card(4), { chip: "newest" }));
  await chip("newest");
  assert.deepEqual(cards(), ["e0", "e3", "e4"]);
});

test("a result takes the place where its call waits for it", async () => {
  const socket = await open();
  socket.send(news("running-1-2", card(1, call(AWAITED))));
  socket.send(news("running-1-3", card(1, call(RESULT)), { chip: "called" }));
  await chip("called");
  assert.equal(page.document.querySelectorAll("[data-awaited]").length, 0);
  assert.equal(page.find("#e1 .result").textContent, "42");
  assert.equal(page.find(".chunk").dataset.last, "2");
});

test("the end closes the socket, and says which calls have no result", async () => {
  const socket = await open();
  socket.send(news("running-1-2", card(1, call(AWAITED))));
  socket.send(news("failed-1-3", "", { settled: true, chip: "failed" }));
  await until(() => !socket.isOpen(), "closing the socket");
  assert.equal(page.find("#e1 span").textContent, "No result recorded");
  assert.equal(page.find("#rollout-chip").textContent, "failed");
  assert.equal(page.find("#follow button").hidden, true);
});

test("another attempt begins below the last one, whose events keep no addresses", async () => {
  const socket = await open();
  socket.send(news("running-1-2", card(1), { outline: '<li id="o1">call</li>' }));
  socket.send(news("running-2-1", card(0, "again"), { chip: "second" }));
  await chip("second");
  assert.deepEqual(cards(), ["", "", "e0"]);
  assert.equal(page.find("#e0").textContent, "again");
  assert.equal(page.document.querySelectorAll(".event.past").length, 2);
  assert.equal(page.find("#rollout-outline").children.length, 0);
});

test("while the socket is silent the page polls from its last event", async () => {
  const socket = await open(({ path }) => (path === "/rollouts/1/?seen=running-1-2" ? { body: news("running-1-3", card(2), { chip: "asked" }) } : { status: 204 }));
  socket.send(news("running-1-2", card(1)));
  await chip("asked");
  assert.deepEqual(cards(), ["e0", "e1", "e2"]);
  assert.equal(server.asked[0].headers["hx-request"], "true");
});

test("an ended session is reported once", async () => {
  await open(() => ({ status: 200, headers: { "HX-Redirect": "/sign-in/" } }));
  await until(() => server.asked.length > 1 && page.find("#signed-out"), "the notice");
  assert.equal(page.document.querySelectorAll("#signed-out").length, 1);
  assert.equal(page.find("#signed-out a").getAttribute("href"), "/sign-in/?next=%2F");
});

const lane = (number, ...seqs) => `<details class="lane" open data-lane="${number}"><summary>subagent ${number}</summary>
  <div class="lane-cards">${seqs.map((seq) => card(seq)).join("")}</div></details>`;
const lanes = () => [...page.document.querySelectorAll(".lane")]
  .map((each) => [each.dataset.lane, each.open, [...each.querySelectorAll(".event")].map((one) => one.id)]);

test("cards of a subagent join the last part of its lane, and a new part is collapsed like the others", async () => {
  const socket = await open();
  socket.send(news("running-1-3", lane(2, 1, 2)));
  socket.send(news("running-1-4", lane(2, 3), { chip: "three" }));
  await chip("three");
  assert.deepEqual(lanes(), [["2", true, ["e1", "e2", "e3"]]]);
  page.find(".lane > summary").click();
  socket.send(news("running-1-6", card(4) + lane(2, 5), { chip: "six" }));
  await chip("six");
  assert.deepEqual(lanes(), [["2", false, ["e1", "e2", "e3"]], ["2", false, ["e5"]]]);
  assert.deepEqual(cards(), ["e0", "e1", "e2", "e3", "e4", "e5"]);
  page.document.querySelectorAll(".lane > summary")[1].click();
  assert.deepEqual(lanes().map(([, open]) => open), [true, true]);
});

test("an earlier card gets its link to a subagent, and one that is not loaded is not added", async () => {
  const socket = await open();
  const links = (text) => `<p class="facts call-links">${text}</p>`;
  socket.send(news("running-1-6", card(5, links(""))));
  const line = (seq) => `<li id="o${seq}">call</li>`;
  const changed = card(3, links("old")) + card(5, links("started subagent 2")) + lane(2, 6);
  socket.send(news("running-1-7", changed, { chip: "seven", outline: line(3) + line(6) }));
  await chip("seven");
  assert.deepEqual(cards(), ["e0", "e5", "e6"]);
  assert.equal(page.find("#e5 .call-links").textContent, "started subagent 2");
  assert.deepEqual([...page.find("#rollout-outline").children].map((each) => each.id), ["o6"]);
  assert.equal(page.find(".chunk").dataset.last, "6");
});
