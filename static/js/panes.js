// Resizable panes of the trace page, by mouse or with arrow keys on the divider. Widths are stored in this browser;
// panes that were never resized have the default width.

import { onReader } from "./moving.js";

function addDividers(reader) {
  const KEPT = "gymweb.panes";
  const STEP = 16;
  const TRANSCRIPT = 320;
  const PANES = {
    outline: { label: "Width of the outline", least: 140, most: 560, towards: 1 },
    inspector: { label: "Width of the inspector", least: 190, most: 640, towards: -1 },
  };

  function read() {
    try {
      return JSON.parse(localStorage.getItem(KEPT)) || {};
    } catch {
      return {};
    }
  }

  const kept = read();

  function keep() {
    try {
      localStorage.setItem(KEPT, JSON.stringify(kept));
    } catch {
      // The browser's storage is disabled.
    }
  }

  for (const [name, { label, least, most, towards }] of Object.entries(PANES)) {
    const pane = document.getElementById(name);
    if (!pane) continue;
    const line = document.createElement("div");
    line.className = `divider for-${name}`;
    line.tabIndex = 0;
    for (const [key, value] of Object.entries({ role: "separator", "aria-orientation": "vertical", "aria-controls": name, "aria-label": label, "aria-valuemin": least })) line.setAttribute(key, value);
    line.title = "Drag or use arrow keys; double-click to reset";
    pane.after(line);

    const width = () => Math.round(pane.getBoundingClientRect().width);
    const widest = () => {
      const free = document.getElementById("rollout-trace").getBoundingClientRect().width - TRANSCRIPT;
      return Math.max(least, Math.min(most, Math.round(width() + free)));
    };
    const tell = () => {
      line.setAttribute("aria-valuenow", width());
      line.setAttribute("aria-valuemax", widest());
      line.setAttribute("aria-valuetext", `${width()} pixels`);
    };

    function draw(wanted) {
      if (wanted === null) {
        delete kept[name];
        reader.style.removeProperty(`--${name}`);
      } else {
        kept[name] = Math.round(Math.max(least, Math.min(widest(), wanted)));
        reader.style.setProperty(`--${name}`, `${kept[name]}px`);
      }
      tell();
      keep();
    }

    line.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      event.preventDefault();
      line.focus({ preventScroll: true });
      line.setPointerCapture(event.pointerId);
      const [from, began] = [event.clientX, width()];
      line.classList.add("drawn");
      const move = (moved) => draw(began + (moved.clientX - from) * towards);
      line.addEventListener("pointermove", move);
      line.addEventListener("lostpointercapture", () => {
        line.removeEventListener("pointermove", move);
        line.classList.remove("drawn");
      }, { once: true });
    });
    line.addEventListener("dblclick", () => draw(null));
    line.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const by = { ArrowRight: STEP, ArrowLeft: -STEP }[event.key];
      const to = { Home: least, End: widest() }[event.key];
      if (by !== undefined) draw(width() + by * towards);
      else if (to !== undefined) draw(to);
      else if (event.key === "Delete" || event.key === "Backspace") draw(null);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    if (Number.isFinite(kept[name])) reader.style.setProperty(`--${name}`, `${kept[name]}px`);
    new ResizeObserver(tell).observe(pane);
  }
}

onReader(addDividers);
