// The trace page: loads parts on scrolling; links, finds and moves to steps; hides parts. The page also works without
// this script.

import * as keys from "./keys.js";
import { onReader } from "./moving.js";
import { readSelection, showQuotes } from "./quotes.js";
import "./lanes.js";

function openReader(reader, signal) {
  const transcript = () => document.getElementById("rollout-trace");
  const outline = () => document.getElementById("rollout-outline");
  const cards = () => [...transcript().querySelectorAll(".event:not(.past)")].filter((each) => each.getClientRects().length);
  const wide = matchMedia("(min-width: 62rem)");

  // Parts that are loaded later

  const loading = new Map();

  async function fetchPart(address) {
    const reply = await fetch(address, { headers: { "HX-Request": "true" } });
    if (!reply.ok) throw new Error(reply.status);
    return new DOMParser().parseFromString(`<body><template>${await reply.text()}</template>`, "text/html")
      .querySelector("template").content;
  }

  // Return the replacement; repeated calls while loading return the same promise.
  function load(place) {
    if (!place.matches(".pending")) return Promise.resolve(place);
    if (!loading.has(place.id)) loading.set(place.id, exchange(place).finally(() => loading.delete(place.id)));
    return loading.get(place.id);
  }

  async function exchange(place) {
    seen.unobserve(place);
    try {
      const fresh = document.adoptNode(await fetchPart(place.dataset.source));
      const elements = [...fresh.children];
      place.replaceWith(...elements);
      for (const each of elements) announce(each);
      return elements[0];
    } catch {
      const link = place.querySelector("a");
      place.classList.add("failed");
      link.textContent = "This part could not be loaded. Open it separately";
      return place;
    }
  }

  const announce = (root) => document.dispatchEvent(new CustomEvent("trace:added", { detail: root }));

  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) load(entry.target).then(watch);
  }, { rootMargin: "600px" });

  function watch() {
    for (const each of reader.querySelectorAll(".pending:not(.failed)")) seen.observe(each);
  }

  // Steps by number

  function placeOf(seq, within) {
    return [...within.querySelectorAll(".pending")]
      .find((each) => Number(each.dataset.first) <= seq && seq <= Number(each.dataset.last));
  }

  async function find(seq) {
    const shown = document.getElementById(`e${seq}`);
    if (shown) return shown;
    const place = placeOf(seq, transcript());
    if (place) await load(place);
    return document.getElementById(`e${seq}`);
  }

  // Scroll to a step. `part` is the text of the event that matched a search, if any.
  async function goTo(seq, { push = false, part } = {}) {
    sendBack();
    const found = await find(seq);
    if (!found) return null;
    // The output in a captured request is shown in the card of the call that it answers.
    const holder = part === undefined ? null : textAt(`${seq}/${part}`)?.closest(".event");
    const target = holder && !holder.contains(found) ? holder : found;
    const place = part === undefined ? target : bring(target, `${seq}/${part}`);
    for (let fold = target.parentElement?.closest("details"); fold; fold = fold.parentElement?.closest("details")) fold.open = true;
    if (push) history.pushState(null, "", `#e${seq}`);
    const card = target.closest(".event") || target;
    choose(card);
    if (!target.getClientRects().length && (reader.dataset.hide || reader.dataset.only)) {
      // Show the target of a link even if it is hidden; the saved setting does not change.
      showNoise("hide=none", false);
      document.getElementById("hidden-note").textContent = `Step #${seq} was hidden. All parts are shown now.`;
    }
    place.scrollIntoView({ block: "start" });
    pin(place);
    card.focus({ preventScroll: true });
    return card;
  }

  // A match in a hidden part is shown until the reader moves on.
  let brought = [];
  let unfolded = [];
  let broughtNote = "";

  const textAt = (address) => [...transcript().querySelectorAll("pre[data-part]")].find((each) => each.dataset.part === address);

  function bring(target, address) {
    const card = target.closest(".event") || target;
    const text = [...card.querySelectorAll("pre[data-part]")].find((each) => each.dataset.part === address);
    const hidden = (reader.dataset.hide || "").split(" ").filter(Boolean);
    const names = [];
    for (const name of hidden) {
      const part = (text ?? target).closest(NAMES[name]);
      if (part) bringOne(part, `“${labelOf(name)}”`, names);
    }
    if (reader.dataset.only && !card.matches(".trouble")) bringOne(card, "steps without errors", names);
    for (let fold = text?.closest("details"); fold && card.contains(fold); fold = fold.parentElement.closest("details")) {
      if (fold.open) continue;
      fold.open = true;
      unfolded.push(fold);
    }
    broughtNote = names.length ? `Step #${seqOf(card)} shows hidden parts, because your search matches them: ${names.join(", ")}.` : "";
    sayHidden();
    if (names.length) document.dispatchEvent(new CustomEvent("trace:shown", { detail: card }));
    return text?.closest(".arguments, .result, .block") ?? target;
  }

  function bringOne(part, what, names) {
    const note = document.createElement("p");
    note.className = "brought-note muted small";
    note.textContent = `Shown because your search matches it. Hidden otherwise: ${what}.`;
    part.classList.add("brought");
    if (part.matches(".event")) part.querySelector(".event-head").after(note);
    else part.prepend(note);
    brought.push(part);
    names.push(what);
  }

  function sendBack() {
    for (const each of brought) {
      each.classList.remove("brought");
      each.querySelector(".brought-note")?.remove();
    }
    for (const each of unfolded) each.open = false;
    brought = [];
    unfolded = [];
    if (!broughtNote) return;
    broughtNote = "";
    sayHidden();
  }

  // Content above gets its height when drawn or loaded: hold the target in place for a moment,
  // until the reader scrolls or types.
  const PIN_MS = 1500;
  let pinned = null;

  function pin(target) {
    pinned = { target, until: Date.now() + PIN_MS };
  }

  for (const name of ["wheel", "touchmove", "keydown", "pointerdown"]) addEventListener(name, () => { pinned = null; }, { passive: true, capture: true, signal });
  new ResizeObserver(() => {
    if (pinned && Date.now() < pinned.until) pinned.target.scrollIntoView({ block: "start" });
  }).observe(transcript());

  const hashed = () => Number(/^#e(\d+)$/.exec(location.hash)?.[1] ?? NaN);

  function followHash() {
    if (!Number.isNaN(hashed())) goTo(hashed());
  }

  document.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    const link = event.target.closest?.('a[href^="#e"]');
    const seq = Number(/^#e(\d+)$/.exec(link?.getAttribute("href") ?? "")?.[1] ?? NaN);
    if (!Number.isNaN(seq)) {
      event.preventDefault();
      goTo(seq, { push: true, part: link.dataset.hit?.split("/")[1] });
      return;
    }
    const card = event.target.closest?.("#rollout-trace .event");
    if (card && !event.target.closest("a, button, summary")) choose(card);
  }, { signal });
  addEventListener("hashchange", followHash, { signal });
  addEventListener("popstate", followHash, { signal });

  // The selected step and the inspector

  const chosen = () => transcript().querySelector(".event.chosen");
  const seqOf = (card) => Number(card.id.slice(1));
  let asking = null;

  function choose(card) {
    if (!card.matches(".event") || card.classList.contains("chosen")) return;
    chosen()?.classList.remove("chosen");
    card.classList.add("chosen");
    outline().querySelector("[aria-current]")?.removeAttribute("aria-current");
    showLine(card);
    clearTimeout(asking);
    asking = setTimeout(() => inspect(card), 180);
  }

  async function showLine(card) {
    const place = placeOf(seqOf(card), outline());
    if (place) await load(place);
    const line = document.getElementById(`o${seqOf(card)}`)?.firstElementChild;
    if (!line || card !== chosen()) return;
    line.setAttribute("aria-current", "true");
    keepInSight(line);
  }

  function keepInSight(line) {
    const pane = line.closest(".pane");
    const [inner, outer] = [line.getBoundingClientRect(), pane.getBoundingClientRect()];
    if (inner.top < outer.top + 30) pane.scrollTop -= outer.top + 30 - inner.top;
    else if (inner.bottom > outer.bottom - 10) pane.scrollTop += inner.bottom - outer.bottom + 10;
  }

  async function inspect(card) {
    const link = card.querySelector("a[data-step]");
    if (!link || !document.getElementById("inspector").open) return;
    try {
      const fresh = (await fetchPart(link.getAttribute("href"))).getElementById("inspected");
      if (card === chosen()) document.getElementById("inspected").replaceWith(document.adoptNode(fresh));
    } catch {
      // The page of the step shows the error.
    }
  }

  // Return the card at which keys start: the selected one if visible, else the first visible one.
  function here() {
    const bar = reader.querySelector(".reader-bar").getBoundingClientRect().bottom;
    const inSight = (card) => {
      const box = card.getBoundingClientRect();
      return box.bottom > bar && box.top < innerHeight;
    };
    const all = cards();
    const at = all.findIndex((card) => card.matches(".chosen"));
    if (at >= 0 && inSight(all[at])) return [all, at, true];
    return [all, Math.max(0, all.findIndex(inSight)), false];
  }

  async function step(way, wanted = () => true) {
    const [all, at, isChosen] = here();
    for (let index = isChosen || way < 0 ? at + way : at; index >= 0 && index < all.length; index += way) {
      if (wanted(all[index])) return goTo(seqOf(all[index]));
      const gap = gapBetween(all[index], all[index + way]);
      if (gap && await load(gap)) return step(way, wanted);
    }
    const edge = gapBetween(all[way > 0 ? all.length - 1 : 0], null, way);
    if (edge && await load(edge)) return step(way, wanted);
    return null;
  }

  // Return a part between two cards that is not loaded yet.
  function gapBetween(one, other, way = 1) {
    if (!one) return null;
    const chunk = one.closest(".chunk");
    const beside = other && other.closest(".chunk") !== chunk ? (one.compareDocumentPosition(other) & 4 ? chunk.nextElementSibling : chunk.previousElementSibling)
      : other ? null : (way > 0 ? chunk.nextElementSibling : chunk.previousElementSibling);
    return beside?.matches(".chunk.pending:not(.failed)") ? beside : null;
  }

  // The outline marks errors, and its parts load before the transcript.
  async function trouble(way) {
    const [all, at, isChosen] = here();
    const from = all.length ? seqOf(all[at]) - (isChosen ? 0 : way) : 0;
    for (;;) {
      const lines = [...outline().querySelectorAll("li.trouble, li.pending, li.commented")];
      const next = (way > 0 ? lines : lines.reverse()).find((line) => {
        const seq = line.matches(".pending") ? Number(way > 0 ? line.dataset.last : line.dataset.first) : Number(line.id.slice(1));
        return way > 0 ? seq > from : seq < from;
      });
      if (!next) return null;
      if (!next.matches(".pending")) return goTo(Number(next.id.slice(1)));
      if ((await load(next)).matches(".failed")) return null;
    }
  }

  // Hidden parts

  const bar = reader.querySelector(".reader-bar");
  // Sticky elements below the bar need its height.
  new ResizeObserver(() => {
    if (wide.matches) reader.style.setProperty("--bar", `${bar.offsetHeight}px`);
    else reader.style.removeProperty("--bar");
  }).observe(bar);
  const NAMES = { system: ".event.session, .block.system, .block.developer", reasoning: ".block.reasoning", arguments: ".arguments", results: ".result, .block.output", environment: ".event.environment_turn, .event.verification, .event.judge_call" };

  const labelOf = (name) => bar.querySelector(`[data-part="${name}"]`).lastChild.textContent;

  function showNoise(query, remember = true) {
    const given = new URLSearchParams(query);
    const hidden = (given.get("hide") || "").split(",").filter((name) => name in NAMES);
    const errors = given.get("only") === "errors";
    const top = chosen();
    sendBack();
    reader.dataset.hide = hidden.join(" ");
    if (errors) reader.dataset.only = "errors";
    else delete reader.dataset.only;
    for (const each of bar.querySelectorAll("[data-part]")) each.setAttribute("aria-pressed", String(!hidden.includes(each.dataset.part)));
    const said = `hide=${hidden.join(",") || "none"}${errors ? "&only=errors" : ""}`;
    for (const each of bar.querySelectorAll("[data-preset]")) {
      if (each.dataset.preset === said) each.setAttribute("aria-current", "true");
      else each.removeAttribute("aria-current");
    }
    if (remember) {
      const kept = [...new URLSearchParams(location.search)].filter(([name]) => name !== "hide" && name !== "only");
      const others = new URLSearchParams(kept).toString();
      history.replaceState(null, "", `?${said}${others ? `&${others}` : ""}${location.hash}`);
      const secure = location.protocol === "https:" ? "; secure" : "";
      document.cookie = `trace_view=${said.replace("&", "|")}; path=/; max-age=31536000; samesite=lax${secure}`;
      top?.scrollIntoView({ block: "nearest" });
    }
    document.dispatchEvent(new CustomEvent("trace:shown", { detail: transcript() }));
    sayHidden();
  }

  function sayHidden() {
    const hidden = (reader.dataset.hide || "").split(" ").filter(Boolean);
    const counts = hidden.map((name) => [transcript().querySelectorAll(NAMES[name]).length, labelOf(name).toLowerCase()])
      .filter(([count]) => count).map(([count, label]) => `${label} ${count}×`);
    if (reader.dataset.only) {
      const all = transcript().querySelectorAll(".event").length;
      counts.unshift(`${all - transcript().querySelectorAll(".event.trouble").length} of ${all} steps (without errors)`);
    }
    document.getElementById("hidden-note").textContent = [counts.length ? `Hidden: ${counts.join(", ")}.` : "", broughtNote].filter(Boolean).join(" ");
  }

  function flip(name) {
    const hidden = new Set((reader.dataset.hide || "").split(" ").filter(Boolean));
    if (!hidden.delete(name)) hidden.add(name);
    showNoise(`hide=${Object.keys(NAMES).filter((each) => hidden.has(each)).join(",") || "none"}${reader.dataset.only ? "&only=errors" : ""}`);
  }

  bar.addEventListener("click", (event) => {
    const link = event.target.closest("[data-part], [data-preset]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    if (link.dataset.part) flip(link.dataset.part);
    else showNoise(link.dataset.preset);
  });
  bar.addEventListener("keydown", (event) => {
    if (event.key === " " && event.target.matches("[data-part]")) {
      event.preventDefault();
      flip(event.target.dataset.part);
    }
  });

  // Search the whole rollout, or `:12` for a step

  const box = document.getElementById("find");
  bar.querySelector(".find").addEventListener("submit", async (event) => {
    event.preventDefault();
    const number = /^:\s*#?(\d+)$/.exec(box.value.trim());
    if (number) {
      box.value = "";
      box.blur();
      if (!await goTo(Number(number[1]), { push: true })) sayFound(`There is no step ${number[1]}.`);
      return;
    }
    try {
      const fresh = await fetchPart(`${reader.dataset.find}&q=${encodeURIComponent(box.value)}`);
      endFind();
      const pane = document.getElementById("outline");
      pane.open = true;
      pane.querySelector("summary").after(document.adoptNode(fresh.getElementById("found")));
      pane.scrollTop = 0;
      document.querySelector("#found a")?.focus();
    } catch {
      sayFound("The server is unreachable.");
    }
  });
  box.addEventListener("search", () => { if (!box.value) endFind(); });

  function endFind() {
    document.getElementById("found")?.remove();
    sendBack();
  }

  function sayFound(text) {
    document.getElementById("hidden-note").textContent = text;
  }

  // Restore the panes

  for (const pane of reader.querySelectorAll(".pane")) {
    const kept = `pane.${pane.id}`;
    const said = localStorage.getItem(kept);
    if (!wide.matches) pane.open = pane.id === "inspector" && (location.hash.startsWith("#c") || location.search.includes("comment="));
    else if (said) pane.open = said === "open";
    pane.addEventListener("toggle", () => { if (wide.matches) localStorage.setItem(kept, pane.open ? "open" : "closed"); });
  }

  // "comment" beside an event fills the form in place; without this script the link opens the page with it filled.
  // Text selected in the event becomes the quote of the comment.
  function comment(seq) {
    const form = document.getElementById("comment");
    if (!form) return false;
    const selected = readSelection();
    quote(form, selected?.seq === seq ? selected.text : "");
    document.getElementById("inspector").open = true;
    form.elements.seq.value = seq;
    form.elements.text.focus();
    return true;
  }

  function quote(form, text) {
    form.elements.quote.value = text;
    const shown = document.getElementById("comment-quote");
    shown.textContent = text;
    shown.hidden = !text;
  }

  showQuotes();
  document.addEventListener("trace:added", showQuotes, { signal });
  document.addEventListener("mousedown", (event) => {
    // Otherwise the selection would end before the click.
    if (event.target.closest?.("a[data-comment]")) event.preventDefault();
  }, { signal });
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[data-comment]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (comment(Number(link.dataset.comment))) event.preventDefault();
  }, { signal });

  // Keys

  const group = "Trace";
  const current = () => here()[0][here()[1]];
  const click = (selector) => document.querySelector(selector)?.click();
  const folds = (root) => [...root.querySelectorAll("details.long, details.thought, details.fold")];

  function toggleFolds(root) {
    const all = folds(root);
    const open = all.some((each) => !each.open);
    for (const each of all) each.open = open;
  }

  async function copyLink() {
    const card = current();
    if (!card) return;
    choose(card);
    const seq = seqOf(card);
    const address = new URL(location.href);
    address.searchParams.set("step", seq);
    address.hash = `e${seq}`;
    try {
      await navigator.clipboard.writeText(address.href);
      sayFound(`Link to step ${seq} copied.`);
    } catch {
      history.replaceState(null, "", address);
      sayFound("This browser does not allow copying. The link is in the address bar.");
    }
  }

  function focusOne() {
    const on = reader.classList.toggle("one");
    if (on) choose(current());
    chosen()?.scrollIntoView({ block: "start" });
  }

  for (const [id, key, label, run] of [
    ["trace.next", "j", "Next step", () => step(1)],
    ["trace.previous", "k", "Previous step", () => step(-1)],
    ["trace.next-turn", "J", "Next model turn", () => step(1, (card) => card.matches(".model_call"))],
    ["trace.previous-turn", "K", "Previous model turn", () => step(-1, (card) => card.matches(".model_call"))],
    ["trace.next-trouble", "n", "Next error or comment", () => trouble(1)],
    ["trace.previous-trouble", "N", "Previous error or comment", () => trouble(-1)],
    ["trace.first", "g g", "First step", () => goTo(Number(transcript().querySelector(".chunk")?.dataset.first ?? 0))],
    ["trace.last", "G", "Last step", goToLast],
    ["trace.go", ":", "Go to step number", () => { box.value = ":"; box.focus(); }],
    ["trace.expand", "e", "Expand or collapse the step", () => current() && toggleFolds(current())],
    ["trace.expand-all", "E", "Expand or collapse all", () => toggleFolds(transcript())],
    ["trace.focus", "f", "One step at a time", focusOne],
    ["trace.raw", "r", "Switch between rendered, raw and JSON", () => current() && document.dispatchEvent(new CustomEvent("trace:cycle", { detail: current() }))],
    ["trace.link", "y", "Copy link to step", copyLink],
    ["trace.comment", "c", "Comment on the step or on the text selected in it", () => comment(readSelection()?.seq ?? (current() ? seqOf(current()) : ""))],
    ["trace.wrap", "w", "Toggle line wrap", wrap],
    ["trace.outline", "o", "Show or hide the outline", () => document.querySelector("#outline > summary").click()],
    ["trace.inspector", "i", "Show or hide the inspector", () => document.querySelector("#inspector > summary").click()],
    ["trace.rollout-before", "[", "Previous rollout", () => click("main a[rel=prev]")],
    ["trace.rollout-after", "]", "Next rollout", () => click("main a[rel=next]")],
  ]) keys.add({ id, keys: key, label, group, run, signal });
  for (const each of bar.querySelectorAll("[data-part]")) {
    keys.add({ id: `trace.show-${each.dataset.part}`, keys: each.querySelector("kbd").textContent, label: each.lastChild.textContent, group: "Show or hide in the trace", run: () => flip(each.dataset.part), signal });
  }

  function wrap() {
    const off = reader.classList.toggle("unwrapped");
    // Elements that scroll sideways must be focusable.
    for (const pre of transcript().querySelectorAll("pre.code")) {
      if (off) pre.tabIndex = 0;
      else pre.removeAttribute("tabindex");
    }
  }

  async function goToLast() {
    const last = [...transcript().querySelectorAll(".chunk")].pop();
    if (!last) return;
    const whole = await load(last);
    const card = [...whole.querySelectorAll(".event")].pop();
    if (card) goTo(seqOf(card));
  }

  document.addEventListener("trace:added", sayHidden, { signal });
  sayHidden();
  watch();
  followHash();
  const strip = document.querySelector(".trace-head .strip");
  const chip = document.getElementById("rollout-chip");
  if (strip && chip) strip.scrollLeft = chip.offsetLeft - strip.offsetLeft - strip.clientWidth / 2;
}

onReader(openReader);
