// The command palette: the search page in a dialog. The field keeps the focus; arrows move the selection.

import * as keys from "./keys.js";

const palette = document.getElementById("palette");
const field = palette.querySelector("[role=combobox]");
const list = document.getElementById("palette-options");
const options = () => [...list.querySelectorAll("[role=option]:not([aria-disabled])")];
const chosen = () => list.querySelector("[aria-selected=true]");

function open() {
  if (document.querySelector("dialog[open]")) return;
  palette.showModal();
  field.select();
  // An unchanged field would not request anything.
  htmx.trigger(field, "open");
}

function choose(option) {
  chosen()?.setAttribute("aria-selected", "false");
  if (!option) return field.removeAttribute("aria-activedescendant");
  option.setAttribute("aria-selected", "true");
  option.scrollIntoView({ block: "nearest" });
  return field.setAttribute("aria-activedescendant", option.id);
}

function move(by) {
  const all = options();
  const from = all.indexOf(chosen());
  choose(all[(from + by + all.length) % all.length]);
}

const moves = {
  ArrowDown: () => move(1),
  ArrowUp: () => move(-1),
  PageDown: () => choose(options()[Math.min(options().length - 1, options().indexOf(chosen()) + 8)]),
  PageUp: () => choose(options()[Math.max(0, options().indexOf(chosen()) - 8)]),
};

palette.addEventListener("keydown", (event) => {
  if (event.isComposing || event.keyCode === 229) return;
  if (moves[event.key]) {
    event.preventDefault();
    moves[event.key]();
  } else if (event.key === "Enter" && chosen()) {
    event.preventDefault();
    // Like a click: with Ctrl in a new tab.
    chosen().dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, ctrlKey: event.ctrlKey, metaKey: event.metaKey, view: window }));
  } else if (event.key === "Tab") {
    // The dialog has no other element to focus.
    event.preventDefault();
    move(event.shiftKey ? -1 : 1);
  } else if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    palette.close();
  }
});
palette.addEventListener("click", (event) => {
  if (event.target === palette) palette.close();
  else if (event.target.closest("a[href]")) setTimeout(() => palette.close());
});

// Commands of the current page, below the server's results.
function addCommands() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = keys.all().filter((each) => !["palette", "help"].includes(each.id) && each.group !== "Go to"
    && words.length && words.every((word) => each.label.toLowerCase().includes(word)) && each.when()).slice(0, 6);
  if (!found.length) return;
  document.getElementById("option-none")?.remove();
  const group = document.createElement("div");
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", "On this page");
  const title = document.createElement("p");
  title.className = "option-group";
  title.textContent = "On this page";
  group.append(title);
  for (const command of found) {
    const option = document.createElement("div");
    option.id = `option-command-${command.id}`;
    option.setAttribute("role", "option");
    option.setAttribute("aria-selected", "false");
    const label = document.createElement("span");
    label.textContent = command.label;
    const key = document.createElement("kbd");
    key.textContent = keys.keysOf(command);
    option.append(label, key);
    option.addEventListener("click", (event) => {
      palette.close();
      command.run(event);
    });
    group.append(option);
  }
  list.append(group);
}

list.addEventListener("htmx:afterSwap", () => {
  addCommands();
  choose(options()[0]);
  list.scrollTop = 0;
});
for (const link of document.querySelectorAll("[data-palette]")) {
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const menu = link.closest("details[open]");
    if (menu) menu.open = false;
    open();
  });
}
keys.add({ id: "palette", keys: "Ctrl+k", label: "Search pages and objects", run: open, whileTyping: true });
