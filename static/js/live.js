// Page of a running collection. A WebSocket notifies it of changes; then it fetches all figures in one response, so
// that they are consistent. While the socket is silent the page polls. Open folds stay open.

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
    // Hidden pages fetch nothing; `visibilitychange` fetches again.
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
      // Another breakdown was chosen meanwhile, so this one is not shown.
      if (asked !== by) wanted = true;
      else if (reply.ok && !reply.headers.has("HX-Redirect")) show(html);
    } catch {
      // The server is unavailable: the next poll or the reconnected socket tries again.
    }
    heardAt = Date.now();
  }

  function show(html) {
    // Without delay: htmx keeps the old attributes until then, and the state is read from them.
    htmx.swap(place, html, { swapStyle: "none", settleDelay: 0 });
    // Actions depend on the state.
    for (const each of document.querySelectorAll("[data-states]")) {
      each.hidden = !each.dataset.states.split(" ").includes(shown().state);
    }
    offerNewer();
    if (shown().fresh === "false") setTimeout(want, STALE_MS);
    // Rows in flight are stored after the collection has ended, so keep listening until nothing runs.
    if (shown().settled !== "true" || settled) return;
    settled = true;
    socket?.close();
    // Workers report their busy seats with their next heartbeat.
    setTimeout(want, POLL_MS);
  }

  // Return true for a table that the reader filtered, paged, scrolled or focused, which must not be replaced.
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
    // A silent socket may have missed a notification.
    if (Date.now() - heardAt >= POLL_MS) want();
    setTimeout(poll, POLL_MS);
  }

  // Another breakdown is fetched together with all other parts. htmx would fetch it without the table.
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

// A swap creates new elements, so remember which ones the reader had opened.
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
