// A ranking by drag: whatever is dragged gets the rank of the place where it is let go, and the others follow. Ties
// among the others stay. Digits and the lists of numbers do the same; this only moves what they are in.

export function dragRanks(form, changed) {
  const shown = () => [...form.querySelectorAll(".rank-of")];
  const rankOf = (label) => label.querySelector("[data-rank]");
  const box = shown()[0]?.parentElement;
  let dragged = null;
  let isMoved = false;

  // Before which one it is to stand: those in a row from left to right, rows from above.
  function follower(x, y) {
    return shown().filter((each) => each !== dragged).find((each) => {
      const { left, right, top, bottom } = each.getBoundingClientRect();
      return y < top || (y <= bottom && x < (left + right) / 2);
    }) ?? null;
  }

  function number() {
    let rank = 0;
    let before = null;
    for (const each of shown()) {
      const was = rankOf(each).value;
      const isTie = before && before !== dragged && each !== dragged && was && was === before.dataset.was;
      if (!isTie) rank += 1;
      each.dataset.was = was;
      rankOf(each).value = String(rank);
      before = each;
    }
    for (const each of shown()) delete each.dataset.was;
  }

  box?.addEventListener("pointerdown", (event) => {
    const handle = event.target.closest(".drag");
    if (!handle || event.button !== 0) return;
    event.preventDefault();
    dragged = handle.closest(".rank-of");
    isMoved = false;
    handle.setPointerCapture(event.pointerId);
    dragged.classList.add("dragged");
  });
  box?.addEventListener("pointermove", (event) => {
    if (!dragged) return;
    const next = follower(event.clientX, event.clientY);
    if (dragged.nextElementSibling === next) return;
    isMoved = true;
    box.insertBefore(dragged, next);
  });
  for (const end of ["pointerup", "pointercancel"]) {
    box?.addEventListener(end, () => {
      if (!dragged) return;
      dragged.classList.remove("dragged");
      if (isMoved) {
        number();
        changed();
      }
      dragged = null;
    });
  }
}
