// Moves between rollouts without reloading the page: replaces the content of the page, and starts its readers again.
// The previous and the next rollout are requested ahead. Running rollouts, and replies other than a trace, load as pages.

const FRESH_MS = 60000;
const LINKS = "main a[rel=prev], main a[rel=next], .trace-head .strip a";
const starters = [];
const requested = new Map();
let stop = new AbortController();
let shown = pageOf(location);

// The page shows the trace of a rollout that has ended.
const isMovable = (page) => page.querySelector(".trace-head") && !page.querySelector("[data-follow]");

function pageOf(address) {
  return address.pathname + address.search;
}

// Call `start(reader, signal)` now and after each move. `signal` aborts when the reader is replaced.
export function onReader(start) {
  starters.push(start);
  run(start);
}

function run(start) {
  const reader = document.getElementById("reader");
  if (reader) start(reader, stop.signal);
}

async function read(address) {
  const reply = await fetch(address, { headers: { Accept: "text/html" } });
  if (!reply.ok || reply.redirected) return null;
  const page = new DOMParser().parseFromString(await reply.text(), "text/html");
  return isMovable(page) ? page : null;
}

// A page is used once, because its content moves into this document.
function request(address) {
  const known = requested.get(address);
  if (known && Date.now() - known.at < FRESH_MS) return known.page;
  const page = read(address).catch(() => null);
  requested.set(address, { at: Date.now(), page });
  return page;
}

function requestBeside() {
  requested.clear();
  for (const link of document.querySelectorAll("main a[rel=next], main a[rel=prev]")) request(pageOf(link));
}

const whenIdle = (run) => (window.requestIdleCallback ? requestIdleCallback(run, { timeout: 500 }) : setTimeout(run, 100));

async function move(address, isNew) {
  const page = await request(pageOf(address));
  requested.delete(pageOf(address));
  if (!page) {
    if (isNew) location.assign(address);
    else location.reload();
    return;
  }
  stop.abort();
  stop = new AbortController();
  if (isNew) history.pushState(null, "", address);
  shown = pageOf(location);
  document.title = page.title;
  const content = document.getElementById("content");
  content.replaceChildren(...document.adoptNode(page.getElementById("content")).childNodes);
  window.htmx?.process(content);
  if (isNew) scrollTo(0, 0);
  content.focus({ preventScroll: true });
  for (const start of starters) run(start);
  whenIdle(requestBeside);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.(LINKS);
  if (!link || event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey || event.button || !isMovable(document)) return;
  event.preventDefault();
  move(new URL(link.href), true);
});

addEventListener("popstate", (event) => {
  if (pageOf(location) === shown) return;
  event.stopImmediatePropagation();
  move(new URL(location), false);
});

if (isMovable(document)) whenIdle(requestBeside);
