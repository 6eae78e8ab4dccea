// The form of an answer: its values, its errors, and the keys that fill it in.

import * as keys from "./keys.js";
import { dragRanks } from "./ranking.js";

// `id` is the prefix of the key ids, `group` their group in the overlay. `reach` is called with the part that a key is
// about to fill in (verdict, reason, rank, option, note or confidence), so that a folded form or part can be opened.
export function answerForm(form, { id, group, reach = () => {} }) {
  const marked = document.getElementById(`${id}-marked`);
  const { kind } = form.dataset;
  const isFree = () => !form.inert;
  const add = (name, key, label, run, when = isFree) => keys.add({ id: `${id}.${name}`, keys: key, label, group, run, when });

  // Values

  function number(text) {
    return text === "" || text === null || Number.isNaN(Number(text)) ? null : Number(text);
  }

  function read(from = form) {
    const given = new FormData(from);
    const answer = { note: String(given.get("note") ?? ""), reasons: given.getAll("reasons"), confidence: number(given.get("confidence")) };
    if (from.dataset.kind === "pairwise") answer.choice = String(given.get("choice") ?? "");
    // In the order shown at first, before dragging.
    const ranks = [...from.querySelectorAll("[data-rank]")].sort((one, other) => one.dataset.rank - other.dataset.rank);
    if (ranks.length) answer.ranks = ranks.map((each) => Number(each.value) || 0);
    const criteria = [...from.querySelectorAll("[data-criterion]")];
    if (criteria.length) {
      answer.scores = {};
      for (const each of criteria) {
        const key = each.dataset.criterion;
        const value = given.get(`score-${key}`);
        if (value === null || value === "") continue;
        answer.scores[key] = { numeric: number, boolean: (text) => text === "true" }[each.dataset.kind]?.(value) ?? value;
      }
    }
    return answer;
  }

  // Values as rendered by the server, even if the browser has restored others since.
  function readServed() {
    const served = form.cloneNode(true);
    served.reset();
    return read(served);
  }

  function write(answer) {
    for (const each of form.querySelectorAll("[name=choice]")) each.checked = each.value === answer.choice;
    for (const each of form.querySelectorAll("[name=reasons]")) each.checked = (answer.reasons ?? []).includes(each.value);
    for (const each of form.querySelectorAll("[data-rank]")) each.value = String((answer.ranks ?? [])[Number(each.dataset.rank)] || "");
    // All criteria: one without a value was cleared.
    for (const { dataset } of form.querySelectorAll("[data-criterion]")) {
      const value = String(answer.scores?.[dataset.criterion] ?? "");
      for (const each of form.querySelectorAll(`[name="score-${CSS.escape(dataset.criterion)}"]`)) {
        if (each.type === "radio") each.checked = each.value === value;
        else each.value = value;
      }
    }
    if (form.elements.note) form.elements.note.value = answer.note ?? "";
    if (form.elements.confidence) form.elements.confidence.value = String(answer.confidence ?? "");
  }

  const changed = () => form.dispatchEvent(new Event("input", { bubbles: true }));

  // Errors: next to each criterion, and in one sentence that names them

  let goTo = () => {};

  function clearWrong(criterion) {
    criterion.querySelector(".errors")?.remove();
    for (const each of criterion.querySelectorAll("[aria-invalid]")) {
      each.removeAttribute("aria-invalid");
      each.removeAttribute("aria-describedby");
    }
  }

  function showWrong(errors) {
    const criteria = [...form.querySelectorAll("[data-criterion]")];
    criteria.forEach(clearWrong);
    const found = [];
    const said = errors.map(({ pointer, message }) => {
      const criterion = criteria.find((each) => pointer === `/scores/${each.dataset.criterion.replaceAll(".", "/")}`);
      if (!criterion) return message;
      const line = document.createElement("p");
      line.className = "errors";
      line.id = `wrong-${criterion.dataset.criterion}`;
      line.textContent = message;
      criterion.append(line);
      for (const each of criterion.querySelectorAll("input, textarea")) {
        each.setAttribute("aria-invalid", "true");
        each.setAttribute("aria-describedby", line.id);
      }
      found.push(criterion);
      return `${criterion.querySelector("legend").textContent} ${message}`;
    });
    const [first] = criteria.filter((each) => found.includes(each));
    if (first) {
      goTo(first);
      first.tabIndex = -1;
      first.focus();
    }
    return said.join(" ");
  }

  form.addEventListener("input", (event) => {
    const criterion = event.target.closest?.("[data-criterion]");
    if (criterion) clearWrong(criterion);
  });

  // Keys

  // Mark the element that the next key applies to, visibly and for screen readers.
  function point(all, current, name) {
    all.forEach((each, place) => {
      each.classList.toggle("current", place === current);
      if (place === current) each.setAttribute("aria-current", "true");
      else each.removeAttribute("aria-current");
    });
    if (all.length && marked) marked.textContent = name();
  }

  // Blur the button, link or menu that has the focus, so that Enter submits the form.
  const leaveOpener = () => { if (isOpener()) document.activeElement.blur(); };

  const press = (input, what) => {
    reach(what);
    leaveOpener();
    input.checked = input.type === "radio" ? true : !input.checked;
    changed();
  };

  // Scroll the form. Scroll the page only if needed: its scroll padding excludes the area of a sticky form.
  function showCriterion(criterion) {
    const view = form.getBoundingClientRect();
    const end = Math.min(view.bottom, form.querySelector(":scope > .actions")?.getBoundingClientRect().top ?? view.bottom);
    const { top, bottom } = criterion.getBoundingClientRect();
    if (top < view.top) form.scrollTop -= view.top - top;
    else if (bottom > end) form.scrollTop += bottom - end + 4;
    if (criterion.getBoundingClientRect().bottom > innerHeight) criterion.scrollIntoView({ block: "nearest" });
  }

  if (kind === "pairwise") {
    for (const input of form.querySelectorAll("[data-key]")) add(input.value, input.dataset.key, input.closest("label").querySelector("span").lastChild.textContent.trim(), () => press(input, "verdict"));
  }
  if (kind === "ranking") {
    dragRanks(form, () => { changed(); mark(); });
    const shown = () => [...form.querySelectorAll("[data-rank]")];
    const nameOf = (each) => `${each.getAttribute("aria-label").replace("Rank of ", "")}, ${each.value ? `rank ${each.value}` : "no rank"}`;
    let current = Math.max(0, shown().findIndex((each) => !each.value));
    const mark = () => point(shown().map((each) => each.closest(".rank-of")), current, () => nameOf(shown()[current]));
    mark();
    const move = (by) => { current = (current + by + shown().length) % shown().length; mark(); };
    for (let rank = 1; rank <= shown().length; rank += 1) {
      add(`rank.${rank}`, String(rank), `Rank ${rank} for the current rollout, then next`, () => {
        reach("rank");
        leaveOpener();
        shown()[current].value = String(rank);
        changed();
        move(1);
      });
    }
    add("rank.next", "ArrowRight", "Next rollout", () => move(1));
    add("rank.previous", "ArrowLeft", "Previous rollout", () => move(-1));
  } else if (kind === "rubric") {
    const criteria = [...form.querySelectorAll("[data-criterion]")];
    let current = 0;
    const mark = () => {
      point(criteria, current, () => criteria[current].querySelector("legend").textContent);
      if (criteria.length) showCriterion(criteria[current]);
    };
    mark();
    const move = (by) => { current = (current + by + criteria.length) % criteria.length; mark(); };
    goTo = (criterion) => { current = criteria.indexOf(criterion); mark(); };
    for (let option = 1; option <= 9; option += 1) {
      add(`option.${option}`, String(option), `Option ${option}, then next criterion`, () => {
        reach("option");
        const input = criteria[current].querySelector(`[data-option="${option}"]`);
        const field = criteria[current].querySelector("input[type=number]");
        if (input) press(input, "option");
        else if (field) { field.value = String(option); changed(); }
        clearWrong(criteria[current]);
        if (input || field) move(1);
      }, () => criteria.length > 0 && isFree());
    }
    add("field.next", "ArrowDown", "Next criterion", () => move(1));
    add("field.previous", "ArrowUp", "Previous criterion", () => move(-1));
    add("field.type", "i", "Type into the criterion", () => criteria[current].querySelector("textarea, input[type=number]")?.focus());
  }
  if (kind !== "rubric") {
    // In a ranking the digits are ranks.
    for (const input of form.querySelectorAll("[data-reason]")) add(`reason.${input.value}`, kind === "ranking" ? `r ${input.dataset.reason}` : input.dataset.reason, `Reason: ${input.getAttribute("aria-label")}`, () => press(input, "reason"));
  }
  add("note", "n", "Write a note", () => {
    reach("note");
    const { note } = form.elements;
    note.focus();
    note.setSelectionRange(note.value.length, note.value.length);
  });
  add("confidence", "c", "Next confidence level", () => {
    reach("confidence");
    leaveOpener();
    const choice = form.elements.confidence;
    choice.selectedIndex = (choice.selectedIndex + 1) % choice.options.length;
    changed();
  });
  // Works in text fields too: this key types no letter.
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    event.stopPropagation();
    form.requestSubmit();
  });
  // Return what is missing before submitting; empty if complete.
  const findMissing = ({ choice, ranks }) => (choice === "" && "Choose a verdict first.") || (ranks?.includes(0) && "Rank every rollout first.") || "";
  // Enter submits, unless the focus is on an element that Enter opens or presses.
  const isOpener = () => document.activeElement?.matches("button, a, summary") ?? false;
  return { add, read, write, readServed, changed, showWrong, findMissing, isOpener };
}
