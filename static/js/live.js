// Live pages. A collection's progress comes over a socket, by polling while the socket is silent, and its results and
// rollouts follow; what its reader has opened stays open. The pages read without any of this.

const POLL_MS = 5000;
const RESULTS_MS = 2500;

function watchCollection(place) {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  let socket = null;
  let waits = 1000;
  let settled = false;
  let shownAt = Date.now();
  let pending = null;
  let refreshing = false;
  let again = false;

  function show(html) {
    const parsed = new DOMParser().parseFromString(html, "text/html").body.firstElementChild;
    const shown = document.getElementById(parsed ? parsed.id : "");
    if (!shown) return;
    const changed = shown.textContent !== parsed.textContent;
    shown.replaceWith(document.adoptNode(parsed));
    shownAt = Date.now();
    // What may be done depends on the state.
    for (const each of document.querySelectorAll("[data-states]")) {
      each.hidden = !each.dataset.states.split(" ").includes(parsed.dataset.state);
    }
    // Rows in flight land after the collection has ended: listen until nothing runs, then look once more.
    settled = parsed.dataset.settled === "true";
    if (settled) {
      socket?.close();
      refresh();
      // The workers say how busy they are with their next heartbeat.
      setTimeout(refresh, POLL_MS);
    } else if (changed && pending === null) {
      pending = setTimeout(refresh, RESULTS_MS);
    }
  }

  async function refresh() {
    if (refreshing) {
      again = true;
      return;
    }
    clearTimeout(pending);
    pending = null;
    // Nobody looks: `visibilitychange` asks again.
    if (document.hidden) return;
    refreshing = true;
    const began = Date.now();
    let missed = false;
    try {
      await replace("collection-results");
      await replace("breakdown");
      if (isReading(document.getElementById("rollout-table"))) offerNewer();
      else await replace("rollout-table");
    } catch {
      // The server is away: what it shows then is still to be had.
      missed = true;
    }
    refreshing = false;
    if (again || missed || !settled) {
      again = false;
      // Large collections take their time to measure: no page keeps the database busier than a fifth of the time.
      pending = setTimeout(refresh, Math.max(RESULTS_MS, 4 * (Date.now() - began)));
    }
  }

  function replace(id) {
    const target = document.getElementById(id);
    if (!target) return null;
    const addresses = {
      "collection-results": () => place.dataset.results,
      // By what its reader has chosen; nothing is chosen before it has come.
      breakdown: () => !holdsReader(target) && target.querySelector("[aria-current]")?.href,
      "rollout-table": () => place.dataset.poll,
    };
    const address = addresses[id]();
    return address ? htmx.ajax("GET", address, { target, swap: "outerHTML" }) : null;
  }

  // A table that its reader has filtered, paged, scrolled or is in stays as it is.
  function isReading(table) {
    return location.search !== "" || holdsReader(table)
      || [...table.querySelectorAll(".scroll")].some((each) => each.scrollLeft > 0);
  }

  function holdsReader(part) {
    const selection = getSelection();
    return part.contains(document.activeElement) || (!selection.isCollapsed && part.contains(selection.anchorNode));
  }

  function offerNewer() {
    const table = document.getElementById("rollout-table");
    const newer = document.getElementById("collection-progress").dataset.ended - table.dataset.ended;
    const offer = table.querySelector("[data-newer]");
    offer.hidden = newer <= 0;
    offer.querySelector("strong").textContent = newer.toLocaleString("en");
  }

  function connect() {
    socket = new WebSocket(`${scheme}://${location.host}${place.dataset.live}`);
    socket.addEventListener("open", () => { waits = 1000; });
    socket.addEventListener("message", (event) => show(event.data));
    socket.addEventListener("close", () => {
      if (settled) return;
      setTimeout(connect, waits);
      waits = Math.min(waits * 2, 30000);
    });
  }

  async function poll() {
    if (settled) return;
    // A silent socket may have lost an announcement.
    if (Date.now() - shownAt >= POLL_MS && !document.hidden) {
      try {
        const reply = await fetch(place.dataset.poll, {
          headers: { "HX-Request": "true", "HX-Target": "collection-progress" },
        });
        sayWhetherSignedOut(reply);
        withdrawUnreachable();
        if (reply.ok) show(await reply.text());
      } catch {
        // The server is away; the next poll or the socket's return shows the truth.
      }
    }
    setTimeout(poll, POLL_MS);
  }

  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
  connect();
  setTimeout(poll, POLL_MS);
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

document.addEventListener("htmx:beforeSwap", (event) => {
  if (KEPT_OPEN.includes(event.detail.target?.id)) {
    opened = new Set(folds().filter(([, fold]) => fold.open).map(([key]) => key));
  }
});

document.addEventListener("htmx:afterSwap", (event) => {
  if (!KEPT_OPEN.includes(event.detail.target?.id)) return;
  for (const [key, fold] of folds()) if (opened.has(key)) fold.open = true;
});
