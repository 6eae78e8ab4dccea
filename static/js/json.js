// Format JSON without parsing numbers, which would round them, and keep duplicate names.

const DEEPEST = 500;
const TOKEN = /\s*("(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+)/y;
const CLOSING = { "{": "}", "[": "]" };

// Yield every token in order. An invalid rest is the last one.
function* tokens(text) {
  let at = 0;
  while (at < text.length) {
    TOKEN.lastIndex = at;
    const found = TOKEN.exec(text);
    if (!found) {
      if (text.slice(at).trim()) yield text.slice(at).trimStart();
      return;
    }
    at = TOKEN.lastIndex;
    yield found[1];
  }
}

// Return a string token with escaped letters decoded.
function plain(token) {
  if (token[0] !== '"' || !token.includes("\\u")) return token;
  try {
    return JSON.stringify(JSON.parse(token));
  } catch {
    return token;
  }
}

// Return JSON with indented lines. The text may be truncated.
export function laidOut(text) {
  const parts = [];
  let depth = 0;
  let last = "";
  const line = () => `\n${"  ".repeat(Math.min(depth, 40))}`;
  for (const token of tokens(text)) {
    const closes = token === "}" || token === "]";
    if (closes) depth = Math.max(0, depth - 1);
    const isEmpty = closes && CLOSING[last] === token;
    if (parts.length && !isEmpty && (closes || last === "{" || last === "[" || last === ",")) parts.push(line());
    parts.push(token === ":" ? ": " : plain(token));
    if (CLOSING[token]) depth += 1;
    last = token;
  }
  return parts.join("");
}

// Return {entries: [[name, value]]}, {items: [value]}, or {text, string} with the literal text and the value of a
// string. Null for invalid JSON.
export function readJson(text) {
  try {
    JSON.parse(text);
    const rest = tokens(text);
    return value(rest.next().value, rest, 0);
  } catch {
    return null;
  }
}

function value(token, rest, depth) {
  if (depth > DEEPEST) throw new RangeError("too deep");
  if (token === "{") {
    const entries = [];
    for (let next = rest.next().value; next !== "}"; next = rest.next().value) {
      if (next === ",") continue;
      rest.next();
      entries.push([JSON.parse(next), value(rest.next().value, rest, depth + 1)]);
    }
    return { entries };
  }
  if (token === "[") {
    const items = [];
    for (let next = rest.next().value; next !== "]"; next = rest.next().value) {
      if (next !== ",") items.push(value(next, rest, depth + 1));
    }
    return { items };
  }
  return token[0] === '"' ? { text: token, string: JSON.parse(token) } : { text: token };
}
