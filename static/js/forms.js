// Renders texts as elements: Markdown, JSON, terminal colours, diffs, tables. All text is inserted as text nodes. Only
// Markdown produces markup, which DOMPurify sanitizes so that nothing loads or runs.

import { laidOut, readJson } from "./json.js";
import { readMarkdown } from "./markdown.js";

const LARGEST = 200_000;
const ROWS = 50;

export function element(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

// Third-party scripts, loaded for the first text that needs them

const scripts = new Map();

function script(address, name) {
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

// Markdown

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

// Code in a named language: shown at once, highlighted when the script is loaded.
async function colour(code, language, places) {
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

// JSON: coloured, with readable long texts, and lists of similar objects as tables

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

function json(text, places, tool = "") {
  if (text.length > LARGEST) return null;
  const shown = element("div", "rendered");
  const value = readJson(text);
  const table = tableOf(value?.items);
  if (table) {
    shown.append(table);
    return shown;
  }
  shown.append(jsonLines(text));
  for (const [key, inner] of value?.entries ?? []) shown.append(...within(key, inner, tool, places));
  return shown;
}

function jsonLines(stored) {
  const pre = element("pre", "code");
  const text = laidOut(stored);
  let at = 0;
  for (const match of text.matchAll(TOKEN)) {
    pre.append(text.slice(at, match.index));
    const kind = match[2] ? "key" : match[1] ? "string" : match[3] ? "word" : "number";
    pre.append(element("span", `json-${kind}`, match[1] ?? match[0]));
    if (match[2]) pre.append(match[2]);
    at = match.index + match[0].length;
  }
  pre.append(text.slice(at));
  return pre;
}

const LANGUAGES = { sql: "sql", query: "", html: "xml", css: "css", javascript: "javascript", js: "javascript", python: "python", code: "python", script: "bash", command: "bash", cmd: "bash", patch: "diff", diff: "diff" };

// Multi-line values, shown again as lines.
function within(key, inner, tool, places) {
  const table = tableOf(inner.items);
  if (table) return [element("p", "within", key), table];
  const value = inner.string;
  if (value === undefined || !value.includes("\n") || value.length < 30) return [];
  const pre = element("pre", "code");
  if (value.includes("\x1b[")) pre.append(ansiRuns(value));
  else {
    const code = element("code", "", value);
    pre.append(code);
    colour(code, LANGUAGES[key.toLowerCase()] ?? LANGUAGES[tool.toLowerCase()] ?? "", places);
  }
  return [element("p", "within", key), pre];
}

// Two or more flat objects with the same keys.
function tableOf(rows) {
  if (!rows || rows.length < 2) return null;
  const names = (row) => JSON.stringify(row.entries.map(([key]) => key));
  const keys = rows[0].entries?.map(([key]) => key) ?? [];
  const isFlat = (row) => row.entries?.every(([, each]) => each.text !== undefined) && names(row) === names(rows[0]);
  if (!keys.length || keys.length > 12 || new Set(keys).size < keys.length || !rows.every(isFlat)) return null;
  const scroll = element("div", "scroll");
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "group");
  scroll.setAttribute("aria-label", "Table");
  const table = element("table", "data");
  const head = table.createTHead().insertRow();
  for (const key of keys) {
    const cell = element("th", "", key);
    cell.scope = "col";
    head.append(cell);
  }
  const body = table.createTBody();
  for (const row of rows.slice(0, ROWS)) {
    const line = body.insertRow();
    for (const [, each] of row.entries) {
      const cell = line.insertCell();
      cell.textContent = each.string ?? each.text;
      if (/^[-\d]/.test(each.text)) cell.className = "num";
    }
  }
  scroll.append(table);
  if (rows.length <= ROWS) return scroll;
  const both = element("div");
  both.append(scroll, element("p", "cut-note", `Showing ${ROWS} of ${rows.length} rows. The raw text shows all.`));
  return both;
}

// Terminals: SGR colours and weights; other sequences move the cursor and are left out

const SEQUENCE = /\x1b\[([0-9;:]*)m|\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]/g;

function ansi(text) {
  const shown = element("div", "rendered");
  const pre = element("pre", "code terminal");
  pre.append(ansiRuns(text.slice(0, LARGEST)));
  shown.append(pre);
  if (text.length > LARGEST) shown.append(element("p", "cut-note", `Showing ${LARGEST} of ${text.length} characters. The raw text shows all.`));
  return shown;
}

const PLAIN = { bold: false, dim: false, italic: false, underline: false, struck: false, inverse: false, front: "", back: "" };
const WEIGHTS = ["bold", "dim", "italic", "underline", "struck", "inverse"];

// Repeated lines of a program are all shown.
function ansiRuns(written) {
  const text = written.replace(/\r\n?/g, "\n");
  const runs = document.createDocumentFragment();
  let style = PLAIN;
  let at = 0;
  const put = (part) => {
    if (!part) return;
    const names = [...WEIGHTS.filter((name) => style[name]).map((name) => `sgr-${name}`), style.front, style.back].filter(Boolean).join(" ");
    runs.append(names ? element("span", names, part) : part);
  };
  for (const match of text.matchAll(SEQUENCE)) {
    put(text.slice(at, match.index));
    at = match.index + match[0].length;
    if (match[1] !== undefined) style = restyle(style, match[1]);
  }
  put(text.slice(at));
  return runs;
}

const SET = { 1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "struck", 21: "underline" };
const UNSET = { 22: ["bold", "dim"], 23: ["italic"], 24: ["underline"], 27: ["inverse"], 29: ["struck"] };

function restyle(style, codes) {
  let next = { ...style };
  const given = codes.split(";");
  for (let index = 0; index < given.length; index += 1) {
    const [code, ...parts] = given[index].split(":").map(Number);
    if (code === 0) next = { ...PLAIN };
    else if (SET[code]) next[SET[code]] = parts[0] !== 0;
    else if (UNSET[code]) for (const name of UNSET[code]) next[name] = false;
    else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) next.front = `sgr-${code % 10}`;
    else if (code === 39) next.front = "";
    else if ((code >= 40 && code <= 47) || (code >= 100 && code <= 107)) next.back = `sgr-back-${code % 10}`;
    else if (code === 49) next.back = "";
    else if (code === 38 || code === 48 || code === 58) {
      // Either one part with colons, where a colour space may precede the three values, or the following parts.
      const rest = parts.length ? parts : given.slice(index + 1).map(Number);
      const isIndexed = rest[0] === 5;
      const most = parts.length && !isIndexed ? rest.slice(-3) : rest.slice(1, isIndexed ? 2 : 4);
      const colour = isIndexed ? indexed(most[0]) : nearest(...most);
      if (code !== 58 && colour !== null) next[code === 38 ? "front" : "back"] = `${code === 38 ? "sgr-" : "sgr-back-"}${colour}`;
      if (!parts.length) index += isIndexed ? 2 : 4;
    }
  }
  return next;
}

// The 256 colours: sixteen named ones, a cube, and greys.
function indexed(number) {
  if (!(number >= 0 && number <= 255)) return null;
  if (number < 16) return number % 8;
  if (number >= 232) return number < 244 ? 0 : 7;
  const cube = number - 16;
  return nearest(...[Math.floor(cube / 36), Math.floor(cube / 6) % 6, cube % 6].map((part) => part * 51));
}

// Return the theme colour that is closest, so that it is readable on both themes.
function nearest(red, green, blue) {
  const parts = [red, green, blue];
  if (!parts.every((part) => part >= 0 && part <= 255)) return null;
  const most = Math.max(...parts);
  if (most < 48) return 0;
  return parts.reduce((sum, part, place) => sum + (part > most * 0.6 ? 2 ** place : 0), 0);
}

// Diffs

function diff(text) {
  if (text.length > LARGEST) return null;
  const shown = element("div", "rendered");
  const pre = element("pre", "code");
  pre.append(diffLines(text));
  shown.append(pre);
  return shown;
}

function diffLines(text) {
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

const KINDS = { markdown, json, ansi, diff };

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

// Return an element with the formatted text, or null if plain text reads best.
export async function show(text, form, places, tool) {
  const shown = Object.hasOwn(KINDS, form) ? await KINDS[form](text, places, tool) : null;
  return shown && reveal(shown);
}

export const showJson = (text) => reveal(jsonLines(text));
