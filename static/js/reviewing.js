// The pages on which people judge: keys, a lease that is kept while one works, and drafts. What is submitted goes
// through unsent.js, which keeps it until the server has it. Without this script the same forms are sent as they are.

{
  const { keys, unsent, drafts } = gymweb;
  const { post, warn } = unsent;
  const DRAFT_MS = 700;
  const RETRY_MS = 1500;
  const AWAY_MS = 20_000;
  const form = document.getElementById("review-form");
  const saved = document.getElementById("review-saved");

  // What is in the form

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

  // Submissions

  let waits = false;

  // While it is on its way nothing changes in it.
  function hold(isOn) {
    waits = isOn;
    if (!form) return;
    form.inert = isOn;
    form.setAttribute("aria-busy", String(isOn));
  }

  // A word for the page that comes next.
  const SAID = "gymweb.said";
  function say(text) {
    try { sessionStorage.setItem(SAID, text); } catch { /* it is no more than a word */ }
  }

  function hear() {
    try {
      if (saved) saved.textContent = sessionStorage.getItem(SAID) ?? "";
      sessionStorage.removeItem(SAID);
    } catch { /* as above */ }
  }

  const newToken = () => (crypto.randomUUID ? crypto.randomUUID() : String(Math.random()).slice(2));

  function submit() {
    if (waits) return;
    const answer = { token: form.elements.token.value, ...read() };
    const missing = (answer.choice === "" && "Say which is better first.") || (answer.ranks?.includes(0) && "Give each a rank first.");
    if (missing) {
      warn(missing);
      return;
    }
    hold(true);
    const { queue, name, work } = form.dataset;
    unsent.add({ review: Number(form.dataset.review), queue, name, work, answer });
    unsent.sendAll();
  }

  // A skip, and taking the last one back: as an answer, kept until the server has them. Their forms are sent as they are
  // where the page does not say which is the last.

  const skipped = document.querySelector("#review-skip form");
  const undone = document.getElementById("review-undo");
  let undoing = null;

  skipped?.addEventListener("submit", (event) => {
    event.preventDefault();
    const reason = skipped.elements.reason.value.trim();
    if (waits || !reason) return;
    document.getElementById("review-skip").open = false;
    hold(true);
    const { queue, name, work } = form.dataset;
    unsent.add({ review: Number(form.dataset.review), queue, name, work, skip: reason });
    unsent.sendAll();
  });

  undone?.addEventListener("submit", (event) => {
    const last = undone.elements.review?.value;
    if (!last) return;
    event.preventDefault();
    if (waits) return;
    undoing = last;
    hold(true);
    unsent.add({ review: Number(last), queue: /\/queues\/(\d+)\//.exec(undone.action)[1], work: location.pathname, undo: true });
    unsent.sendAll();
  });

  unsent.listen((outcomes) => {
    if (undoing && outcomes.get(undoing) === "sent") {
      say("Taken back: you have it again.");
      location.assign(unsent.undone()?.status === "lapsed" ? `?review=${undoing}` : location.pathname);
      return;
    }
    if (undoing && outcomes.get(undoing) === "refused") {
      undoing = null;
      hold(false);
    }
    const outcome = form && outcomes.get(form.dataset.review);
    if (outcome === "sent") goOn();
    else if (outcome === "refused" || outcome === "wrong") {
      hold(false);
      form.elements.token.value = newToken();
    } else if (!waits && [...outcomes.values()].includes("sent")) location.reload();
  });

  // To the next item, once this one is with the server. Where it did not come with the answer, it is taken as the page's
  // own form does, whose answer leads to the page and carries no trace. Where there is none, the page says why.
  async function goOn() {
    if (unsent.claimed()) {
      location.assign(form.dataset.work);
      return;
    }
    try {
      const reply = await fetch(form.dataset.work, { method: "POST", redirect: "manual", headers: { "X-CSRFToken": unsent.token() } });
      if (reply.status < 500) {
        location.assign(form.dataset.work);
        return;
      }
      warn(`Sent. The server answered with an error (${reply.status}); the next item comes as soon as it can give one.`);
    } catch {
      warn("Sent. The next item comes as soon as there is a connection.");
    }
    setTimeout(goOn, RETRY_MS);
  }

  // The draft and the lease: kept together

  let until = form ? Date.parse(form.dataset.until) : 0;
  let timer = null;
  let touchedAt = Date.now();
  const lease = form ? Number(form.dataset.minutes) * 60_000 : 0;

  // One after the other: an older draft that was slow must not come after a newer one.
  let kept = Promise.resolve();
  function keep(withDraft) {
    kept = kept.then(() => keepNow(withDraft));
  }

  // After a lost connection, or a while in which nothing came from here, what is on the server may have been written
  // elsewhere: it is asked for before it is replaced.
  let isDoubtful = false;
  let metAt = Date.now();

  async function keepNow(withDraft) {
    const { review } = form.dataset;
    const tell = (text) => { if (saved && withDraft) saved.textContent = text; };
    try {
      let reply = null;
      let draft = null;
      if (!withDraft || isDoubtful || Date.now() - metAt > AWAY_MS) {
        reply = await post(`reviews/${review}/renew/`);
        if (reply.ok) drafts.meet(review, reply.told.draft);
        isDoubtful = isDoubtful && !reply.ok;
      }
      // A lease that is lost still takes the draft.
      if (withDraft && (reply === null || reply.ok || reply.status === 409)) {
        draft = read();
        drafts.send(review, draft);
        reply = await post(`reviews/${review}/renew/`, { draft });
      }
      if (reply.ok) {
        metAt = Date.now();
        until = Date.parse(reply.told.leased_until);
        if (draft) drafts.drop(review, draft);
        tell("draft kept");
        if (!unsent.count()) warn("");
        return;
      }
      tell("draft kept in this browser");
      if (waits) return;
      if ([401, 403, 404].includes(reply.status) && await unsent.explainSession()) return;
      warn(reply.told.detail ?? `The server answered with an error (${reply.status}). What you write is kept in this browser.`);
    } catch {
      isDoubtful = true;
      tell("draft kept in this browser");
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
    const sent = unsent.find(form.dataset.review);
    const local = drafts.open(form.dataset.review, readServed());
    if (sent?.answer || local) write(sent?.answer ?? local);
    if (sent) hold(true);
    drafts.showAsides(document.getElementById("review-asides"), form.dataset.review, read, (draft) => { write(draft); changed(); });
    document.addEventListener("visibilitychange", () => { isDoubtful = true; });
    form.addEventListener("submit", (event) => { event.preventDefault(); submit(); });
    form.addEventListener("input", () => {
      if (waits) return;
      drafts.keep(form.dataset.review, read());
      clearTimeout(timer);
      timer = setTimeout(() => { if (!waits) keep(true); }, DRAFT_MS);
    });
    for (const kind of ["keydown", "pointerdown", "scroll"]) addEventListener(kind, () => { touchedAt = Date.now(); }, { passive: true, capture: true });
    setInterval(tick, 1000);
    tick();
  }
  // Back to a page that was left: another item may be held by now.
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
  hear();
  // What another visit could not send.
  if (unsent.count()) unsent.sendAll();

  // Keys

  const group = "Reviewing";
  const changed = () => form.dispatchEvent(new Event("input", { bubbles: true }));
  const press = (input) => {
    if (waits) return;
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
    gymweb.dragRanks(form, () => { changed(); mark(); });
    const shown = () => [...form.querySelectorAll("[data-rank]")];
    let current = Math.max(0, shown().findIndex((each) => !each.value));
    const mark = () => shown().forEach((each, place) => each.closest(".rank-of").classList.toggle("current", place === current));
    mark();
    const move = (by) => { current = (current + by + shown().length) % shown().length; mark(); };
    for (let rank = 1; rank <= shown().length; rank += 1) {
      keys.add({ id: `review.rank.${rank}`, keys: String(rank), label: `Rank ${rank} for the marked one, and on`, group, run: () => { shown()[current].value = String(rank); changed(); move(1); }, when: () => !waits });
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
        when: () => criteria.length > 0 && !waits,
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
      when: () => !waits,
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
