// Page of a running rollout: appends new events from a WebSocket or, while that is silent, by polling. Visible events
// keep their place, and no event is shown twice. The page also works without this script.

import { sayWhetherSignedOut } from "./gymweb.js";
import { append } from "./lanes.js";

const LOOK_MS = 2000;
const ROOM = 80;

function followRollout(place) {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  const bar = document.getElementById("follow");
  const [newer, button] = bar.children;
  let mark = place.dataset.mark;
  let heardAt = Date.now();
  let waits = 1000;
  let settled = false;
  let unseen = 0;
  let top = scrollY;

  const trace = () => document.getElementById("rollout-trace");
  const isFollowing = () => button.getAttribute("aria-pressed") === "true";

  // "running-2-7": status, attempt, and number of the next event.
  function read(text) {
    const [status, attempt, next] = text.split("-");
    return { status, attempt: Number(attempt), next: Number(next) };
  }

  function show(html) {
    const news = new DOMParser().parseFromString(html, "text/html").getElementById("rollout-live");
    if (!news || settled) return;
    heardAt = Date.now();
    const [had, has] = [read(mark), read(news.dataset.mark)];
    // A poll's response may arrive after a newer message of the socket.
    if (has.attempt < had.attempt || (has.attempt === had.attempt && has.next < had.next)) return;
    mark = news.dataset.mark;
    settled = news.dataset.settled === "true";
    if (has.attempt !== had.attempt) leaveAttempt();
    for (const id of ["rollout-attempts", "rollout-facts", "rollout-figures", "rollout-note"]) replace(id, news.querySelector(`#${id}`));
    const known = has.attempt === had.attempt ? had.next : 0;
    const added = [...news.querySelectorAll("#rollout-trace > .attempt-line, #rollout-trace .event")]
      .filter((fresh) => merge(fresh, known));
    for (const line of [...news.querySelector("#rollout-outline").children]) mergeLine(line, known);
    if (settled) settle();
    tell(added);
  }

  function replace(id, fresh) {
    const shown = document.getElementById(id);
    if (!shown.isEqualNode(fresh)) shown.replaceWith(document.adoptNode(fresh));
  }

  // Return true for new cards. An existing card gets the results of its calls and the links to its subagents. Changed
  // cards of parts that are not loaded yet are ignored.
  function merge(fresh, known) {
    const shown = document.getElementById(fresh.id);
    if (!shown && Number(fresh.id.slice(1)) < known) return false;
    if (!shown) {
      trace().querySelector(".empty")?.remove();
      const chunk = openChunk(fresh);
      append(chunk, fresh);
      chunk.dataset.last = seqOf(fresh);
      document.dispatchEvent(new CustomEvent("trace:added", { detail: fresh }));
      return true;
    }
    const calls = shown.querySelectorAll(".block.call");
    fresh.querySelectorAll(".block.call").forEach((call, index) => {
      const result = call.querySelector(".result");
      const awaited = calls[index]?.querySelector("[data-awaited]");
      if (result && awaited) awaited.parentElement.replaceWith(document.adoptNode(result));
    });
    const links = fresh.querySelector(".call-links");
    if (links) shown.querySelector(".call-links")?.replaceWith(document.adoptNode(links));
    // The line of an attempt is outside of all chunks. It arrives twice if both poll and socket send it.
    const chunk = shown.closest(".chunk");
    if (chunk) chunk.dataset.last = Math.max(Number(chunk.dataset.last), seqOf(shown));
    return false;
  }

  // Position of the newest cards, at the end of the loaded part of a running trace.
  function openChunk(fresh) {
    if (fresh.matches(".attempt-line")) return trace();
    const last = trace().lastElementChild;
    if (last?.matches(".chunk:not(.past)")) return last;
    const chunk = document.createElement("section");
    chunk.className = "chunk";
    chunk.id = `chunk-${fresh.id.slice(1)}`;
    chunk.dataset.first = fresh.id.slice(1);
    trace().append(chunk);
    return chunk;
  }

  // Return the number of the last event within a card.
  function seqOf(card) {
    return Math.max(...[card, ...card.querySelectorAll(".result[id]")].map((each) => Number(each.id.slice(1))));
  }

  function mergeLine(fresh, known) {
    const shown = document.getElementById(fresh.id);
    if (shown) shown.replaceWith(document.adoptNode(fresh));
    else if (Number(fresh.id.slice(1)) >= known) document.getElementById("rollout-outline").append(document.adoptNode(fresh));
  }

  // An ended attempt stays above the next one, without its ids, which the next one needs.
  function leaveAttempt() {
    noResults();
    for (const each of trace().querySelectorAll("[id]")) each.removeAttribute("id");
    for (const each of trace().querySelectorAll(".permalink, .call-links")) each.remove();
    for (const each of trace().querySelectorAll(".lane")) delete each.dataset.lane;
    for (const each of trace().querySelectorAll(".event, .chunk")) each.classList.add("past");
    document.getElementById("rollout-outline").replaceChildren();
  }

  function noResults() {
    for (const each of trace().querySelectorAll("[data-awaited]")) {
      each.textContent = "No result recorded";
      delete each.dataset.awaited;
    }
  }

  function settle() {
    socket?.close();
    noResults();
    const chip = document.querySelector("#rollout-chip");
    const reward = document.querySelector("#rollout-facts .reward-chip:not(.muted)");
    const status = document.querySelector("#rollout-facts .chip");
    if (chip && (reward || status)) chip.replaceChildren((reward || status).cloneNode(true));
    button.hidden = true;
  }

  // Scroll for readers who follow; show others how many events are below.
  function tell(added) {
    if (isFollowing()) {
      scrollBy(0, Math.max(0, below()));
      top = scrollY;
    } else if (added.length && !isAtEnd()) {
      if (!unseen) newer.href = `#${added[0].id}`;
      unseen += added.filter((each) => each.matches(".event")).length;
    }
    showUnseen();
  }

  // Pixels of the trace below the viewport, with space for the line and the bar below it.
  const below = () => trace().getBoundingClientRect().bottom + ROOM - innerHeight;
  const isAtEnd = () => below() <= ROOM + 2;

  function showUnseen() {
    if (isAtEnd()) unseen = 0;
    newer.hidden = unseen === 0;
    newer.textContent = `${unseen} new step${unseen === 1 ? "" : "s"} ↓`;
    bar.hidden = button.hidden && unseen === 0;
  }

  addEventListener("scroll", () => {
    // Scrolling up ends following.
    if (isFollowing() && scrollY < top - 8) button.setAttribute("aria-pressed", "false");
    top = scrollY;
    showUnseen();
  }, { passive: true });

  button.addEventListener("click", () => {
    button.setAttribute("aria-pressed", String(!isFollowing()));
    tell([]);
  });

  let socket = null;

  function connect() {
    socket = new WebSocket(`${scheme}://${location.host}${place.dataset.follow}?seen=${mark}`);
    socket.addEventListener("open", () => { waits = 1000; });
    socket.addEventListener("message", (event) => show(event.data));
    socket.addEventListener("close", () => {
      if (settled) return;
      setTimeout(connect, waits);
      waits = Math.min(waits * 2, 30000);
    });
  }

  async function look() {
    if (settled) return;
    // A silent socket may have missed a notification, or not exist.
    if (Date.now() - heardAt >= LOOK_MS && !document.hidden) {
      try {
        const reply = await fetch(`${place.dataset.poll}?seen=${mark}`, { headers: { "HX-Request": "true" } });
        sayWhetherSignedOut(reply);
        if (reply.status === 200) show(await reply.text());
      } catch {
        // The server is unavailable; the next poll or the reconnected socket updates the page.
      }
    }
    setTimeout(look, LOOK_MS);
  }

  // Cards grow when they are rendered: readers who follow stay at the end.
  new ResizeObserver(() => {
    if (isFollowing()) scrollBy(0, Math.max(0, below()));
    showUnseen();
  }).observe(trace());
  showUnseen();
  connect();
  setTimeout(look, LOOK_MS);
}

for (const place of document.querySelectorAll("[data-follow]")) followRollout(place);
