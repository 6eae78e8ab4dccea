// Keys of rollouts side by side: through a sequence of comparisons, to where the attempts part, and to a verdict.

function follow(rel) {
  const link = () => document.querySelector(`a[rel="${rel}"]`);
  return { run: () => link().click(), when: () => link() !== null };
}

gymweb.keys.add({ id: "comparing.next", keys: "j", label: "Next comparison", group: "Comparing", ...follow("next") });
gymweb.keys.add({ id: "comparing.previous", keys: "k", label: "Previous comparison", group: "Comparing", ...follow("prev") });
gymweb.keys.add({
  id: "comparing.divergence",
  keys: "d",
  label: "Where they part",
  group: "Comparing",
  run: () => { location.hash = ""; location.hash = "divergence"; },
  when: () => document.getElementById("divergence") !== null,
});

// What one says of them

{
  const group = "Comparing";
  const form = document.getElementById("judge-form");
  const fold = document.getElementById("compare-judge");
  const flag = document.getElementById("compare-flag");
  const add = (id, keys, label, run, when = () => true) => gymweb.keys.add({ id: `comparing.${id}`, keys, label, group, run, when });
  if (form) {
    const ranks = () => [...form.querySelectorAll("[data-rank]")];
    let current = 0;
    const open = () => { fold.open = true; };
    const mark = () => ranks().forEach((each, place) => each.closest(".rank-of").classList.toggle("current", place === current));
    const move = (by) => { current = (current + by + ranks().length) % ranks().length; mark(); };
    const press = (input) => {
      open();
      input.checked = input.type === "radio" ? true : !input.checked;
      input.scrollIntoView({ block: "nearest" });
    };
    add("judge", "w", "Choose the winner", () => {
      fold.open = !fold.open;
      if (fold.open) fold.scrollIntoView({ block: "nearest" });
    });
    for (const input of form.querySelectorAll("[data-key]")) add(input.value, input.dataset.key, input.closest("label").textContent.trim().replace(/^\S+\s+/, ""), () => press(input));
    if (form.dataset.kind === "pairwise") {
      for (const input of form.querySelectorAll("[data-reason]")) add(`reason.${input.value}`, input.dataset.reason, `Because: ${input.getAttribute("aria-label")}`, () => press(input), () => fold.open);
    } else {
      gymweb.dragRanks(form, mark);
      mark();
      for (let rank = 1; rank <= ranks().length; rank += 1) add(`rank.${rank}`, String(rank), `Rank ${rank} for the marked one, and on`, () => { open(); ranks()[current].value = String(rank); move(1); });
      add("rank.next", "ArrowRight", "Mark the next one", () => move(1), () => fold.open);
      add("rank.previous", "ArrowLeft", "Mark the one before", () => move(-1), () => fold.open);
    }
    add("note", "n", "Write a note", () => { open(); form.elements.note.focus(); });
    add("submit", "Enter", "This is my verdict", () => form.requestSubmit(), () => fold.open && !document.activeElement?.matches("a, button, summary"));
    form.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      form.requestSubmit();
    });
  }
  if (flag) add("flag", "f", "Flag all of them", () => { flag.open = true; document.getElementById("flag-kind").focus(); });
}
