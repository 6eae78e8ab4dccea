// The cards of a trace, made ready as they come near: texts in their form, raw or as JSON; copying; what was cut.

import { element, reveal, show, showJson } from "./forms.js";

function prepareCards(reader) {
  const places = { marked: reader.dataset.marked, purify: reader.dataset.purify, hljs: reader.dataset.hljs };
  const VIEWS = new Map([["rendered", "rendered"], ["raw", "raw"], ["json", "as JSON"]]);
  const usual = () => (localStorage.getItem("trace.view") === "raw" ? "raw" : "rendered");

  // Where a text of a card's rollout is by itself; a card that is stored nowhere has none.
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

  // A text that is not to be seen yet waits until it is.
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
      // The text stands there as it is.
    }
  }

  // A card, or a text that stands alone.
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
    name(switcher, card.dataset.view);
    card.querySelector(".event-time").prepend(switcher);
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
    switcher.textContent = VIEWS.get(view);
    switcher.setAttribute("aria-label", `Shown ${VIEWS.get(view)}: change`);
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
    part.append(element("p", "block-head", `Event #${seq} as stored`));
    try {
      const text = await fetchText(address(card, `${seq}/event`));
      part.append(text.length > 1_000_000 ? element("p", "muted", "It is long: open it as a file.") : showJson(text));
    } catch {
      part.append(element("p", "muted", "It could not be loaded."));
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
      // What stands in the page may be indented, or the beginning only.
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
      note.textContent = "All of it is shown.";
      render(pre);
    } catch {
      link.textContent = "it could not be loaded: try again";
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

  document.addEventListener("trace:cycle", (event) => cycle(event.detail));

  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) {
      near.unobserve(entry.target);
      enhance(entry.target);
    }
  }, { rootMargin: "400px" });
  const watch = (root) => { for (const card of root.matches(".event") ? [root] : root.querySelectorAll(".event, .alone")) near.observe(card); };

  document.addEventListener("trace:added", (event) => watch(event.detail));
  // What was switched off when its card came into sight.
  document.addEventListener("trace:shown", (event) => watch(event.detail));
  watch(reader);
  addEventListener("beforeprint", () => { for (const card of reader.querySelectorAll(".event")) enhance(card); });
}

const reader = document.getElementById("reader");
if (reader) prepareCards(reader);
