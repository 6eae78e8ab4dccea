// Quotes of comments: take the selected text of a step, and highlight the quoted texts of the loaded steps.

const CHARACTERS = 2000;

// Return the number of the step that contains the selection, and the selected text; null without a selection.
export function readSelection() {
  const selection = getSelection();
  if (!selection.rangeCount || selection.isCollapsed) return null;
  const { commonAncestorContainer: node } = selection.getRangeAt(0);
  const element = node.nodeType === Node.ELEMENT_NODE ? node : node.parentElement;
  for (let step = element.closest("[id]"); step; step = step.parentElement?.closest("[id]")) {
    if (/^e\d+$/.test(step.id)) return { seq: Number(step.id.slice(1)), text: selection.toString().trim().slice(0, CHARACTERS) };
  }
  return null;
}

// Return the range of the quote in the element, ignoring whitespace; null if it does not occur.
export function findQuote(root, quote) {
  const wanted = quote.replace(/\s+/g, "");
  const places = [];
  let text = "";
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    for (let offset = 0; offset < node.data.length; offset += 1) {
      if (/\s/.test(node.data[offset])) continue;
      text += node.data[offset];
      places.push([node, offset]);
    }
  }
  const at = wanted ? text.indexOf(wanted) : -1;
  if (at < 0) return null;
  const range = document.createRange();
  const [last, offset] = places[at + wanted.length - 1];
  range.setStart(...places[at]);
  range.setEnd(last, offset + 1);
  return range;
}

export function showQuotes() {
  if (!globalThis.CSS?.highlights) return;
  const ranges = [...document.querySelectorAll(".quoted[data-seq]")].flatMap((quote) => {
    const card = document.getElementById(`e${quote.dataset.seq}`);
    return card ? findQuote(card, quote.textContent) ?? [] : [];
  });
  CSS.highlights.set("quoted", new Highlight(...ranges));
}
