// The overlay of keyboard shortcuts, made from the registry, and the shortcuts of every page.

import { csrf, menus } from "./gymweb.js";
import * as keys from "./keys.js";

let overlay = null;
let waiting = null;

const element = (tag, className = "", text = "") => {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.textContent = text;
  return made;
};

function show() {
  if (!overlay) {
    overlay = element("dialog", "keys");
    overlay.id = "keys";
    overlay.setAttribute("aria-labelledby", "keys-title");
    overlay.addEventListener("keydown", onKeyWhileWaiting);
    overlay.addEventListener("close", () => { waiting = null; });
    document.body.append(overlay);
  }
  draw();
  overlay.showModal();
}

function draw(said = "") {
  const head = element("header", "section-head");
  const title = element("h2", "", "Keyboard shortcuts");
  title.id = "keys-title";
  const close = element("button", "button small", "Close");
  close.type = "button";
  close.addEventListener("click", () => overlay.close());
  head.append(title, close);
  const line = element("p", "small muted", said || "Shortcuts are off while you type. Select a key to change it; Backspace removes it.");
  line.setAttribute("role", "status");
  const groups = element("div", "key-groups");
  for (const name of new Set(keys.all().map((each) => each.group))) groups.append(drawGroup(name));
  const foot = element("p", "actions");
  const off = element("button", "button small", keys.isOff() ? "Turn shortcuts on" : "Turn shortcuts off");
  off.type = "button";
  off.addEventListener("click", () => save({ ...keys.chosen, off: keys.isOff() ? "" : "1" }));
  const reset = element("button", "button small", "Reset to defaults");
  reset.type = "button";
  reset.addEventListener("click", () => save({}));
  foot.append(off, reset);
  overlay.replaceChildren(head, line, groups, foot);
}

function drawGroup(name) {
  const section = element("section");
  const list = element("dl", "key-list");
  for (const command of keys.all().filter((each) => each.group === name)) {
    const pressed = keys.keysOf(command);
    const button = element("button", "key-button");
    button.type = "button";
    button.dataset.command = command.id;
    button.setAttribute("aria-label", `${command.label}: ${pressed || "no key"}. Change`);
    if (waiting === command.id) button.append(element("span", "", "press a key"));
    else for (const each of pressed ? pressed.split(" ") : ["none"]) button.append(element("kbd", "", each));
    button.addEventListener("click", () => {
      waiting = command.id;
      draw(`Press the key for “${command.label}”. Escape cancels.`);
      overlay.querySelector(`[data-command="${CSS.escape(command.id)}"]`).focus();
    });
    const term = element("dt", "", command.label);
    const value = element("dd");
    value.append(button);
    list.append(term, value);
  }
  section.append(element("h3", "", name), list);
  return section;
}

function onKeyWhileWaiting(event) {
  if (!waiting || ["Shift", "Control", "Alt", "Meta", "Tab"].includes(event.key)) return;
  event.preventDefault();
  event.stopPropagation();
  const [command, name] = [waiting, keys.nameOf(event)];
  waiting = null;
  if (event.key === "Escape") return draw();
  if (event.key === "Backspace") return save({ ...keys.chosen, [command]: "" });
  const other = keys.all().find((each) => each.id !== command
    && `${keys.keysOf(each)} `.startsWith(`${name} `));
  if (other) return draw(`${name} is in use by “${other.label}”.`);
  return save({ ...keys.chosen, [command]: name });
}

async function save(chosen) {
  let said = "Saved.";
  try {
    const reply = await fetch("/account/keyboard/", {
      method: "POST",
      headers: { "X-CSRFToken": csrf(), "Content-Type": "application/json" },
      body: JSON.stringify(chosen),
    });
    if (!reply.ok) throw new Error(reply.status);
    for (const id of Object.keys(keys.chosen)) delete keys.chosen[id];
    Object.assign(keys.chosen, chosen);
  } catch {
    said = "The server did not save this.";
  }
  draw(said);
}

keys.add({ id: "help", keys: "?", label: "Keyboard shortcuts", run: show, evenOff: true });
keys.add({ id: "menu.close", keys: "Escape", label: "Close menu", run: menus.close, when: () => menus.find() !== null, whileTyping: true, evenOff: true });
keys.add({
  id: "find",
  keys: "/",
  label: "Focus the search or filter field",
  run: () => [...document.querySelectorAll("main input[type=search], main [data-filter]")].find((each) => each.offsetParent)?.focus(),
  when: () => Boolean(document.querySelector("main input[type=search], main [data-filter]")),
});
keys.add({
  id: "theme",
  keys: "t",
  label: "Switch theme: light, dark or system",
  run: () => {
    const buttons = [...document.querySelectorAll(".side [data-theme-switch] button")];
    const on = buttons.findIndex((each) => each.getAttribute("aria-pressed") === "true");
    buttons[(on + 1) % buttons.length]?.click();
  },
});
for (const [key, label, path] of [
  ["g h", "Overview", "/"],
  ["g c", "Collections", "/collections/"],
  ["g o", "Rollouts", "/rollouts/"],
  ["g t", "Datasets", "/datasets/"],
  ["g p", "Pair sets", "/pair-sets/"],
  ["g q", "Queues", "/queues/"],
  ["g w", "Workers", "/workers/"],
  ["g s", "Settings", "/settings/"],
]) keys.add({ id: `go.${path.replaceAll("/", "") || "home"}`, keys: key, label, group: "Go to", run: () => location.assign(path) });
