// Prepares the cards of a trace when they come near: formatted, raw or JSON text; copying; truncated texts.

import { element, reveal } from "./code.js";
import { show, showJson } from "./forms.js";
import { onReader } from "./moving.js";

function prepareCards(reader, signal) {
  const places = { marked: reader.dataset.marked, purify: reader.dataset.purify, hljs: reader.dataset.hljs };
  const VIEWS = new Map([["rendered", "rendered"], ["raw", "raw"], ["json", "JSON"]]);
  const usual = () => (localStorage.getItem("trace.view") === "raw" ? "raw" : "rendered");

  // Return the URL of a single text; empty for a card that is not stored.
  function address(card, part) {
    const link = card.querySelector("a[data-step]")?.getAttribute("href");
    if (!link) return null;
    const [step, query = ""] = link.split("?");
    const [seq, name] = part.split("/");
    return `${step.replace(/\d+\/$/, "")}${seq}/texts/${encodeURIComponent(name)}/${query && "?"}${query}`;
  }

  async function fetchText(where) {
    const reply = await fetch(where);
    if (!reply.ok) throw new Error(reply.status);
    return reply.text();
  }

  // Invisible texts are rendered when they become visible.
  async function render(pre) {
    if (pre.dataset.done || !pre.getClientRects().length) return;
    pre.dataset.done = "yes";
    const tool = pre.closest(".block.call")?.querySelector(".block-head code")?.textContent ?? "";
    try {
      const shown = await show(pre.textContent, pre.dataset.form, places, tool);
      if (!shown || !pre.isConnected) return;
      pre.nextElementSibling?.matches(".rendered") && pre.nextElementSibling.remove();
      pre.after(shown);
      pre.dataset.rendered = "yes";
    } catch {
      // The text is shown unchanged.
    }
  }

  // A card, or a separate text.
  function enhance(card) {
    if (card.matches(".event") && !card.dataset.view) {
      card.dataset.view = usual();
      addTools(card);
    }
    for (const pre of card.querySelectorAll("pre[data-form]")) render(pre);
  }

  function addTools(card) {
    const switcher = element("button", "link view-switch");
    switcher.type = "button";
    switcher.title = "Change the view";
    name(switcher, card.dataset.view);
    const times = card.querySelector(".event-time");
    times.insertBefore(switcher, times.querySelector("a"));
    for (const head of card.querySelectorAll(".block-head")) {
      const pre = [...head.parentElement.querySelectorAll("pre[data-form]")]
        .find((each) => head.parentElement === each.closest(".result, .block"));
      if (!pre) continue;
      const button = element("button", "link copy-text", "copy");
      button.type = "button";
      head.append(button);
    }
  }

  function name(switcher, view) {
    switcher.textContent = `view: ${VIEWS.get(view)}`;
  }

  async function showAs(card, view) {
    card.dataset.view = view;
    name(card.querySelector(".view-switch"), view);
    if (view !== "json") localStorage.setItem("trace.view", view);
    if (view === "json" && !card.querySelector(".stored")) {
      const stored = element("div", "stored");
      card.append(stored);
      const seqs = [card, ...card.querySelectorAll(".result[id]")].map((each) => /\d+$/.exec(each.id)[0]);
      for (const seq of seqs) stored.append(await storedEvent(card, seq));
    }
    if (view === "rendered") enhance(card);
  }

  async function storedEvent(card, seq) {
    const part = element("div", "block");
    part.append(element("p", "block-head", `Step #${seq} as stored`));
    try {
      const text = await fetchText(address(card, `${seq}/event`));
      part.append(text.length > 1_000_000 ? element("p", "muted", "Too long to show here. Open it as a file.") : showJson(text));
    } catch {
      part.append(element("p", "muted", "Loading failed. "));
    }
    const link = element("a", "permalink", "open as a file");
    link.href = address(card, `${seq}/event`);
    part.firstElementChild.append(link);
    return part;
  }

  async function copy(button) {
    const pre = [...button.closest(".result, .block").querySelectorAll("pre[data-form]")][0];
    const said = button.textContent;
    try {
      // The text in the page may be indented or truncated.
      const where = pre.dataset.part && address(pre.closest(".event"), pre.dataset.part);
      const exact = where ? await fetchText(where) : pre.textContent;
      await navigator.clipboard.writeText(exact);
      button.textContent = "copied";
    } catch {
      pre.closest(".event").dataset.view = "raw";
      getSelection().selectAllChildren(pre);
      button.textContent = "press Ctrl+C";
    }
    setTimeout(() => { button.textContent = said; }, 1600);
  }

  async function loadAll(link) {
    const note = link.closest(".cut-note");
    const pre = note.parentElement.querySelector("pre[data-form]");
    link.textContent = "loading…";
    try {
      pre.textContent = await fetchText(link.getAttribute("href"));
      reveal(pre);
      delete pre.dataset.done;
      delete pre.dataset.rendered;
      note.parentElement.querySelector(".rendered")?.remove();
      note.textContent = "All text is shown.";
      render(pre);
    } catch {
      link.textContent = "Loading failed: try again";
    }
  }

  reader.addEventListener("click", (event) => {
    const switcher = event.target.closest(".view-switch");
    if (switcher) cycle(switcher.closest(".event"));
    if (event.target.closest(".copy-text")) copy(event.target.closest(".copy-text"));
    const link = event.target.closest("a[data-load-all]");
    if (link && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      loadAll(link);
    }
  });
  reader.addEventListener("toggle", (event) => {
    if (event.target.open) for (const pre of event.target.querySelectorAll("pre[data-form]")) render(pre);
  }, true);
  function cycle(card) {
    enhance(card);
    const names = [...VIEWS.keys()].filter((view) => view !== "json" || address(card, "0/event"));
    showAs(card, names[(names.indexOf(card.dataset.view) + 1) % names.length]);
  }

  document.addEventListener("trace:cycle", (event) => cycle(event.detail), { signal });

  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) {
      near.unobserve(entry.target);
      enhance(entry.target);
    }
  }, { rootMargin: "400px" });
  const watch = (root) => { for (const card of root.matches(".event") ? [root] : root.querySelectorAll(".event, .alone")) near.observe(card); };

  document.addEventListener("trace:added", (event) => watch(event.detail), { signal });
  // Parts that were hidden when the card became visible.
  document.addEventListener("trace:shown", (event) => watch(event.detail), { signal });
  watch(reader);
  addEventListener("beforeprint", () => { for (const card of reader.querySelectorAll(".event")) enhance(card); }, { signal });
}

onReader(prepareCards);
