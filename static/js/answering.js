// The form of an answer: what it says, what is wrong in it, and the keys that fill it in.

window.gymweb = window.gymweb || {};

gymweb.answering = (() => {
  const form = document.getElementById("review-form");
  const marked = document.getElementById("review-marked");
  const { keys } = gymweb;
  const group = "Reviewing";

  // What it says

  function number(text) {
    return text === "" || text === null || Number.isNaN(Number(text)) ? null : Number(text);
  }

  function read(from = form) {
    const given = new FormData(from);
    const answer = { note: String(given.get("note") ?? ""), reasons: given.getAll("reasons"), confidence: number(given.get("confidence")) };
    if (from.dataset.kind === "pairwise") answer.choice = String(given.get("choice") ?? "");
    // In the order shown, wherever they have been dragged since.
    const ranks = [...from.querySelectorAll("[data-rank]")].sort((one, other) => one.dataset.rank - other.dataset.rank);
    if (ranks.length) answer.ranks = ranks.map((each) => Number(each.value) || 0);
    const criteria = [...from.querySelectorAll("[data-criterion]")];
    if (criteria.length) {
      answer.scores = {};
      for (const each of criteria) {
        const key = each.dataset.criterion;
        const field = each.querySelector("input:not([type=radio]), textarea");
        const value = given.get(`score-${key}`);
        if (value === null || value === "") continue;
        answer.scores[key] = field?.type === "number" ? number(value) : ["true", "false"].includes(value) && each.querySelector("input[value=true]") ? value === "true" : value;
      }
    }
    return answer;
  }

  // What the server put into it, whatever the browser has filled in again since.
  function readServed() {
    const served = form.cloneNode(true);
    served.reset();
    return read(served);
  }

  function write(answer) {
    for (const each of form.querySelectorAll("[name=choice]")) each.checked = each.value === answer.choice;
    for (const each of form.querySelectorAll("[name=reasons]")) each.checked = (answer.reasons ?? []).includes(each.value);
    for (const each of form.querySelectorAll("[data-rank]")) each.value = String((answer.ranks ?? [])[Number(each.dataset.rank)] || "");
    // Every criterion: one that the answer leaves out was cleared.
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

  // What is wrong in it: said beside each criterion, and in one sentence that names them

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

  // Which one the next key is for: to be seen, and to be heard.
  function point(all, current, name) {
    all.forEach((each, place) => {
      each.classList.toggle("current", place === current);
      if (place === current) each.setAttribute("aria-current", "true");
      else each.removeAttribute("aria-current");
    });
    if (all.length) marked.textContent = name();
  }

  const press = (input) => {
    if (form.inert) return;
    input.checked = input.type === "radio" ? true : !input.checked;
    changed();
  };
  const { kind } = form.dataset;

  if (kind === "pairwise") {
    for (const input of form.querySelectorAll("[data-key]")) {
      keys.add({ id: `review.${input.value}`, keys: input.dataset.key, label: input.closest("label").querySelector("span").lastChild.textContent.trim(), group, run: () => press(input) });
    }
  }
  if (kind === "ranking") {
    gymweb.dragRanks(form, () => { changed(); mark(); });
    const shown = () => [...form.querySelectorAll("[data-rank]")];
    const nameOf = (each) => `${each.getAttribute("aria-label").replace("Rank of ", "")}, ${each.value ? `rank ${each.value}` : "no rank yet"}`;
    let current = Math.max(0, shown().findIndex((each) => !each.value));
    const mark = () => point(shown().map((each) => each.closest(".rank-of")), current, () => nameOf(shown()[current]));
    mark();
    const move = (by) => { current = (current + by + shown().length) % shown().length; mark(); };
    for (let rank = 1; rank <= shown().length; rank += 1) {
      keys.add({ id: `review.rank.${rank}`, keys: String(rank), label: `Rank ${rank} for the marked one, and on`, group, run: () => { shown()[current].value = String(rank); changed(); move(1); }, when: () => !form.inert });
    }
    keys.add({ id: "review.rank.next", keys: "ArrowRight", label: "Mark the next one", group, run: () => move(1) });
    keys.add({ id: "review.rank.previous", keys: "ArrowLeft", label: "Mark the one before", group, run: () => move(-1) });
  } else if (kind === "rubric") {
    const criteria = [...form.querySelectorAll("[data-criterion]")];
    let current = 0;
    const mark = () => {
      point(criteria, current, () => criteria[current].querySelector("legend").textContent);
      criteria[current]?.scrollIntoView({ block: "nearest" });
    };
    mark();
    const move = (by) => { current = (current + by + criteria.length) % criteria.length; mark(); };
    goTo = (criterion) => { current = criteria.indexOf(criterion); mark(); };
    for (let option = 1; option <= 9; option += 1) {
      keys.add({
        id: `review.option.${option}`,
        keys: String(option),
        label: `Option ${option}, or the number ${option}, and on`,
        group,
        run: () => {
          const input = criteria[current].querySelector(`[data-option="${option}"]`);
          const field = criteria[current].querySelector("input[type=number]");
          if (input) press(input);
          else if (field) { field.value = String(option); changed(); }
          clearWrong(criteria[current]);
          if (input || field) move(1);
        },
        when: () => criteria.length > 0 && !form.inert,
      });
    }
    keys.add({ id: "review.field.next", keys: "ArrowDown", label: "Next criterion", group, run: () => move(1) });
    keys.add({ id: "review.field.previous", keys: "ArrowUp", label: "Criterion before", group, run: () => move(-1) });
    keys.add({ id: "review.field.type", keys: "i", label: "Type into the criterion", group, run: () => criteria[current].querySelector("textarea, input[type=number]")?.focus() });
  }
  if (kind !== "rubric") {
    // In a ranking the digits are ranks.
    for (const input of form.querySelectorAll("[data-reason]")) {
      keys.add({ id: `review.reason.${input.value}`, keys: kind === "ranking" ? `r ${input.dataset.reason}` : input.dataset.reason, label: `Because: ${input.closest("label").lastElementChild.lastChild.textContent.trim()}`, group, run: () => press(input) });
    }
  }
  keys.add({ id: "review.note", keys: "n", label: "Write a note", group, run: () => { gymweb.reading.unfold(); form.elements.note.focus(); } });
  keys.add({
    id: "review.confidence",
    keys: "c",
    label: "How sure you are: the next",
    group,
    run: () => {
      gymweb.reading.unfold();
      const choice = form.elements.confidence;
      choice.selectedIndex = (choice.selectedIndex + 1) % choice.options.length;
      changed();
    },
    when: () => !form.inert,
  });
  return { read, write, readServed, changed, showWrong };
})();
