// Ranking by drag and drop: the dropped element gets the rank of its new position, and the others follow. Ties among
// the others are kept. Digits and menus do the same.

export function dragRanks(form, changed) {
  const shown = () => [...form.querySelectorAll(".rank-of")];
  const rankOf = (label) => label.querySelector("[data-rank]");
  const box = shown()[0]?.parentElement;
  let dragged = null;
  let isMoved = false;

  // Return the element before which it is dropped: left to right within a row, then by row.
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
