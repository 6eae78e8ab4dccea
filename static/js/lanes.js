// Lanes of a trace: adds new cards to the lane of their subagent, and collapses all parts of a lane together.

const partsOf = (lane) => [...document.querySelectorAll(`#rollout-trace .lane[data-lane="${lane}"]`)];

// Append a card to the end of a chunk: to its last lane if the card belongs there, else to a new one.
export function append(chunk, card) {
  const lane = card.closest(".lane");
  if (!lane) {
    chunk.append(document.adoptNode(card));
    return;
  }
  let place = chunk.lastElementChild;
  if (place?.dataset.lane !== lane.dataset.lane) {
    const before = partsOf(lane.dataset.lane).pop();
    place = document.adoptNode(lane.cloneNode(true));
    place.querySelector(".lane-cards").replaceChildren();
    if (before) place.open = before.open;
    chunk.append(place);
  }
  place.querySelector(".lane-cards").append(document.adoptNode(card));
}

document.addEventListener("click", (event) => {
  const lane = event.target.closest?.(".lane > summary")?.parentElement;
  if (!lane) return;
  // The click opens or closes this part itself.
  for (const part of partsOf(lane.dataset.lane)) if (part !== lane) part.open = !lane.open;
});
