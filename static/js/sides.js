// How reviewed rollouts are shown: replies and task as Markdown or as text with differences, the task open or closed.

import { show } from "./forms.js";
import * as keys from "./keys.js";

const group = "Reading";
const TEXTS = ".step.reply [data-text], .prompt-items .item-text";
const MARKDOWN = "work.markdown";
const TASK = "work.task";

export const memory = {
  get(name) { try { return localStorage.getItem(name) ?? ""; } catch { return ""; } },
  set(name, value) { try { localStorage.setItem(name, value); } catch { /* it holds for this page */ } },
};

async function render(text, places) {
  if (text.dataset.asked) return;
  text.dataset.asked = "1";
  const view = await show(text.textContent, "markdown", places, "").catch(() => null);
  if (!view || !text.isConnected) return;
  view.classList.add("in-place-of-text");
  if (text.hasAttribute("tabindex")) view.tabIndex = 0;
  if (text.matches(".last-word")) view.classList.add("last-word");
  const isFocused = text === document.activeElement;
  text.classList.add("has-markdown");
  text.after(view);
  if (isFocused) view.focus();
}

// Add the switch between Markdown and text to `box`.
export function addMarkdownSwitch(shown, box) {
  if (!shown.querySelector(TEXTS)) return;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "switch";
  const mark = document.createElement("kbd");
  mark.setAttribute("aria-hidden", "true");
  mark.textContent = "m";
  button.append(mark, "Markdown");
  button.title = "Off: text with the differences marked";
  let isOn = memory.get(MARKDOWN) !== "no";
  const draw = () => {
    shown.classList.toggle("as-text", !isOn);
    button.setAttribute("aria-pressed", String(isOn));
    if (isOn) for (const text of shown.querySelectorAll(TEXTS)) render(text, shown.dataset);
  };
  const flip = () => {
    isOn = !isOn;
    memory.set(MARKDOWN, isOn ? "yes" : "no");
    draw();
  };
  button.addEventListener("click", flip);
  document.addEventListener("htmx:afterSettle", draw);
  box.append(button);
  keys.add({ id: "reading.markdown", keys: "m", label: "Markdown, or text with differences", group, run: flip });
  draw();
}

const task = document.getElementById("review-task");
if (task) {
  if (memory.get(TASK)) task.open = memory.get(TASK) === "open";
  task.addEventListener("toggle", () => memory.set(TASK, task.open ? "open" : "closed"));
}
