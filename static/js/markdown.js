// Markdown rendering for traces. Readers must see what was written, so ambiguous markup stays as text (formulas, code
// names, escapes, globs), and list markers keep their form and number.

const LINK = /^(https?:|mailto:)/i;
// Maximum distance to the end of a formula, which limits the time for texts without one.
const FORMULA = 4_000;
const CLASSES = new Set(["code", "chip", "muted", "dash", "star", "plus", "paren"]);
const BULLETS = { "-": "dash", "*": "star", "+": "plus" };
const escape = (text) => String(text).replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
const lines = (text) => escape(text).replace(/\n/g, "<br>");

// Formulas

const ENDS = { "\\(": "\\)", "\\[": "\\]", "$$": "$$" };

// Return the formula at the start of a text, if any.
function formula(text) {
  const near = text.slice(0, FORMULA);
  const end = ENDS[near.slice(0, 2)];
  if (end) {
    const at = near.indexOf(end, 2);
    return at > 2 ? near.slice(0, at + 2) : "";
  }
  return /^\$(?![\s$])(?:\\.|[^$\\\n])*?(?<!\s)\$(?![\p{N}$])/u.exec(near)?.[0] ?? "";
}

const inline = {
  name: "formula",
  level: "inline",
  tokenizer(source) {
    const raw = source[0] === "$" || source[0] === "\\" ? formula(source) : "";
    return raw ? { type: "formula", raw } : undefined;
  },
  renderer: (token) => lines(token.raw),
};

// A block formula: lines in it that begin with + or - are no list.
const BLOCK = /^ {0,3}(\$\$|\\\[|\\begin\{[A-Za-z]{1,20}\*?\})/;

function formulas(text) {
  const begin = BLOCK.exec(text);
  if (!begin) return "";
  const near = text.slice(0, FORMULA);
  const end = ENDS[begin[1]] ?? begin[1].replace("begin", "end");
  const at = near.indexOf(end, begin[0].length);
  const rest = at < 0 ? null : /^[ \t.,;:]*(?:\n+|$)/.exec(near.slice(at + end.length));
  return rest ? near.slice(0, at + end.length + rest[0].length) : "";
}

const block = {
  name: "formulas",
  level: "block",
  // A paragraph ends before a complete block formula. To save time, only the first candidate is tried.
  start(source) {
    const before = source.slice(0, FORMULA).search(/\n {0,3}(?:\$\$|\\\[|\\begin\{)/);
    return before >= 0 && formulas(source.slice(before + 1)) ? before + 1 : undefined;
  },
  tokenizer(source) {
    const raw = formulas(source);
    return raw ? { type: "formulas", raw } : undefined;
  },
  renderer: (token) => `<p>${lines(token.raw.replace(/\n+$/, ""))}</p>\n`,
};

// Emphasis: only if both ends are at the edge of a word

const CJK = "\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}\\p{Script=Hangul}\\u3000-\\u303f\\uff00-\\uffef";
const BEFORE = new RegExp(`^[\\s([{"'“‘„«»¿¡—–…:;,${CJK}]?$`, "u");
const AFTER = new RegExp(`^(?:$|[\\s,:;!?)\\]}"'“”’«»—–…${CJK}]|\\.(?![\\p{L}\\p{N}_*/]))`, "u");
const INNER = /^[^\s.,:;?|=+)\]}%^&/\\-]/;

function isMarkup(token, source, before) {
  const raw = token.raw;
  const mark = /^[*_~]+/.exec(raw)[0];
  if (!BEFORE.test(before) || !AFTER.test(source.slice(raw.length, raw.length + 3))) return false;
  const inner = raw.slice(mark.length, -mark.length);
  // Code names such as __init__ and _private_name_ are no emphasis.
  if (!INNER.test(inner) || (/^_+$/.test(mark) && /^\w+$/.test(inner) && (mark !== "_" || inner.includes("_")))) return false;
  // A formula that begins inside and ends behind it contains its last star.
  for (let at = raw.search(/[$\\]/); at >= 0 && at < raw.length; at += 1) {
    const length = raw[at] === "$" || raw[at] === "\\" ? formula(source.slice(at)).length : 0;
    if (at + length > raw.length) return false;
    at += Math.max(0, length - 1);
  }
  return true;
}

