// Settling by keyboard: the answer keys of the work page. What is typed stays in this browser until the server has it.

{
  const { keys, unsent, drafts } = gymweb;
  const { warn } = unsent;
  const DRAFT_MS = 300;
  const form = document.getElementById("settle-form");
  const group = "Settling";
  const kind = form?.dataset.kind;
  // Of this person alone: who leads shares items with others.
  const kept = form && `item-${form.dataset.item}.${document.body.dataset.user}`;
  let waits = false;
  let isChanged = false;
  let timer = null;

  // What is in the form, in the fields of an answer

  const inputs = (selector, within = form) => [...within.querySelectorAll(selector)];
  const number = (text) => (text === "" || text === null || Number.isNaN(Number(text)) ? null : Number(text));

  function readScore(each, value) {
    if (each.querySelector("input[type=number]")) return number(value);
    return each.querySelector("input[value=true]") && ["true", "false"].includes(value) ? value === "true" : value;
  }

  function read(from = form) {
    const given = new FormData(from);
    const answer = { note: String(given.get("note") ?? ""), reasons: given.getAll("reasons"), confidence: number(given.get("confidence")) };
    if (kind === "pairwise") answer.choice = String(given.get("choice") ?? "");
    const ranks = inputs("[data-rank]", from).sort((one, other) => one.dataset.rank - other.dataset.rank);
    if (ranks.length) answer.ranks = ranks.map((each) => Number(each.value) || 0);
    for (const each of inputs("[data-criterion]", from)) {
      const value = given.get(`score-${each.dataset.criterion}`);
      answer.scores ??= {};
      if (value !== null && value !== "") answer.scores[each.dataset.criterion] = readScore(each, value);
    }
    return answer;
  }

  function write(answer) {
    for (const each of inputs("[name=choice]")) each.checked = each.value === answer.choice;
    for (const each of inputs("[name=reasons]")) each.checked = (answer.reasons ?? []).includes(each.value);
    for (const each of inputs("[data-rank]")) each.value = String((answer.ranks ?? [])[Number(each.dataset.rank)] || "");
    for (const each of inputs("[name^='score-']")) {
      const value = answer.scores?.[each.name.slice("score-".length)];
      if (each.type === "radio") each.checked = each.value === String(value);
      else each.value = String(value ?? "");
    }
    form.elements.note.value = answer.note ?? "";
    form.elements.confidence.value = String(answer.confidence ?? "");
  }

  // The draft. What stands may have changed since: then neither replaces the other unasked.

  const saved = document.getElementById("settle-saved");

  function keep() {
    clearTimeout(timer);
    isChanged = false;
    if (waits) return;
    drafts.keep(kept, read());
    saved.textContent = "kept in this browser until it stands";
  }

  function takeDraft() {
    // As the page came: a browser fills fields again as they were when it left.
    const stands = form.cloneNode(true);
    stands.reset();
    const draft = drafts.open(kept, read(stands));
    if (draft) write(draft);
    drafts.showAsides(document.getElementById("review-asides"), kept, () => read(), (taken) => {
      write(taken);
      changed();
    });
  }

  // Sending

  async function send() {
    if (waits) return;
    const answer = read();
    const missing = (answer.choice === "" && "Say which is better first.") || (answer.ranks?.includes(0) && "Give each a rank first.");
    if (missing) return warn(missing);
    keep();
    waits = true;
    form.inert = true;
    form.setAttribute("aria-busy", "true");
    let said = "";
    try {
      const body = { ...answer, token: form.elements.token.value, saw_votes: form.dataset.saw === "1" };
      const reply = await unsent.post(`queue-items/${form.dataset.item}/adjudicate/`, body);
      if (reply.ok) {
        drafts.drop(kept, answer);
        location.assign(form.dataset.next);
        return undefined;
      }
      const isSession = [401, 403, 404].includes(reply.status) && await unsent.explainSession();
      const errors = (reply.told.errors ?? []).map((each) => each.message).join(" ");
      if (!isSession) said = errors || reply.told.detail || `The server answered with an error (${reply.status}).`;
    } catch {
      said = "No connection. What you said is kept in this browser: send it again when there is one.";
    }
    if (said) warn(said);
    waits = false;
    form.inert = false;
    form.removeAttribute("aria-busy");
    return undefined;
  }

  // Keys

  const add = (id, key, label, run, when = () => !waits) => keys.add({ id: `settle.${id}`, keys: key, label, group, run, when });
  const changed = () => form.dispatchEvent(new Event("input", { bubbles: true }));
  const walked = { rubric: "[data-criterion]", ranking: "[data-rank]" }[kind];
  const parts = walked ? inputs(walked) : [];
  const boxOf = (each) => each.closest(".rank-of") ?? each;
  let current = Math.max(0, parts.findIndex((each) => each.matches("select") && !each.value));

  function mark() {
    parts.forEach((each, place) => boxOf(each).classList.toggle("current", place === current));
  }

  function move(by) {
    current = (current + by + parts.length) % parts.length;
    mark();
    boxOf(parts[current]).scrollIntoView({ block: "nearest" });
  }

  function press(input) {
    input.checked = input.type === "radio" ? true : !input.checked;
    changed();
  }

  function choose(digit) {
    const part = parts[current];
    const input = part.querySelector(`[data-option="${digit}"]`);
    const field = part.matches("select") ? part : part.querySelector("input[type=number]");
    if (!input && !field) return;
    if (input) press(input);
    else {
      field.value = String(digit);
      changed();
    }
    move(1);
  }

  if (form) {
    takeDraft();
    mark();
    form.addEventListener("input", () => {
      isChanged = true;
      clearTimeout(timer);
      timer = setTimeout(keep, DRAFT_MS);
    });
    addEventListener("pagehide", () => { if (isChanged) keep(); });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      send();
    });
    form.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      event.stopPropagation();
      form.requestSubmit();
    });
    for (const input of inputs("[data-key]")) add(input.value, input.dataset.key, input.closest("label").textContent.trim().replace(/^\S+\s+/, ""), () => press(input));
    if (kind === "pairwise") for (const input of inputs("[data-reason]")) add(`reason.${input.value}`, input.dataset.reason, `Because: ${input.getAttribute("aria-label")}`, () => press(input));
    if (parts.length) {
      if (kind === "ranking") gymweb.dragRanks(form, () => { changed(); mark(); });
      const most = kind === "ranking" ? parts.length : 9;
      for (let digit = 1; digit <= most; digit += 1) add(`digit.${digit}`, String(digit), kind === "ranking" ? `Rank ${digit} for the marked one, and on` : `Option ${digit}, or the number ${digit}, and on`, () => choose(digit));
      add("field.next", kind === "ranking" ? "ArrowRight" : "ArrowDown", "Mark the next one", () => move(1));
      add("field.previous", kind === "ranking" ? "ArrowLeft" : "ArrowUp", "Mark the one before", () => move(-1));
      if (kind === "rubric") add("field.type", "i", "Type into the criterion", () => parts[current].querySelector("textarea, input[type=number]")?.focus());
    }
    add("submit", kind === "rubric" ? "Ctrl+enter" : "Enter", "This stands, and on to the next", () => form.requestSubmit(), () => !waits && !document.activeElement?.matches("button, a, summary"));
    add("note", "n", "Write a note", () => form.elements.note.focus());
    add("confidence", "c", "How sure you are: the next", () => {
      const field = form.elements.confidence;
      field.selectedIndex = (field.selectedIndex + 1) % field.options.length;
      changed();
    });
  }
  for (const [id, key, label] of [["show", "v", "Show what people said, rewards and models"], ["hide", "v", "As the queue shows it"]]) {
    const link = document.getElementById(`settle-${id}`);
    if (link) add(id, key, label, () => link.click());
  }
  for (const [rel, key, label] of [["next", "]", "Next disagreement"], ["prev", "[", "Disagreement before"]]) {
    const link = document.querySelector(`.page-head a[rel=${rel}]`);
    if (link) add(rel, key, label, () => link.click());
  }
  // From here on keys are heard.
  document.body.dataset.listens = "1";
}
