// Keyboard navigation for reviewed rollouts: between differences or steps, hiding parts, and folding the answer bar.

import * as keys from "./keys.js";
import { addMarkdownSwitch, memory } from "./sides.js";

const group = "Reading";
const shown = document.querySelector(".work-shown");
const bar = document.getElementById("review-form");
const trace = shown?.querySelector(".trace");
// Several attempts: no table if all their steps are equal.
const table = shown?.querySelector("table.compare");
const root = document.documentElement;
const EDGE = 8;

// Height of the bar: paging and jumps end above it.
const isBeside = () => Boolean(bar.closest(".beside")) && matchMedia("(min-width: 68rem)").matches;
const covers = () => (isBeside() ? 0 : bar.offsetHeight);
const measure = () => { root.style.scrollPaddingBottom = `${covers()}px`; };

// Differences of several attempts, or the steps of one

const lines = () => [...(trace?.querySelectorAll(":scope > .event") ?? table?.querySelectorAll("tbody > tr:not(.common)") ?? [])]
  .filter((each) => each.getClientRects().length);
let current = null;

function choose(line) {
  current?.classList.remove("chosen");
  current = line;
  line.classList.add("chosen");
  const target = line.querySelector(".step") ?? line;
  target.tabIndex = -1;
  target.focus({ preventScroll: true });
  line.scrollIntoView({ block: line.offsetHeight > room() ? "start" : "nearest" });
}

const top = () => parseFloat(getComputedStyle(root).scrollPaddingTop) || 0;
const room = () => innerHeight - covers() - top();

// Scroll through a step that is longer than the window first.
function page(by) {
  if (!current?.isConnected) return false;
  const { top: above, bottom: below } = current.getBoundingClientRect();
  const left = by > 0 ? below - (innerHeight - covers()) : top() - above;
  const isInSight = below > top() && above < innerHeight - covers();
  if (!isInSight || left <= EDGE) return false;
  scrollBy({ top: by * Math.min(left, room() * 0.85) });
  return true;
}

function step(by, wanted = () => true) {
  if (page(by)) return;
  const all = lines();
  const at = all.indexOf(current);
  // Start at the reading position if nothing is selected.
  const start = at >= 0 ? at + by : Math.max(0, all.findIndex((each) => each.getBoundingClientRect().bottom > top()));
  for (let place = start; place >= 0 && place < all.length; place += by) {
    if (wanted(all[place])) {
      choose(all[place]);
      return;
    }
  }
}

// Show the full text: in the line, otherwise in the final answers.
const cut = () => {
  const here = current?.isConnected ? [...current.querySelectorAll("a.show-all")] : [];
  return here.length ? here : [...document.querySelectorAll(".last-words a.show-all")];
};

const folds = (within) => [...within.querySelectorAll("details")];
function toggleFolds(within) {
  const all = folds(within);
  const open = all.some((each) => !each.open);
  for (const each of all) each.open = open;
}

// Visible parts: the digits of traces, after `v`, because digits are answers here

const PARTS = [
  ["1", "system", "System prompts", ".item.system, .item.developer", ".block.system, .block.developer"],
  ["2", "reasoning", "Reasoning", ".step.reasoning", ".block.reasoning"],
  ["3", "arguments", "Calls", ".step.call", ".arguments"],
  ["4", "results", "Results", ".step.result", ".result, .block.output"],
  ["5", "environment", "Environment", ".step.environment, .step.verdict", ".event.environment_turn, .event.verification"],
  ["6", "same", "Equal steps", "tr.common .step", ""],
];
const HIDES = "work.hide";

function addSwitches() {
  const hidden = new Set(memory.get(HIDES).split(" ").filter(Boolean));
  const box = document.createElement("div");
  box.className = "switches";
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", "Visible parts");
  for (const [key, name, label, compared, traced] of PARTS) {
    const selector = trace ? traced : compared;
    const parts = selector ? [...shown.querySelectorAll(selector)].map((each) => each.closest("table.compare tr, .common-steps > li") ?? each) : [];
    const places = [...new Set(parts)];
    if (!places.length) {
      // After `v`, a digit must not count as an answer, even if this item has no such parts.
      if (selector) keys.add({ id: `reading.show-${name}`, keys: `v ${key}`, label: `Show or hide: ${label}`, group, run: () => {} });
      continue;
    }
    const button = document.createElement("button");
    button.type = "button";
    button.className = "switch";
    const mark = document.createElement("kbd");
    mark.setAttribute("aria-hidden", "true");
    mark.textContent = `v ${key}`;
    button.append(mark, `${label} ${places.length}`);
    const draw = () => {
      for (const each of places) each.classList.toggle("switched-off", hidden.has(name));
      button.setAttribute("aria-pressed", String(!hidden.has(name)));
    };
    const flip = () => {
      if (!hidden.delete(name)) hidden.add(name);
      memory.set(HIDES, [...hidden].join(" "));
      draw();
      current?.scrollIntoView({ block: "nearest" });
    };
    button.addEventListener("click", flip);
    draw();
    box.append(button);
    keys.add({ id: `reading.show-${name}`, keys: `v ${key}`, label: `Show or hide: ${label}`, group, run: flip });
  }
  addMarkdownSwitch(shown, box);
  const note = document.getElementById("review-could-see");
  if (note) box.append(note);
  if (box.childElementCount) shown.prepend(box);
}

// The answer bar, folded to its verdicts unless the reviewer has opened it

const folder = document.getElementById("review-fold");
const FOLDED = "work.folded";

function fold(isFolded) {
  bar.classList.toggle("folded", isFolded && !isBeside());
  folder.setAttribute("aria-expanded", String(!isFolded));
}

function flip() {
  const isFolded = !bar.classList.contains("folded");
  fold(isFolded);
  memory.set(FOLDED, isFolded ? "yes" : "no");
}

if (shown && bar) {
  addSwitches();
  folder.hidden = false;
  fold(memory.get(FOLDED) !== "no");
  folder.addEventListener("click", flip);
  new ResizeObserver(measure).observe(bar);
  addEventListener("resize", measure);
  const what = trace ? "step" : "difference";
  keys.add({ id: "reading.next", keys: "j", label: `Next ${what}`, group, run: () => step(1), when: () => lines().length > 0 });
  keys.add({ id: "reading.previous", keys: "k", label: `Previous ${what}`, group, run: () => step(-1), when: () => lines().length > 0 });
  keys.add({ id: "reading.whole", keys: "O", label: "Show full text", group, run: () => { for (const each of cut()) each.click(); }, when: () => cut().length > 0 });
  if (trace) {
    keys.add({ id: "reading.next-turn", keys: "J", label: "Next model turn", group, run: () => step(1, (card) => card.matches(".model_call")) });
    keys.add({ id: "reading.expand", keys: "e", label: "Expand or collapse the step", group, run: () => current && toggleFolds(current) });
    keys.add({ id: "reading.expand-all", keys: "E", label: "Expand or collapse all", group, run: () => toggleFolds(shown) });
    keys.add({ id: "reading.previous-turn", keys: "K", label: "Previous model turn", group, run: () => step(-1, (card) => card.matches(".model_call")) });
  } else {
    keys.add({ id: "reading.expand", keys: "o", label: "Expand or collapse", group, run: () => toggleFolds(shown) });
    keys.add({ id: "reading.divergence", keys: "d", label: "First difference", group, run: () => choose(lines()[0]), when: () => lines().length > 0 });
  }
  keys.add({ id: "reading.fold", keys: "f", label: "Show or hide reasons, note and confidence", group, run: flip, when: () => !isBeside() });
}
export const unfold = () => folder && fold(false);
