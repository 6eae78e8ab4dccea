// Behaviour of all pages beyond htmx: theme, copy buttons, confirmations, relative times. Pages work without it.

function rememberTheme(name) {
  document.documentElement.dataset.theme = name;
  const secure = location.protocol === "https:" ? "; secure" : "";
  document.cookie = `theme=${name}; path=/; max-age=31536000; samesite=lax${secure}`;
  for (const button of document.querySelectorAll("[data-theme-switch] button")) {
    button.setAttribute("aria-pressed", String(button.value === name));
  }
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.matches("[data-theme-switch]") && event.submitter) {
    event.preventDefault();
    rememberTheme(event.submitter.value);
    return;
  }
  // In a form with several submit buttons, the pressed one has the confirmation text.
  const question = event.submitter?.dataset.confirm ?? form.dataset.confirm;
  if (question && !window.confirm(question)) {
    event.preventDefault();
    event.stopPropagation();
  }
}, true);

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const source = document.getElementById(button.dataset.copy);
  const said = button.textContent;
  try {
    await navigator.clipboard.writeText(source.textContent.trim());
    button.textContent = "Copied";
  } catch {
    // Clipboards need a secure origin: select the text so that one key press copies it.
    window.getSelection().selectAllChildren(source);
    button.textContent = "Press Ctrl+C";
  }
  setTimeout(() => { button.textContent = said; }, 1600);
});

// The CSRF token for POST requests of scripts.
export const csrf = () => JSON.parse(document.body.getAttribute("hx-headers"))["X-CSRFToken"];

// Menus: a click elsewhere closes them. keys.js closes the open one with Escape.
export const menus = (() => {
  const OPEN = ".nav-menu[open], .menu[open], .activity-menu[open]";
  const openers = new WeakMap();
  const find = () => document.querySelector(OPEN);

  // Open a menu by key: the element that had the focus gets it back later.
  function open(menu, field) {
    openers.set(menu, document.activeElement);
    menu.open = true;
    field.focus();
  }

  function close() {
    const menu = find();
    const opener = openers.get(menu) ?? menu.querySelector("summary");
    openers.delete(menu);
    menu.open = false;
    document.activeElement?.blur();
    if (opener !== document.body) opener.focus();
  }

  document.addEventListener("click", (event) => {
    for (const menu of document.querySelectorAll(OPEN)) if (!menu.contains(event.target)) menu.open = false;
  });
  document.addEventListener("toggle", (event) => {
    if (event.target.matches?.("details:not([open])")) openers.delete(event.target);
  }, true);
  return { find, open, close };
})();

function age(seconds) {
  for (const [length, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= length) return `${Math.floor(seconds / length)} ${unit} ago`;
  }
  return "just now";
}

setInterval(() => {
  for (const time of document.querySelectorAll("time[datetime]")) {
    if (time.textContent.endsWith("ago") || time.textContent === "just now") {
      time.textContent = age((Date.now() - Date.parse(time.dateTime)) / 1000);
    }
  }
}, 30000);

// Show failed htmx requests.
document.addEventListener("htmx:responseError", (event) => announce(explainError(event.detail.xhr)));
document.addEventListener("htmx:sendError", () => announce("The server is unreachable.", "unreachable"));
document.addEventListener("htmx:afterOnLoad", withdrawUnreachable);

// Return the reason, if the server sent text or a problem document.
function explainError(xhr) {
  const type = xhr.getResponseHeader("Content-Type") ?? "";
  if (type.startsWith("text/plain") && xhr.responseText) return xhr.responseText;
  if (type.startsWith("application/problem+json")) return JSON.parse(xhr.responseText).detail;
  return `Server error ${xhr.status}.`;
}

export function announce(text, id = "") {
  const line = document.createElement("p");
  line.id = id;
  line.className = "message error";
  line.textContent = text;
  document.getElementById("messages").replaceChildren(line);
  line.scrollIntoView({ block: "nearest" });
}

// Hide the message once the server responds again.
export function withdrawUnreachable() {
  document.getElementById("unreachable")?.remove();
}

