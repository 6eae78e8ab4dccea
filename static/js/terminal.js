// Terminals: SGR colours and weights; other sequences move the cursor and are left out.

import { element } from "./code.js";

const SEQUENCE = /\x1b\[([0-9;:]*)m|\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]/g;

const PLAIN = { bold: false, dim: false, italic: false, underline: false, struck: false, inverse: false, front: "", back: "" };
const WEIGHTS = ["bold", "dim", "italic", "underline", "struck", "inverse"];

// Repeated lines of a program are all shown.
export function ansiRuns(written) {
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
