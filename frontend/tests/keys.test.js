import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { openPage } from "./page.js";

let page;
afterEach(() => page.close());

async function open(content = "", attributes = "") {
  page = openPage(content, { attributes });
  return page.load("keys.js");
}

// True where the browser does nothing of its own with the key.
function press(key, { on = page.document.body, ...more } = {}) {
  return !on.dispatchEvent(new page.window.KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }));
}

function adder(keys) {
  const ran = [];
  const add = (id, pressed, more = {}) => keys.add({ id, keys: pressed, label: id, run: () => ran.push(id), ...more });
  return { ran, add };
}

test("a key runs its command, and the browser does nothing else with it", async () => {
  const { ran, add } = adder(await open());
  add("next", "j");
  assert.equal(press("j"), true);
  assert.equal(press("x"), false);
  assert.deepEqual(ran, ["next"]);
});

test("keys one after the other run one command, and another key ends the sequence", async () => {
  const { ran, add } = adder(await open());
  add("first", "g g");
  add("home", "g h");
  add("next", "j");
  press("g");
  assert.deepEqual(ran, []);
  press("h");
  press("g");
  press("Shift");
  press("g");
  press("g");
  press("j");
  press("h");
  assert.deepEqual(ran, ["home", "first", "next"]);
});

test("text that is typed runs no command, and Escape leaves the field", async () => {
  const { ran, add } = adder(await open("<input id='text'><textarea></textarea><select></select><input type='checkbox' id='box'>"));
  add("next", "j");
  add("find", "Ctrl+k", { whileTyping: true });
  add("letter", "x", { whileTyping: true });
  for (const selector of ["#text", "textarea", "select"]) {
    const on = page.find(selector);
    on.focus();
    assert.equal(press("j", { on }), false);
    assert.equal(press("x", { on }), false);
    assert.equal(press("k", { on, ctrlKey: true }), true);
    press("Escape", { on });
    assert.equal(page.document.activeElement, page.document.body);
  }
  assert.deepEqual(ran, ["find", "find", "find"]);
  press("j", { on: page.find("#box") });
  assert.deepEqual(ran.slice(3), ["next"]);
});

test("a sequence that was begun does not go on in a field", async () => {
  const { ran, add } = adder(await open("<input>"));
  add("home", "g h");
  press("g");
  press("h", { on: page.find("input") });
  press("h");
  assert.deepEqual(ran, []);
});

test("an open dialog has the keys", async () => {
  const { ran, add } = adder(await open("<dialog open><button>Close</button></dialog>"));
  add("next", "j");
  add("find", "Ctrl+k", { whileTyping: true });
  assert.equal(press("j"), false);
  assert.equal(press("k", { ctrlKey: true }), false);
  page.find("dialog").open = false;
  press("j");
  assert.deepEqual(ran, ["next"]);
});

test("keys of text that is being composed, and keys that others have taken, run nothing", async () => {
  const { ran, add } = adder(await open("<p>text</p>"));
  add("next", "j");
  press("j", { isComposing: true });
  press("j", { keyCode: 229 });
  const paragraph = page.find("p");
  paragraph.addEventListener("keydown", (event) => event.preventDefault());
  press("j", { on: paragraph });
  assert.deepEqual(ran, []);
});

test("a command with nothing to do leaves its key to the browser, or to another command", async () => {
  const { ran, add } = adder(await open());
  let isOpen = false;
  add("close", "Escape", { when: () => isOpen });
  assert.equal(press("Escape"), false);
  isOpen = true;
  assert.equal(press("Escape"), true);
  add("row", "Enter", { when: () => !isOpen });
  add("submit", "Enter", { when: () => isOpen });
  press("Enter");
  assert.deepEqual(ran, ["close", "submit"]);
});

test("a person's own keys replace the usual ones", async () => {
  const { ran, add } = adder(await open("", `data-keymap='{"next": "n", "back": ""}'`));
  add("next", "j");
  add("back", "k");
  for (const key of ["j", "k", "n"]) press(key);
  assert.deepEqual(ran, ["next"]);
});

test("of two commands with the same chosen key the later one runs, which is the page's", async () => {
  const { ran, add } = adder(await open("", `data-keymap='{"help": "j"}'`));
  add("help", "?");
  add("next", "j");
  press("j");
  assert.deepEqual(ran, ["next"]);
});

test("with all keys switched off only those that are never off work", async () => {
  const { ran, add } = adder(await open("", `data-keymap='{"off": "1"}'`));
  add("next", "j");
  add("help", "?", { evenOff: true });
  assert.equal(press("j"), false);
  press("?");
  assert.deepEqual(ran, ["help"]);
});

test("Command is Control, Space has a name, and capitals are keys of their own", async () => {
  const { ran, add } = adder(await open());
  add("find", "Ctrl+k");
  add("peek", "Space");
  add("expand", "e");
  add("expand-all", "E");
  add("alt", "Alt+e");
  press("k", { ctrlKey: true });
  press("K", { metaKey: true, shiftKey: true });
  press(" ");
  press("E", { shiftKey: true });
  press("e", { altKey: true });
  assert.deepEqual(ran, ["find", "find", "peek", "expand-all", "alt"]);
});

test("two commands cannot have the same id", async () => {
  const { add } = adder(await open());
  add("next", "j");
  assert.throws(() => add("next", "k"), /next is there already/);
});

test("Escape closes an open menu, also from a field in it, and gives the focus back", async () => {
  await open("<button>before</button><details class='menu'><summary>Menu</summary><input></details>");
  await page.load("key_overlay.js");
  const { menus } = await page.load("gymweb.js");
  const menu = page.find("details");
  page.find("button").focus();
  menus.open(menu, page.find("input"));
  assert.equal(page.document.activeElement, page.find("input"));
  assert.equal(press("Escape", { on: page.find("input") }), true);
  assert.equal(menu.open, false);
  assert.equal(page.document.activeElement, page.find("button"));
  assert.equal(press("Escape"), false);
});
