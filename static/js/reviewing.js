// The pages on which people judge: keys, a lease that is kept while one works, drafts, and submissions that survive a
// lost connection. What is not sent yet lies in the browser's storage under the submission's own token, so that sending
// it again changes nothing. Without this script the same forms are sent as they are.

{
  const { keys } = gymweb;
  const DRAFT_MS = 700;
  const RETRY_MS = 1500;
  const form = document.getElementById("review-form");
  const lost = document.getElementById("review-lost");
  const saved = document.getElementById("review-saved");
  const user = form?.dataset.user ?? "";
  const UNSENT = "gymweb.unsent.";
  const DRAFT = "gymweb.draft.";

  const store = {
    get: (key) => { try { return JSON.parse(localStorage.getItem(key)); } catch { return null; } },
    set: (key, value) => { try { localStorage.setItem(key, JSON.stringify(value)); } catch { /* full, or forbidden: the page still works */ } },
    remove: (key) => { try { localStorage.removeItem(key); } catch { /* as above */ } },
    keys: (prefix) => { try { return Object.keys(localStorage).filter((each) => each.startsWith(prefix)); } catch { return []; } },
  };

  // Rejects where nobody answered; a refusal is an answer.
  async function post(path, body) {
    const reply = await fetch(`/api/v1/${path}`, {
      method: "POST",
      headers: { "X-CSRFToken": gymweb.page.csrf(), "Content-Type": "application/json" },
      body: JSON.stringify(body ?? {}),
    });
    if (reply.status >= 500) throw new Error(String(reply.status));
    const told = reply.status === 204 ? null : await reply.json();
    return { ok: reply.ok, status: reply.status, told };
  }

  function warn(text) {
    if (!lost) return;
    lost.hidden = !text;
    lost.textContent = text;
  }

  // What is in the form

  function number(text) {
    return text === "" || text === null || Number.isNaN(Number(text)) ? null : Number(text);
  }

  function read() {
    const given = new FormData(form);
    const answer = { note: String(given.get("note") ?? ""), reasons: given.getAll("reasons"), confidence: number(given.get("confidence")) };
    if (form.dataset.kind === "pairwise") answer.choice = String(given.get("choice") ?? "");
    const ranks = [...form.querySelectorAll("[data-rank]")];
    if (ranks.length) answer.ranks = ranks.map((each) => Number(each.value) || 0);
    const criteria = [...form.querySelectorAll("[data-criterion]")];
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

  function write(answer) {
    for (const each of form.querySelectorAll("[name=choice]")) each.checked = each.value === answer.choice;
    for (const each of form.querySelectorAll("[name=reasons]")) each.checked = (answer.reasons ?? []).includes(each.value);
    for (const each of form.querySelectorAll("[data-rank]")) each.value = String((answer.ranks ?? [])[Number(each.dataset.rank)] || "");
    for (const [key, value] of Object.entries(answer.scores ?? {})) {
      for (const each of form.querySelectorAll(`[name="score-${CSS.escape(key)}"]`)) {
        if (each.type === "radio") each.checked = each.value === String(value);
        else each.value = String(value ?? "");
      }
    }
    if (form.elements.note) form.elements.note.value = answer.note ?? "";
    if (form.elements.confidence) form.elements.confidence.value = String(answer.confidence ?? "");
  }

  // Submissions: first into the storage, then to the server, until it has answered

  let isSending = false;

  async function sendAll() {
    if (isSending) return false;
    isSending = true;
    let all = true;
    for (const key of store.keys(UNSENT)) {
      const unsent = store.get(key);
      if (!unsent || unsent.user !== (user || unsent.user)) continue;
      try {
        const reply = await post(`reviews/${unsent.review}/submit/`, unsent.answer);
        store.remove(key);
        store.remove(DRAFT + unsent.review);
        if (!reply.ok && reply.status !== 409) refuse(unsent, reply);
        if (reply.status === 409) warn(reply.told.detail);
      } catch {
        all = false;
        warn("No connection. What you said is kept in this browser and sent as soon as there is one.");
        setTimeout(() => sendAll().then(goOn), RETRY_MS);
        break;
      }
    }
    isSending = false;
    return all;
  }

  function refuse(unsent, reply) {
    const told = (reply.told.errors ?? []).map((each) => each.message).join(" ") || reply.told.detail;
    warn(told);
    if (form && form.dataset.review === String(unsent.review)) {
      waits = false;
      form.elements.token.value = crypto.randomUUID ? crypto.randomUUID() : String(Math.random()).slice(2);
    }
  }

  let waits = false;

  async function submit() {
    if (waits) return;
    waits = true;
    const answer = { token: form.elements.token.value, ...read() };
    if (form.dataset.kind === "ranking" && answer.ranks.includes(0)) {
      waits = false;
      warn("Give each a rank first.");
      return;
    }
    store.set(UNSENT + form.dataset.review, { user, review: Number(form.dataset.review), queue: form.dataset.queue, answer });
    if (await sendAll()) goOn(true);
  }

  // To the next item, once everything is with the server.
  async function goOn(sent) {
    if (!waits || !form || !sent) return;
    try {
      await post(`queues/${form.dataset.queue}/claim/`);
      location.assign(form.dataset.work);
    } catch {
      warn("Sent. The next item comes as soon as there is a connection.");
      setTimeout(() => goOn(true), RETRY_MS);
    }
  }

  // The draft and the lease: kept together

  let until = form ? Date.parse(form.dataset.until) : 0;
  let timer = null;
  let touchedAt = Date.now();
  const lease = form ? Number(form.dataset.minutes) * 60_000 : 0;

  async function keep(withDraft) {
    const draft = read();
    if (withDraft) store.set(DRAFT + form.dataset.review, { draft });
    try {
      const reply = await post(`reviews/${form.dataset.review}/renew/`, withDraft ? { draft } : {});
      if (reply.ok) {
        until = Date.parse(reply.told.leased_until);
        if (withDraft) store.remove(DRAFT + form.dataset.review);
        if (saved && withDraft) saved.textContent = "draft kept";
        if (!store.keys(UNSENT).length) warn("");
      } else if (!waits) warn(reply.told.detail);
    } catch {
      if (saved && withDraft) saved.textContent = "draft kept in this browser";
    }
  }

  function tick() {
    const left = until - Date.now();
    const shown = document.getElementById("review-lease");
    if (shown) {
      const seconds = Math.max(0, Math.round(left / 1000));
      shown.textContent = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
      document.getElementById("review-word").textContent = "for";
      shown.parentElement.dataset.low = String(seconds < 60);
    }
    // Whoever touched the page in the last third of the lease is at work.
    if (left < (lease * 2) / 3 && Date.now() - touchedAt < lease / 3 && !waits) {
      touchedAt -= lease;
      keep(false);
    }
  }

  if (form) {
    const local = store.get(DRAFT + form.dataset.review);
    if (local) write(local.draft);
    form.addEventListener("submit", (event) => { event.preventDefault(); submit(); });
    form.addEventListener("input", () => {
      if (waits) return;
      clearTimeout(timer);
      timer = setTimeout(() => { if (!waits) keep(true); }, DRAFT_MS);
    });
    for (const kind of ["keydown", "pointerdown", "scroll"]) addEventListener(kind, () => { touchedAt = Date.now(); }, { passive: true, capture: true });
    setInterval(tick, 1000);
    tick();
  }
  addEventListener("online", () => { sendAll().then(goOn); });
  // What another visit could not send.
  if (store.keys(UNSENT).length) sendAll().then((sent) => { if (sent && form) location.reload(); });

  // Keys

  const group = "Reviewing";
  const changed = () => form.dispatchEvent(new Event("input", { bubbles: true }));
  const press = (input) => {
    input.checked = input.type === "radio" ? true : !input.checked;
    changed();
  };
  const kind = form?.dataset.kind;

  if (kind === "pairwise") {
    for (const input of form.querySelectorAll("[data-key]")) {
      keys.add({ id: `review.${input.value}`, keys: input.dataset.key, label: input.closest("label").querySelector("span").lastChild.textContent.trim(), group, run: () => press(input) });
    }
  }
  if (kind === "ranking") {
    const ranks = [...form.querySelectorAll("[data-rank]")];
    let current = Math.max(0, ranks.findIndex((each) => !each.value));
    const mark = () => ranks.forEach((each, place) => each.closest("label").classList.toggle("current", place === current));
    mark();
    const move = (by) => { current = (current + by + ranks.length) % ranks.length; mark(); };
    for (let rank = 1; rank <= ranks.length; rank += 1) {
      keys.add({ id: `review.rank.${rank}`, keys: String(rank), label: `Rank ${rank} for the marked one, and on`, group, run: () => { ranks[current].value = String(rank); changed(); move(1); } });
    }
    keys.add({ id: "review.rank.next", keys: "ArrowRight", label: "Mark the next one", group, run: () => move(1) });
    keys.add({ id: "review.rank.previous", keys: "ArrowLeft", label: "Mark the one before", group, run: () => move(-1) });
  } else if (kind === "rubric") {
    const criteria = [...form.querySelectorAll("[data-criterion]")];
    let current = 0;
    const mark = () => {
      criteria.forEach((each, place) => each.classList.toggle("current", place === current));
      criteria[current]?.scrollIntoView({ block: "nearest" });
    };
    mark();
    const move = (by) => { current = (current + by + criteria.length) % criteria.length; mark(); };
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
          if (input || field) move(1);
        },
        when: () => criteria.length > 0,
      });
    }
    keys.add({ id: "review.field.next", keys: "ArrowDown", label: "Next criterion", group, run: () => move(1) });
    keys.add({ id: "review.field.previous", keys: "ArrowUp", label: "Criterion before", group, run: () => move(-1) });
    keys.add({ id: "review.field.type", keys: "i", label: "Type into the criterion", group, run: () => criteria[current].querySelector("textarea, input[type=number]")?.focus() });
  } else if (form) {
    for (const input of form.querySelectorAll("[data-reason]")) {
      keys.add({ id: `review.reason.${input.value}`, keys: input.dataset.reason, label: `Because: ${input.closest("label").lastElementChild.lastChild.textContent.trim()}`, group, run: () => press(input) });
    }
  }
  if (form) {
    keys.add({ id: "review.submit", keys: kind === "rubric" ? "Ctrl+enter" : "Enter", label: "Submit and go on", group, run: () => form.requestSubmit(), when: () => !(document.activeElement instanceof HTMLButtonElement || document.activeElement instanceof HTMLAnchorElement || document.activeElement?.tagName === "SUMMARY") });
    keys.add({ id: "review.note", keys: "n", label: "Write a note", group, run: () => form.elements.note.focus() });
    keys.add({
      id: "review.confidence",
      keys: "c",
      label: "How sure you are: the next",
      group,
      run: () => {
        const choice = form.elements.confidence;
        choice.selectedIndex = (choice.selectedIndex + 1) % choice.options.length;
        changed();
      },
    });
    keys.add({
      id: "review.skip",
      keys: "s",
      label: "Skip, with a reason",
      group,
      run: () => {
        const menu = document.getElementById("review-skip");
        menu.open = true;
        menu.querySelector("input[name=reason]").focus();
      },
    });
    // From a field, too: what is typed there is text, and this is no letter.
    form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        event.stopPropagation();
        form.requestSubmit();
      }
    });
  } else if (document.getElementById("review-next")) {
    keys.add({ id: "review.next", keys: "Enter", label: "Begin, or look for another item", group, run: () => document.getElementById("review-next").requestSubmit() });
  }
  keys.add({ id: "review.undo", keys: "u", label: "Take the last one back", group, run: () => document.getElementById("review-undo").requestSubmit(), when: () => document.getElementById("review-undo") !== null });
  // From here on keys are heard.
  document.body.dataset.listens = "1";
}