const tokenizer = (marked) => {
  const usual = marked.Tokenizer.prototype;
  const certain = (name) => function (source, masked, before) {
    const token = usual[name].call(this, source, masked, before);
    if (!token || (name === "del" && !token.raw.startsWith("~~"))) return undefined;
    return isMarkup(token, source, masked.charAt(masked.length - source.length - 1)) ? token : undefined;
  };
  return {
    emStrong: certain("emStrong"),
    del: certain("del"),
    escape(source) {
      const token = usual.escape.call(this, source);
      return token && { ...token, text: token.raw };
    },
    br(source) {
      // A backslash at the end of a line continues it, as in shells, Python and C.
      if (source[0] === "\\" && source[1] === "\n") return { type: "escape", raw: "\\", text: "\\" };
      const end = /^ *\n(?!\s*$)/.exec(source);
      return end ? { type: "br", raw: end[0] } : undefined;
    },
    inlineText(source) {
      // A formula may begin at any dollar sign.
      const at = source.indexOf("$", 1);
      const token = usual.inlineText.call(this, at < 0 ? source : source.slice(0, at));
      return token && { ...token, text: token.raw };
    },
    // Link definitions would be invisible, so they stay as text.
    def: () => undefined,
    blockquote: (source) => (/^ {0,3}>(?:[ \t\n]|$)/.test(source) ? false : undefined),
    lheading(source) {
      const token = usual.lheading.call(this, source);
      return token && /(?:^|\n) {0,3}(?:={3,}|-{3,})[ \t]*\n*$/.test(token.raw) ? token : undefined;
    },
  };
};

const renderer = {
  text(token) {
    return token.tokens ? this.parser.parseInline(token.tokens) : escape(token.text);
  },
  html: (token) => (token.block ? `<p>${lines(token.text.replace(/\n+$/, ""))}</p>\n` : escape(token.text)),
  heading(token) {
    const level = Math.min(6, token.depth + 3);
    return `<h${level}>${this.parser.parseInline(token.tokens)}</h${level}>\n`;
  },
  code: (token) => `<pre class="code" title="${escape((token.lang || "").split(/\s/)[0])}"><code>${escape(token.text)}</code></pre>\n`,
  image: (token) => ` <span class="chip">image not loaded: ${escape(token.text || "unnamed")} (${escape(String(token.href).slice(0, 200))})</span> `,
  link(token) {
    // Without a valid address it is no link: an array index followed by a call looks the same.
    return LINK.test(token.href) ? `<a href="${escape(token.href)}">${this.parser.parseInline(token.tokens)}</a>` : lines(token.raw);
  },
  list(token) {
    const items = token.items.map((item) => this.listitem(item)).join("");
    const [, number, sign] = /^\s*(\d*)([.)*+-])/.exec(token.raw) ?? [];
    const named = number ? (sign === ")" ? "paren" : "") : BULLETS[sign];
    const tag = token.ordered ? "ol" : "ul";
    return `<${tag}${named ? ` class="${named}"` : ""}>\n${items}</${tag}>\n`;
  },
  listitem(token) {
    const number = /^\s*(\d{1,9})[.)]/.exec(token.raw)?.[1];
    return `<li${number ? ` value="${Number(number)}"` : ""}>${this.parser.parse(token.tokens)}</li>\n`;
  },
  checkbox: (token) => (token.checked ? "☑ " : "☐ "),
};

const PURE = {
  ALLOWED_TAGS: ["a", "blockquote", "br", "code", "del", "em", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"],
  ALLOWED_ATTR: ["href", "title", "value", "align", "class"],
  ALLOWED_URI_REGEXP: LINK,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

// Return a fragment in which nothing loads or runs.
export function readMarkdown(text, marked, purify) {
  const parser = new marked.Marked({ gfm: true, breaks: true, renderer, tokenizer: tokenizer(marked), extensions: [block, inline] });
  const clean = purify.sanitize(parser.parse(text), PURE);
  for (const each of clean.querySelectorAll("[class]")) if (!CLASSES.has(each.className)) each.removeAttribute("class");
  for (const each of clean.querySelectorAll("a")) {
    each.rel = "noopener noreferrer nofollow ugc";
    each.target = "_blank";
  }
  return clean;
}