// Show or hide the message about an ended session, also for background requests.
export function sayWhetherSignedOut(reply) {
  const isOut = reply.headers.has("HX-Redirect");
  const said = document.getElementById("signed-out");
  if (!isOut) said?.remove();
  if (!isOut || said) return;
  const line = document.createElement("p");
  line.id = "signed-out";
  line.className = "message warning";
  line.setAttribute("role", "alert");
  const link = document.createElement("a");
  link.href = `/sign-in/?next=${encodeURIComponent(location.pathname + location.search)}`;
  link.textContent = "Sign in and continue";
  line.append("You are signed out. This page no longer updates. ", link);
  document.getElementById("content").append(line);
}

// Deselect deleted rows in all tables of this tab.
for (const page of document.querySelectorAll("[data-unmark]")) {
  const deleted = page.dataset.unmark.split(" ");
  try {
    for (const key of Object.keys(sessionStorage).filter((each) => each.startsWith("gymweb.marks."))) {
      sessionStorage.setItem(key, JSON.stringify(JSON.parse(sessionStorage.getItem(key)).filter((each) => !deleted.includes(each))));
    }
  } catch {
    // The browser's storage is disabled, so nothing is selected.
  }
}

// A swap may remove the focused element. htmx finds it again by its id; if it no longer exists, the swapped element
// gets the focus, so that Tab continues there and not at the top of the page.
let focusedIn = null;
document.addEventListener("htmx:beforeSwap", (event) => {
  focusedIn = event.detail.target?.contains?.(document.activeElement) ? event.detail.target.id : null;
});
document.addEventListener("htmx:oobBeforeSwap", (event) => {
  if (event.detail.target.contains(document.activeElement)) focusedIn = event.detail.target.id;
});
document.addEventListener("htmx:afterSettle", () => {
  const place = focusedIn && document.getElementById(focusedIn);
  focusedIn = null;
  if (!place || document.activeElement !== document.body) return;
  if (!place.hasAttribute("tabindex")) place.tabIndex = -1;
  place.focus({ preventScroll: true });
});

// Forms: the slug follows the name until it is edited; fields that do not apply to a choice are hidden.

function slugOf(text) {
  const plain = text.normalize("NFKD").replace(/[\u0300-\u036f]/g, "").toLowerCase();
  return plain.replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 64);
}

document.addEventListener("input", (event) => {
  const slug = document.querySelector(`[data-slug-of="${event.target.id}"]`);
  if (slug && !slug.dataset.edited) slug.value = slugOf(event.target.value);
  if (event.target.dataset.slugOf) event.target.dataset.edited = "yes";
});

function showChosen(root) {
  for (const part of root.querySelectorAll("[data-shown-for]")) {
    const [name, value] = part.dataset.shownFor.split(":");
    const field = part.closest("form").elements[name];
    if (field) part.hidden = !value.split(" ").includes(field.value);
  }
  for (const part of root.querySelectorAll("[data-without-script]")) part.hidden = true;
}

// A choice proposes values of other fields, {"choice": {"its value": "proposed"}}. Typed values are kept.
function propose(choice) {
  for (const field of choice.form.querySelectorAll("[data-proposed]")) {
    const proposed = JSON.parse(field.dataset.proposed)[choice.name];
    if (!proposed || field.dataset.chosen) continue;
    if (field.value && field.matches("input") && !Object.values(proposed).includes(field.value)) continue;
    field.value = proposed[choice.value] ?? (field.matches("input") ? "" : field.value);
  }
}

document.addEventListener("change", (event) => {
  if (!event.target.form) return;
  if (event.target.dataset.proposed) event.target.dataset.chosen = "yes";
  propose(event.target);
  showChosen(event.target.form);
});
document.addEventListener("htmx:afterSettle", (event) => {
  showChosen(document);
  // Focus the first invalid field; otherwise the requested element, or the errors of the form.
  (event.target.querySelector("[aria-invalid='true']") ?? event.target.querySelector("[data-arrive]"))?.focus();
});
showChosen(document);
document.querySelector("[aria-invalid='true']")?.focus();
