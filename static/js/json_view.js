// JSON for reading, each value once: code, commands and edits as they run, search results and similar objects as lists and
// tables, all other values as indented JSON.

import { colour, diffLines, element, LARGEST } from "./code.js";
import { laidOut, readJson } from "./json.js";
import { ansiRuns } from "./terminal.js";

const ROWS = 50;
const LANGUAGES = { sql: "sql", html: "xml", css: "css", javascript: "javascript", js: "javascript", python: "python", code: "python", bash: "bash", shell: "bash", script: "bash", command: "bash", cmd: "bash", patch: "diff", diff: "diff" };
const ENDINGS = { py: "python", js: "javascript", mjs: "javascript", ts: "typescript", sh: "bash", sql: "sql", html: "xml", xml: "xml", css: "css", json: "json", yml: "yaml", yaml: "yaml", md: "markdown", rs: "rust", go: "go", java: "java", c: "c", cpp: "cpp", rb: "ruby", diff: "diff", patch: "diff" };
const PATHS = ["path", "file_path", "filename", "file"];
const COMMANDS = ["command", "cmd"];
const EDITS = [["old_string", "new_string"], ["old_str", "new_str"]];
const TITLES = ["title", "name"];
const ADDRESSES = ["url", "link", "href"];
const SNIPPETS = ["snippet", "content", "text", "description", "summary"];

export function json(text, places, tool = "") {
  if (text.length > LARGEST) return null;
  const shown = element("div", "rendered");
  const value = readJson(text);
  if (value?.string !== undefined) shown.append(codeOf(value.string, "", places));
  else if (value?.entries) shown.append(...fields(value.entries, tool.toLowerCase(), places));
  else shown.append(listOf(value?.items) ?? jsonLines(text));
  return shown;
}

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

export function jsonLines(stored) {
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

// Return the fields of an object: the short ones as JSON, then each field that has a view of its own.
function fields(entries, tool, places) {
  const get = (names) => entries.find(([key, each]) => names.includes(key) && each.string !== undefined);
  const edit = EDITS.map((names) => names.map((name) => get([name]))).find((pair) => pair.every(Boolean)) ?? [];
  const ending = ENDINGS[/\.(\w+)$/.exec(get(PATHS)?.[1].string ?? "")?.[1]] ?? "";
  const views = [];
  const rest = [];
  for (const entry of entries) {
    if (edit.includes(entry)) continue;
    const view = viewOf(entry[0].toLowerCase(), entry[1], { tool, ending, places });
    if (view) views.push([entry[0], view]);
    else rest.push(entry);
  }
  if (edit.length) views.push(["edit", changed(...edit.map((entry) => entry[1].string))]);
  const parts = views.length ? besideViews(rest) : [jsonLines(sourceOf({ entries }))];
  for (const [name, view] of views) parts.push(...(entries.length > 1 ? [element("p", "within", name)] : []), view);
  return parts;
}

// Return short values as one line, others as JSON.
function besideViews(rest) {
  if (!rest.length) return [];
  if (rest.some(([, each]) => each.text === undefined || each.text.length > 80)) return [jsonLines(sourceOf({ entries: rest }))];
  const line = element("p", "facts");
  for (const [key, each] of rest) {
    const fact = element("span", "fact muted", `${key} `);
    fact.append(element("code", "", each.string ?? each.text));
    line.append(fact);
  }
  return [line];
}

function viewOf(key, value, { tool, ending, places }) {
  if (value.items) {
    const isCommand = COMMANDS.includes(key) && value.items.length && value.items.every((each) => each.string !== undefined);
    return isCommand ? codeOf(commandOf(value.items.map((each) => each.string)), "bash", places) : listOf(value.items);
  }
  const text = value.string;
  if (!text) return null;
  const known = LANGUAGES[key] ?? (/^\s*(select|with|insert|update|delete|create)\s/i.test(text) && key === "query" ? "sql" : "");
  if (!known && !text.includes("\n")) return isJson(text) ? jsonLines(text) : null;
  if (text.startsWith("*** Begin Patch")) return codeOf(text, "diff", places);
  return codeOf(text, known || ending || LANGUAGES[tool] || "", places);
}

// Return what a shell runs: of ["bash", "-lc", "ls"] the last part.
function commandOf(parts) {
  return parts.length === 3 && /^-\w*c$/.test(parts[1]) ? parts[2] : parts.join(" ");
}

const isJson = (text) => /^\s*[[{]/.test(text) && text.length > 2 && readJson(text) !== null;

function sourceOf(value) {
  if (value.entries) return `{${value.entries.map(([key, each]) => `${JSON.stringify(key)}:${sourceOf(each)}`).join(",")}}`;
  return value.items ? `[${value.items.map(sourceOf).join(",")}]` : value.text;
}

function codeOf(text, language, places) {
  const pre = element("pre", language === "bash" ? "code shell" : "code");
  if (text.includes("\x1b[")) pre.append(ansiRuns(text));
  else {
    const code = element("code", "", text);
    pre.append(code);
    colour(code, language, places);
  }
  return pre;
}

// An edit of a file: removed lines, then added ones.
function changed(before, after) {
  const lines = (text, sign) => (text ? text.split("\n").map((line) => sign + line) : []);
  const pre = element("pre", "code");
  pre.append(diffLines([...lines(before, "-"), ...lines(after, "+")].join("\n")));
  return pre;
}

const listOf = (items) => resultsOf(items) ?? tableOf(items);

// Search results: objects with a title and an address.
function resultsOf(items) {
  const find = (row, names) => row.entries.find(([key, each]) => names.includes(key) && each.string !== undefined)?.[1].string;
  if (!items?.length || !items.every((row) => row.entries && find(row, TITLES) && find(row, ADDRESSES))) return null;
  const list = element("ol", "results");
  for (const row of items.slice(0, ROWS)) {
    const line = element("li");
    line.append(element("b", "", find(row, TITLES)), element("span", "address", find(row, ADDRESSES)));
    const snippet = find(row, SNIPPETS);
    if (snippet) line.append(element("span", "snippet", snippet));
    const used = [TITLES, ADDRESSES, SNIPPETS].map((names) => row.entries.find(([key]) => names.includes(key)));
    const rest = row.entries.filter((entry) => !used.includes(entry));
    if (rest.length) line.append(element("span", "facts", rest.map(([key, each]) => `${key} ${each.string ?? sourceOf(each)}`).join(" · ")));
    list.append(line);
  }
  return counted(list, items.length);
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
  return counted(scroll, rows.length);
}

function counted(list, number) {
  if (number <= ROWS) return list;
  const both = element("div");
  both.append(list, element("p", "cut-note", `Showing ${ROWS} of ${number} rows. The raw text shows all.`));
  return both;
}
