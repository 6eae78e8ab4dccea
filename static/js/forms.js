// Renders texts as elements: Markdown, JSON, terminal colours, diffs. All text is inserted as text nodes. Only Markdown
// produces markup, which DOMPurify sanitizes so that nothing loads or runs.

import { colour, diffLines, element, LARGEST, reveal, script } from "./code.js";
import { json, jsonLines } from "./json_view.js";
import { readMarkdown } from "./markdown.js";
import { ansiRuns } from "./terminal.js";

async function markdown(text, places) {
  if (text.length > LARGEST) return null;
  const [marked, purify] = await Promise.all([script(places.marked, "marked"), script(places.purify, "DOMPurify")]);
  const clean = readMarkdown(text, marked, purify);
  const shown = element("div", "rendered markdown");
  shown.append(clean);
  let level = 3;
  for (const heading of shown.querySelectorAll("h4, h5, h6")) {
    // Heading levels continue below the title of the step, without gaps.
    level = Math.min(Number(heading.tagName[1]), level + 1);
    if (`H${level}` === heading.tagName) continue;
    const fitting = element(`h${level}`);
    fitting.append(...heading.childNodes);
    heading.replaceWith(fitting);
  }
  // Each paragraph has the direction of its own text.
  for (const each of shown.querySelectorAll("p, ul, ol, li, blockquote, h3, h4, h5, h6, th, td")) each.dir = "auto";
  for (const table of shown.querySelectorAll("table")) {
    table.className = "data";
    const scroll = element("div", "scroll");
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "group");
    scroll.setAttribute("aria-label", "Table");
    table.replaceWith(scroll);
    scroll.append(table);
  }
  for (const pre of shown.querySelectorAll("pre.code")) {
    const language = pre.title;
    pre.removeAttribute("title");
    colour(pre.firstElementChild, language, places);
  }
  return shown;
}

function ansi(text) {
  const shown = element("div", "rendered");
  const pre = element("pre", "code terminal");
  pre.append(ansiRuns(text.slice(0, LARGEST)));
  shown.append(pre);
  if (text.length > LARGEST) shown.append(element("p", "cut-note", `Showing ${LARGEST} of ${text.length} characters. The raw text shows all.`));
  return shown;
}

function diff(text) {
  if (text.length > LARGEST) return null;
  const shown = element("div", "rendered");
  const pre = element("pre", "code");
  pre.append(diffLines(text));
  shown.append(pre);
  return shown;
}

const KINDS = { markdown, json, ansi, diff };

// Return an element with the formatted text, or null if plain text reads best.
export async function show(text, form, places, tool) {
  const shown = Object.hasOwn(KINDS, form) ? await KINDS[form](text, places, tool) : null;
  return shown && reveal(shown);
}

export const showJson = (text) => reveal(jsonLines(text));
