// Browser storage of reviewers: unsent answers, drafts, and drafts set aside.

export const UNSENT = "gymweb.unsent.";
export const DRAFT = "gymweb.draft.";
export const ASIDE = "gymweb.aside.";
// The id of the user; empty on a page without reviews.
export const user = document.getElementById("review-lost")?.dataset.user ?? "";

// If the storage is disabled or full, keep it in memory while the page is open.
const held = new Map();
export const store = {
  get(key) {
    try { return JSON.parse(held.get(key) ?? localStorage.getItem(key)); } catch { return null; }
  },
  set(key, value) {
    held.set(key, JSON.stringify(value));
    try {
      localStorage.setItem(key, JSON.stringify(value));
      held.delete(key);
    } catch { /* it stays in `held` */ }
  },
  remove(key) {
    held.delete(key);
    try { localStorage.removeItem(key); } catch { /* nothing is there */ }
  },
  keys(prefix) {
    let stored = [];
    try { stored = Object.keys(localStorage); } catch { /* as above */ }
    return [...new Set([...stored, ...held.keys()])].filter((each) => each.startsWith(prefix)).sort();
  },
};
addEventListener("beforeunload", (event) => { if (held.size) event.preventDefault(); });
