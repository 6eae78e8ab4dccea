// The one registry of keys. A page adds what it can do; `?` shows all of it and lets each person choose other keys.
// docs/keyboard.md says how to add one.

window.gymweb = window.gymweb || {};

gymweb.keys = (() => {
  const WAITS_MS = 1200;
  const commands = new Map();
  const chosen = JSON.parse(document.body?.dataset.keymap || "{}");
  let typed = [];
  let timer = null;

  // { id, keys, label, group, run, when }: `keys` is one key or several after each other ("g g"), as `event.key` says
  // them, with "Ctrl+" or "Alt+" before it; Ctrl is Command on a Mac. `when` may say that it has nothing to do here;
  // `whileTyping` lets a key that types nothing work in a field, too; `evenOff` works with all keys switched off.
  function add(command) {
    if (commands.has(command.id)) throw new Error(`the command ${command.id} is there already`);
    commands.set(command.id, { group: "Everywhere", when: () => true, ...command });
  }

  // Commands that a key may run in the current state of the page.
  const findActive = () => all().filter((each) => keysOf(each) && (!isOff() || each.evenOff) && each.when());

  const keysOf = (command) => chosen[command.id] ?? command.keys;
  const isOff = () => chosen.off === "1";
  const all = () => [...commands.values()];

  function isTyping(target) {
    return target instanceof Element
      && (target.isContentEditable || target.matches("input:not([type=checkbox], [type=radio], [type=button], [type=submit]), textarea, select"));
  }

  function nameOf(event) {
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
      // What is typed is text. Escape leaves the field.
      if (event.key === "Escape" && !isOpen) event.target.blur();
      return forget();
    }
    const tried = [...typed, name].join(" ");
    const usable = findActive();
    // A chosen key may be bound twice: commands of the page come last and win.
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
  return { add, all, keysOf, isOff, nameOf, chosen };
})();

gymweb.page = {
  // The token that a POST of a script needs.
  csrf: () => JSON.parse(document.body.getAttribute("hx-headers"))["X-CSRFToken"],
};

// The overlay, made from the registry.
{
  const { keys } = gymweb;
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
    const title = element("h2", "", "Keys");
    title.id = "keys-title";
    const close = element("button", "button small", "Close");
    close.type = "button";
    close.addEventListener("click", () => overlay.close());
    head.append(title, close);
    const line = element("p", "small muted", said || "Keys do nothing while you type. Choose one to change it; Backspace takes it away.");
    line.setAttribute("role", "status");
    const groups = element("div", "key-groups");
    for (const name of new Set(keys.all().map((each) => each.group))) groups.append(drawGroup(name));
    const foot = element("p", "actions");
    const off = element("button", "button small", keys.isOff() ? "Switch all keys on" : "Switch all keys off");
    off.type = "button";
    off.addEventListener("click", () => save({ ...keys.chosen, off: keys.isOff() ? "" : "1" }));
    const reset = element("button", "button small", "As they were");
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
        draw(`Press the key for “${command.label}”. Escape: leave it.`);
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
    if (other) return draw(`${name} is taken by “${other.label}”.`);
    return save({ ...keys.chosen, [command]: name });
  }

  async function save(chosen) {
    let said = "Saved.";
    try {
      const reply = await fetch("/account/keyboard/", {
        method: "POST",
        headers: { "X-CSRFToken": gymweb.page.csrf(), "Content-Type": "application/json" },
        body: JSON.stringify(chosen),
      });
      if (!reply.ok) throw new Error(reply.status);
      for (const id of Object.keys(keys.chosen)) delete keys.chosen[id];
      Object.assign(keys.chosen, chosen);
    } catch {
      said = "That could not be saved: the server did not take it.";
    }
    draw(said);
  }

  keys.add({ id: "help", keys: "?", label: "These keys", run: show, evenOff: true });
  keys.add({ id: "menu.close", keys: "Escape", label: "Close the open menu", run: gymweb.menus.close, when: () => gymweb.menus.find() !== null, whileTyping: true, evenOff: true });
  keys.add({
    id: "find",
    keys: "/",
    label: "Filter or find",
    run: () => [...document.querySelectorAll("main input[type=search], main [data-filter]")].find((each) => each.offsetParent)?.focus(),
    when: () => Boolean(document.querySelector("main input[type=search], main [data-filter]")),
  });
  keys.add({
    id: "theme",
    keys: "t",
    label: "Light, dark or system theme",
    run: () => {
      const buttons = [...document.querySelectorAll(".side [data-theme-switch] button")];
      const on = buttons.findIndex((each) => each.getAttribute("aria-pressed") === "true");
      buttons[(on + 1) % buttons.length]?.click();
    },
  });
  for (const [key, label, path] of [
    ["g h", "Home", "/"],
    ["g c", "Collections", "/collections/"],
    ["g o", "Rollouts", "/rollouts/"],
    ["g t", "Datasets and tasks", "/datasets/"],
    ["g p", "Pairs", "/pair-sets/"],
    ["g q", "Queues", "/queues/"],
    ["g w", "Workers", "/workers/"],
    ["g s", "Settings", "/settings/"],
  ]) keys.add({ id: `go.${path.replaceAll("/", "") || "home"}`, keys: key, label, group: "Go to", run: () => location.assign(path) });
}
