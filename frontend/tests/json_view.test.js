// Views of JSON arguments and results: each value once, decoded.

import assert from "node:assert/strict";
import { test } from "node:test";

import { openPage } from "./page.js";

const PLACES = { marked: "", purify: "", hljs: "/highlight.js" };

async function shown(value, tool = "") {
  const page = openPage("");
  const { json } = await page.load("json_view.js");
  return json(typeof value === "string" ? value : JSON.stringify(value), PLACES, tool);
}

const texts = (root, selector) => [...root.querySelectorAll(selector)].map((each) => each.textContent);

test("a command is shown as it runs, without its name", async () => {
  for (const command of ["ls -l", ["bash", "-lc", "ls -l"]]) {
    const view = await shown({ command }, "bash");
    assert.deepEqual(texts(view, "pre.shell code"), ["ls -l"]);
    assert.equal(view.textContent, "ls -l");
  }
});

test("code is shown once, decoded, after the short fields", async () => {
  const view = await shown({ path: "a.py", content: "x = 1\nprint(x)\n", mode: 420 }, "write");
  assert.deepEqual(texts(view, ".fact"), ["path a.py", "mode 420"]);
  assert.deepEqual(texts(view, "pre"), ["x = 1\nprint(x)\n"]);
  assert.deepEqual(texts(view, ".within"), ["content"]);
});

test("an edit is a diff", async () => {
  const view = await shown({ file_path: "a.py", old_string: "a\nb", new_string: "a\nc" }, "Edit");
  assert.deepEqual(texts(view, ".diff-removed"), ["-a", "-b"]);
  assert.deepEqual(texts(view, ".diff-added"), ["+a", "+c"]);
  assert.deepEqual(texts(view, ".fact"), ["file_path a.py"]);
});

test("search results are a list with their other fields", async () => {
  const found = [{ title: "One", url: "https://one.example/", snippet: "First", score: 0.50 }, { title: "Two", url: "javascript:alert(1)" }];
  for (const value of [found, { results: found }]) {
    const view = await shown(value);
    assert.deepEqual(texts(view, ".results b"), ["One", "Two"]);
    assert.deepEqual(texts(view, ".snippet, .facts"), ["First", "score 0.5"]);
    assert.equal(view.querySelector("a"), null);
  }
});

test("similar objects are a table; JSON in a text is decoded; numbers keep their spelling", async () => {
  const table = await shown([{ id: 1, name: "x" }, { id: 2, name: "y" }]);
  assert.deepEqual(texts(table, "td"), ["1", "x", "2", "y"]);
  const inner = await shown('{"n": 1.50, "big": 12345678901234567890, "given": "{\\"a\\": [1.0]}"}');
  assert.deepEqual(texts(inner, ".fact"), ["n 1.50", "big 12345678901234567890"]);
  assert.deepEqual(texts(inner, "pre"), ['{\n  "a": [\n    1.0\n  ]\n}']);
});

test("truncated JSON and a plain text are shown", async () => {
  assert.equal((await shown('{"a": [1, 2')).textContent, '{\n  "a": [\n    1,\n    2');
  assert.equal((await shown('"one\\ntwo"')).textContent, "one\ntwo");
  assert.equal((await shown({})).textContent, "{}");
});
