// The registry of keyboard shortcuts. Pages add commands; `?` lists them and lets users choose other keys.
// docs/use/keyboard.md explains how to add one.

const WAITS_MS = 1200;
const commands = new Map();
export const chosen = JSON.parse(document.body?.dataset.keymap || "{}");
let typed = [];
let timer = null;

// { id, keys, label, group, run, when }: `keys` is one key or a sequence ("g g"), as in `event.key`, with "Ctrl+" or
// "Alt+" before it; Ctrl is Command on a Mac. `when` returns whether the command applies now; `whileTyping` enables it
// in fields; `evenOff` keeps it active when shortcuts are switched off. `signal` removes the command when it aborts.
export function add(command) {
  if (commands.has(command.id)) throw new Error(`the command ${command.id} is there already`);
  command.signal?.addEventListener("abort", () => commands.delete(command.id));
  commands.set(command.id, { group: "Everywhere", when: () => true, ...command });
}

// Commands that a key may run in the current state of the page.
const findActive = () => all().filter((each) => keysOf(each) && (!isOff() || each.evenOff) && each.when());

export const keysOf = (command) => chosen[command.id] ?? command.keys;
export const isOff = () => chosen.off === "1";
export const all = () => [...commands.values()];

function isTyping(target) {
  return target instanceof Element
    && (target.isContentEditable || target.matches("input:not([type=checkbox], [type=radio], [type=button], [type=submit]), textarea, select"));
}

export function nameOf(event) {
  const held = (event.ctrlKey || event.metaKey ? "Ctrl+" : "") + (event.altKey ? "Alt+" : "");
  return held + (event.key === " " ? "Space" : held ? event.key.toLowerCase() : event.key);
}

function onKey(event) {
  if (event.defaultPrevented || event.isComposing || event.keyCode === 229) return undefined;
  if (["Shift", "Control", "Alt", "Meta", "AltGraph"].includes(event.key)) return undefined;
  const name = nameOf(event);
  const isOpen = document.querySelector("dialog[open]");
  if (isTyping(event.target) || isOpen) {
    const always = isOpen || name.length === 1 ? null : findActive().find((each) => each.whileTyping && keysOf(each) === name);
    if (always) {
      event.preventDefault();
      return always.run(event);
    }
    // In fields, keys are text. Escape leaves the field.
    if (event.key === "Escape" && !isOpen) event.target.blur();
    return forget();
  }
  const tried = [...typed, name].join(" ");
  const usable = findActive();
  // Custom keys may be bound twice: commands of the page come last and win.
  const hit = usable.findLast((each) => keysOf(each) === tried);
  if (hit) {
    event.preventDefault();
    forget();
    hit.run(event);
  } else if (usable.some((each) => keysOf(each).startsWith(`${tried} `))) {
    event.preventDefault();
    typed.push(name);
    clearTimeout(timer);
    timer = setTimeout(forget, WAITS_MS);
  } else if (typed.length) {
    forget();
    onKey(event);
  }
  return undefined;
}

function forget() {
  typed = [];
  clearTimeout(timer);
}

document.addEventListener("keydown", onKey);
