// Live pages. A collection's progress comes over a socket, by polling while the socket is down; a running rollout's
// trace comes by htmx, and what its reader has opened stays open. The pages read without any of this.

const POLL_MS = 5000;
const RESULTS_MS = 10000;

function watchCollection(place) {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  let socket = null;
  let waits = 1000;
  let finished = false;
  let resultsAt = Date.now();

  function show(html) {
    const parsed = new DOMParser().parseFromString(html, "text/html").body.firstElementChild;
    const shown = document.getElementById(parsed ? parsed.id : "");
    if (!shown) return;
    shown.replaceWith(document.adoptNode(parsed));
    finished = parsed.dataset.finished === "true";
    if (finished || Date.now() - resultsAt > RESULTS_MS) {
      resultsAt = Date.now();
      refresh("collection-results");
      if (finished) {
        refresh("rollout-table");
        document.querySelectorAll("[data-until-finished]").forEach((each) => each.remove());
      }
    }
    if (finished && socket) socket.close();
  }

  function refresh(id) {
    if (document.getElementById(id)) {
      htmx.ajax("GET", place.dataset.poll + location.search, { target: `#${id}`, swap: "outerHTML" });
    }
  }

  function connect() {
    socket = new WebSocket(`${scheme}://${location.host}${place.dataset.live}`);
    socket.addEventListener("open", () => { waits = 1000; });
    socket.addEventListener("message", (event) => show(event.data));
    socket.addEventListener("close", () => {
      if (finished) return;
      setTimeout(connect, waits);
      waits = Math.min(waits * 2, 30000);
    });
  }

  async function poll() {
    if (finished) return;
    if (socket.readyState !== WebSocket.OPEN && !document.hidden) {
      try {
        const reply = await fetch(place.dataset.poll, {
          headers: { "HX-Request": "true", "HX-Target": "collection-progress" },
        });
        if (reply.ok) show(await reply.text());
      } catch {
        // The server is away; the next poll or the socket's return shows the truth.
      }
    }
    setTimeout(poll, POLL_MS);
  }

  connect();
  setTimeout(poll, POLL_MS);
}

for (const place of document.querySelectorAll("[data-live]")) watchCollection(place);

// A swap of the trace makes new elements: remember by place which ones the reader had opened.
let opened = new Set();

function folds() {
  const counts = new Map();
  return [...document.querySelectorAll("#rollout-live details")].map((fold) => {
    const event = fold.closest("[id]").id;
    const place = counts.get(event) || 0;
    counts.set(event, place + 1);
    return [`${event}/${place}`, fold];
  });
}

document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target.id === "rollout-live") {
    opened = new Set(folds().filter(([, fold]) => fold.open).map(([key]) => key));
  }
});

document.addEventListener("htmx:afterSettle", () => {
  for (const [key, fold] of folds()) if (opened.has(key)) fold.open = true;
});
