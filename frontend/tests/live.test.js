import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { openPage, until } from "./page.js";
import { startServer } from "./server.js";

const progress = ({ mark = "m0", state = "running", settled = false, ended = 0 } = {}) =>
  `data-mark="${mark}" data-state="${state}" data-settled="${settled}" data-ended="${ended}" data-fresh="true"`;
const table = (ended = 0) => `<div id="rollout-table" data-ended="${ended}"><p data-newer hidden><strong></strong> newer</p></div>`;
const breakdown = (by) => `<div id="breakdown"><a data-by="split">Split</a><a data-by="source" ${by === "source" ? "aria-current='true'" : ""}>Source</a></div>`;
const results = (text) => `<div id="collection-results"><details><summary>${text}</summary></details></div>`;

// The reply that replaces all figures at once.
const reply = (given) => `<div id="collection-progress" hx-swap-oob="true" ${progress(given)}></div>${results(given.mark).replace("<div", "<div hx-swap-oob='true'")}`;

const PAGE = `<div data-live="/live/1/" data-poll="/collections/1/"></div>
  <div id="collection-progress" ${progress()}></div>${results("m0")}${breakdown("split")}${table()}
  <button data-states="running">Pause</button><button data-states="paused" hidden>Resume</button>`;

let page;
let server;
afterEach(() => {
  page.close();
  server.stop();
});

async function open(answer) {
  server = await startServer(answer);
  page = openPage(PAGE, { url: server.url });
  await page.addHtmx();
  await page.load("live.js");
  return until(() => server.sockets[0], "the socket");
}

const shown = () => page.find("#collection-progress").dataset;
const untilShown = (mark) => until(() => shown().mark === mark, `showing ${mark}`);
const button = (text) => [...page.document.querySelectorAll("button")].find((each) => each.textContent === text);

test("a new mark on the socket makes the page fetch its figures once", async () => {
  const socket = await open(() => ({ body: reply({ mark: "m1", ended: 3 }) }));
  socket.send("m0");
  socket.send("m1");
  await untilShown("m1");
  socket.send("m1");
  assert.equal(server.asked.length, 1);
  assert.equal(server.asked[0].path, "/collections/1/?by=split");
  assert.equal(server.asked[0].headers["hx-target"], "collection-live");
  assert.equal(page.find("[data-newer]").hidden, false);
  assert.equal(page.find("[data-newer] strong").textContent, "3");
});

test("the offered actions follow the state", async () => {
  const socket = await open(() => ({ body: reply({ mark: "m1", state: "paused" }) }));
  socket.send("m1");
  await untilShown("m1");
  assert.deepEqual([button("Pause").hidden, button("Resume").hidden], [true, false]);
});

test("folds that are open stay open when their figures are replaced", async () => {
  const socket = await open(() => ({ body: reply({ mark: "m1" }) }));
  page.find("#collection-results details").open = true;
  socket.send("m1");
  await until(() => page.find("#collection-results").textContent === "m1", "new results");
  assert.equal(page.find("#collection-results details").open, true);
});

test("a table that has the focus is not replaced", async () => {
  const socket = await open(() => ({ body: reply({ mark: "m1" }) }));
  page.find("#rollout-table").tabIndex = -1;
  page.find("#rollout-table").focus();
  socket.send("m1");
  await untilShown("m1");
  assert.equal(server.asked[0].headers["hx-target"], "collection-figures");
});

test("another breakdown is asked for at once, and by every later request", async () => {
  const socket = await open(({ path }) => ({ body: reply({ mark: path.endsWith("by=source") ? "by source" : "by split" }) }));
  page.find("[data-by=source]").click();
  await untilShown("by source");
  socket.send("m2");
  await until(() => server.asked.length === 2, "the next request");
  assert.deepEqual(server.asked.map(({ path }) => path), ["/collections/1/?by=source", "/collections/1/?by=source"]);
});

test("the end closes the socket, and it is not opened again", async () => {
  const socket = await open(() => ({ body: reply({ mark: "m1", state: "completed", settled: true }) }));
  socket.send("m1");
  await until(() => !socket.isOpen(), "closing the socket");
  assert.equal(shown().state, "completed");
  assert.equal(server.sockets.length, 1);
});

test("a hidden page sends no request until it is visible", async () => {
  const socket = await open(() => ({ body: reply({ mark: "m1" }) }));
  let isHidden = true;
  Object.defineProperty(page.document, "hidden", { get: () => isHidden });
  const timers = [];
  const { setTimeout: later } = page.window;
  page.window.setTimeout = (run, ...given) => later(() => timers.push(run()), ...given);
  socket.send("m1");
  await until(() => timers.length, "the time to ask");
  await Promise.all(timers);
  assert.equal(server.asked.length, 0);
  isHidden = false;
  page.document.dispatchEvent(new page.window.Event("visibilitychange"));
  await untilShown("m1");
});

test("after an error the page keeps its figures and asks again", async () => {
  let status = 503;
  const socket = await open(() => ({ status, body: status === 200 ? reply({ mark: "m1" }) : "" }));
  socket.send("m1");
  await until(() => server.asked.length, "the request");
  assert.equal(shown().mark, "m0");
  status = 200;
  socket.send("m1");
  await untilShown("m1");
});
