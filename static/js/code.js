// Elements for texts and code: colours of a language, lines of a diff, hidden characters. All text is inserted as text.

export const LARGEST = 200_000;

export function element(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

// Third-party scripts, loaded for the first text that needs them

const scripts = new Map();

export function script(address, name) {
  if (!scripts.has(address)) {
    scripts.set(address, new Promise((resolve, reject) => {
      const tag = document.createElement("script");
      tag.src = address;
      tag.addEventListener("load", () => resolve(window[name]));
      tag.addEventListener("error", reject);
      document.head.append(tag);
    }));
  }
  return scripts.get(address);
}

// Code in a named language: shown at once, highlighted when the script is loaded.
export async function colour(code, language, places) {
  if (!language || code.textContent.length > LARGEST) return;
  if (language === "diff" || language === "patch") {
    code.replaceChildren(diffLines(code.textContent));
    return;
  }
  const hljs = await script(places.hljs, "hljs");
  if (!hljs.getLanguage(language)) return;
  // The highlighter returns escaped text in spans. It is parsed separately, and only spans are inserted.
  const parsed = new DOMParser().parseFromString(hljs.highlight(code.textContent, { language, ignoreIllegals: true }).value, "text/html");
  code.replaceChildren(...spans(parsed.body));
  reveal(code);
}

function spans(root) {
  return [...root.childNodes].map((node) => {
    if (node.nodeType !== 1) return document.createTextNode(node.textContent);
    const span = element("span", /^hljs-[\w- ]+$/.test(node.className) ? node.className : "");
    span.append(...spans(node));
    return span;
  });
}

// Diffs

export function diffLines(text) {
  const lines = document.createDocumentFragment();
  // Remaining lines of this hunk: within it, no line is a header, whatever it begins with.
  let [old, fresh] = [0, 0];
  for (const line of text.split("\n")) {
    const hunk = /^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@/.exec(line);
    const isInside = old > 0 || fresh > 0;
    const kind = hunk ? "hunk"
      : !isInside && /^(diff |index |--- |\+\+\+ |new file|deleted file|rename )/.test(line) ? "file"
      : line.startsWith("@@") ? "hunk" : line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "";
    if (hunk) [old, fresh] = [Number(hunk[1] ?? 1), Number(hunk[2] ?? 1)];
    else if (isInside && line[0] !== "\\") {
      if (kind !== "added") old -= 1;
      if (kind !== "removed") fresh -= 1;
    }
    lines.append(kind ? element("span", `diff-${kind}`, line) : line, "\n");
  }
  lines.lastChild.remove();
  return lines;
}

// Hidden characters, as in the template filter `revealed`. Their text stays; each gets an element, which ends its text
// direction, and the style sheet shows its code point.
const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001a\u001c-\u001f\u007f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\u{e0000}-\u{e007f}]/gu;

export function reveal(root) {
  const texts = [];
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) if (walker.currentNode.data.search(HIDDEN) >= 0) texts.push(walker.currentNode);
  for (const text of texts) {
    if (text.parentElement?.matches(".control")) continue;
    let last = 0;
    const parts = [];
    for (const found of text.data.matchAll(HIDDEN)) {
      const control = element("span", "control", found[0]);
      control.dataset.code = `U+${found[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
      parts.push(text.data.slice(last, found.index), control);
      last = found.index + found[0].length;
    }
    text.replaceWith(...parts, text.data.slice(last));
  }
  return root;
}
