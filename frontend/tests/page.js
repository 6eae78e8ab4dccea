// Opens a page of its own for modules of static/js: a document in jsdom, and modules that no other page has.

import { readFile } from "node:fs/promises";
import { SourceTextModule } from "node:vm";

import { JSDOM } from "jsdom";

const SCRIPTS = new URL("../../static/js/", import.meta.url);
const HTMX = new URL("../node_modules/htmx.org/dist/htmx.min.js", import.meta.url);
const DEADLINE_MS = 60_000;

/**
 * Open a page with this content and these attributes of its body.
 *
 * `storage` is the browser's storage as an earlier page left it. `load(name)` of the page runs a module of static/js and
 * returns its exports.
 */
export function openPage(content, { attributes = "", url = "http://127.0.0.1/", storage = {} } = {}) {
  const dom = new JSDOM(`<!doctype html><body hx-headers='{"X-CSRFToken": "a-token"}' ${attributes}><div id="messages"></div><main id="content">${content}</main></body>`, { url, runScripts: "outside-only", pretendToBeVisual: true });
  const { window } = dom;
  for (const [key, value] of Object.entries(storage)) window.localStorage.setItem(key, value);
  // What jsdom has not: a layout, requests, and names in selectors.
  window.Element.prototype.scrollIntoView = () => {};
  window.ResizeObserver = class { observe() {} };
  window.scrollBy = () => {};
  window.CSS = { escape: (name) => name.replace(/[^\w-]/g, (sign) => `\\${sign}`) };
  window.fetch = (address, options) => fetch(new URL(address, url), options);
  const modules = new Map();

  function read(address) {
    if (!modules.has(address.href)) modules.set(address.href, readModule(address));
    return modules.get(address.href);
  }

  async function readModule(address) {
    return new SourceTextModule(await readFile(address, "utf8"), { identifier: address.href, context: dom.getInternalVMContext() });
  }

  async function load(name) {
    const module = await read(new URL(name, SCRIPTS));
    if (module.status === "unlinked") await module.link((specifier, from) => read(new URL(specifier, from.identifier)));
    await module.evaluate();
    return module.namespace;
  }

  return {
    window,
    document: window.document,
    load,
    async addHtmx() {
      // jsdom wants the argument that htmx leaves out.
      const { evaluate } = window.XPathExpression.prototype;
      window.XPathExpression.prototype.evaluate = function (node, type = 0) { return evaluate.call(this, node, type, null); };
      window.eval(await readFile(HTMX, "utf8"));
    },
    stored: () => Object.fromEntries(Object.entries(window.localStorage)),
    find: (selector) => window.document.querySelector(selector),
    close: () => window.close(),
  };
}

/** Wait until `condition` gives something true, and return it. */
export async function until(condition, what) {
  const ends = Date.now() + DEADLINE_MS;
  while (Date.now() < ends) {
    const found = await condition();
    if (found) return found;
    await new Promise((wake) => { setTimeout(wake, 5); });
  }
  throw new Error(`${what} did not happen`);
}
