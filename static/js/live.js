// The page of a running collection. A socket tells it that figures changed; the page then fetches all of them in one
// reply, so that they are of one moment. While the socket is silent the page polls. Folds that are open stay open.

import { sayWhetherSignedOut, withdrawUnreachable } from "./gymweb.js";

const POLL_MS = 5000;
const BETWEEN_MS = 1000;
const STALE_MS = 3000;

function watchCollection(place) {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  const shown = () => document.getElementById("collection-progress").dataset;
  let socket = null;
  let waits = 1000;
  let settled = false;
  let heardAt = Date.now();
  let wanted = false;
  let fetching = false;
  let timer = null;
  let notBefore = 0;
  let by = document.querySelector("#breakdown [aria-current]")?.dataset.by ?? "split";

  function want() {
    wanted = true;
    if (!fetching && timer === null) timer = setTimeout(run, Math.max(0, notBefore - Date.now()));
  }

  function hurry() {
    notBefore = 0;
    clearTimeout(timer);
    timer = null;
    want();
  }

  async function run() {
    timer = null;
    // A hidden page asks for nothing: `visibilitychange` asks again.
    if (document.hidden) return;
    if (isSelecting()) {
      notBefore = Date.now() + BETWEEN_MS;
      want();
      return;
    }
    wanted = false;
    fetching = true;
    const [began, asked] = [Date.now(), by];
    await refresh();
    fetching = false;
    // A slow server gets more time between two requests.
    notBefore = asked === by ? began + Math.max(BETWEEN_MS, 1.5 * (Date.now() - began)) : 0;
    if (wanted) want();
  }

  async function refresh() {
    const asked = by;
    const target = isReading(document.getElementById("rollout-table")) ? "collection-figures" : "collection-live";
    try {
      const reply = await fetch(`${place.dataset.poll}?by=${asked}`, { headers: { "HX-Request": "true", "HX-Target": target } });
      sayWhetherSignedOut(reply);
      withdrawUnreachable();
      const html = await reply.text();
      // Another breakdown was chosen meanwhile: this one is not put in its place.
      if (asked !== by) wanted = true;
      else if (reply.ok && !reply.headers.has("HX-Redirect")) show(html);
    } catch {
      // The server is away: the next poll or the socket's return asks again.
    }
    heardAt = Date.now();
  }

  function show(html) {
    // Without a delay: htmx keeps the old attributes until then, and the state is read from them.
    htmx.swap(place, html, { swapStyle: "none", settleDelay: 0 });
    // What may be done depends on the state.
    for (const each of document.querySelectorAll("[data-states]")) {
      each.hidden = !each.dataset.states.split(" ").includes(shown().state);
    }
    offerNewer();
    if (shown().fresh === "false") setTimeout(want, STALE_MS);
    // Rows in flight are stored after the collection has ended: listen until nothing runs.
    if (shown().settled !== "true" || settled) return;
    settled = true;
    socket?.close();
    // The workers say how busy they are with their next heartbeat.
    setTimeout(want, POLL_MS);
  }

  // A table that its reader has filtered, paged, scrolled or is in stays as it is.
  function isReading(table) {
    return location.search !== "" || table.contains(document.activeElement)
      || [...table.querySelectorAll(".scroll")].some((each) => each.scrollLeft > 0);
  }

  function isSelecting() {
    const selection = getSelection();
    const parts = ["collection-progress", "collection-results", "breakdown", "rollout-table"];
    return !selection.isCollapsed && parts.some((id) => document.getElementById(id).contains(selection.anchorNode));
  }

  function offerNewer() {
    const table = document.getElementById("rollout-table");
    const newer = shown().ended - table.dataset.ended;
    const offer = table.querySelector("[data-newer]");
    offer.hidden = newer <= 0;
    offer.querySelector("strong").textContent = newer.toLocaleString("en");
  }

  function connect() {
    socket = new WebSocket(`${scheme}://${location.host}${place.dataset.live}`);
    socket.addEventListener("open", () => { waits = 1000; });
    socket.addEventListener("message", (event) => {
      heardAt = Date.now();
      if (event.data !== shown().mark) want();
    });
    socket.addEventListener("close", () => {
      if (settled) return;
      setTimeout(connect, waits);
      waits = Math.min(waits * 2, 30000);
    });
  }

  function poll() {
    if (settled) return;
    // A silent socket may have lost an announcement.
    if (Date.now() - heardAt >= POLL_MS) want();
    setTimeout(poll, POLL_MS);
  }

  // Another breakdown comes with all other parts. htmx would bring it without the table.
  document.addEventListener("click", (event) => {
    const tab = event.target.closest("#breakdown [data-by]");
    if (!tab || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    event.stopPropagation();
    by = tab.dataset.by;
    hurry();
  }, true);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) want(); });
  connect();
  setTimeout(poll, POLL_MS);
  if (shown().fresh === "false") want();
}

for (const place of document.querySelectorAll("[data-live]")) watchCollection(place);

// A swap makes new elements: remember by place which ones the reader had opened.
const KEPT_OPEN = ["collection-results"];
let opened = new Set();

function folds() {
  const counts = new Map();
  return [...document.querySelectorAll(KEPT_OPEN.map((id) => `#${id} details`).join())].map((fold) => {
    const event = fold.closest("[id]").id;
    const place = counts.get(event) || 0;
    counts.set(event, place + 1);
    return [`${event}/${place}`, fold];
  });
}

document.addEventListener("htmx:oobBeforeSwap", (event) => {
  if (KEPT_OPEN.includes(event.detail.target.id)) {
    opened = new Set(folds().filter(([, fold]) => fold.open).map(([key]) => key));
  }
});

document.addEventListener("htmx:oobAfterSwap", (event) => {
  if (!KEPT_OPEN.includes(event.detail.target.id)) return;
  for (const [key, fold] of folds()) if (opened.has(key)) fold.open = true;
});
