// Uploads files larger than one part in parts, with progress, and resumes broken parts where the server stopped.
// Smaller files are posted by the form, as without this script. An unfinished upload is resumed if the same file is
// chosen again in the same browser.

const form = document.querySelector("[data-upload]");
const file = form.elements.file;
const drop = form.querySelector(".drop");
const progress = form.querySelector(".upload-progress");
const TRIES = 5;
const KEPT = `upload:${form.dataset.partsUrl}`;
let current = "";

function say(text, share) {
  progress.hidden = false;
  progress.querySelector("p").textContent = text;
  if (share === undefined) return;
  current = text;
  progress.querySelector("progress").value = share;
}

function megabytes(bytes) {
  return (bytes / 1048576).toFixed(1);
}

async function call(method, url, body, type) {
  const headers = { "X-CSRFToken": form.elements.csrfmiddlewaretoken.value, Accept: "application/json" };
  if (type) headers["Content-Type"] = type;
  const reply = await fetch(url, { method, headers, body, credentials: "same-origin" });
  const answer = await reply.json().catch(() => ({}));
  return { status: reply.status, answer };
}

async function patiently(action) {
  let attempt = 0;
  for (;;) {
    try {
      const result = await action();
      // 507: the disk is full, and retrying does not help.
      if (result.status < 500 || result.status === 507) return result;
    } catch (error) {
      if (navigator.onLine && attempt + 1 === TRIES) throw error;
    }
    if (navigator.onLine) {
      attempt += 1;
      if (attempt === TRIES) throw new Error("the server does not respond");
      say(`The server does not respond. Trying again. ${current}`);
      await new Promise((wake) => { setTimeout(wake, 500 * 2 ** attempt); });
    } else {
      say(`You are offline. The upload continues when you are online. ${current}`);
      await new Promise((wake) => { window.addEventListener("online", wake, { once: true }); });
    }
    say(current);
  }
}

function refuse({ status, answer }) {
  throw new Error(answer.detail || `server error ${status}`);
}

// If the browser's storage is disabled, uploads start again.
function keep(begun) {
  try {
    if (begun) localStorage.setItem(KEPT, JSON.stringify(begun));
    else localStorage.removeItem(KEPT);
  } catch { /* nothing is kept */ }
}

function unfinished() {
  try {
    return JSON.parse(localStorage.getItem(KEPT));
  } catch {
    return null;
  }
}

async function describe(chosen) {
  const first = await chosen.slice(0, Number(form.dataset.partBytes)).arrayBuffer();
  // Only available with HTTPS or on localhost.
  const sum = window.crypto.subtle ? new Uint8Array(await crypto.subtle.digest("SHA-256", first)) : [];
  const sha256 = Array.from(sum, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return { name: chosen.name, size: chosen.size, modified: chosen.lastModified, sha256 };
}

async function receiving(id) {
  const seen = await patiently(() => call("GET", `${form.dataset.uploadsUrl}${id}/`));
  return seen.status === 200 && seen.answer.state === "receiving" ? seen.answer : null;
}

// Return where to resume the unfinished upload of this file; null if there is none.
async function takeUp(chosen, its) {
  const begun = unfinished();
  if (!begun || Object.keys(its).some((name) => its[name] !== begun[name])) return null;
  const there = await receiving(begun.id);
  if (!there || there.received_bytes > chosen.size) return null;
  const offset = Math.max(0, there.received_bytes - Number(form.dataset.partBytes));
  const last = chosen.slice(offset, there.received_bytes);
  // The server compares the last part with its copy: another file with the same name and size cannot continue.
  const put = () => call("PUT", `${form.dataset.uploadsUrl}${begun.id}/parts/?offset=${offset}`, last, "application/octet-stream");
  if (last.size && (await patiently(put)).status !== 200) return null;
  return { id: begun.id, offset: there.received_bytes };
}

async function begin(chosen, its) {
  const wanted = JSON.stringify({ filename: chosen.name, draft: true });
  const begun = await call("POST", form.dataset.partsUrl, wanted, "application/json");
  if (begun.status !== 201) refuse(begun);
  keep({ ...its, id: begun.answer.id });
  return { id: begun.answer.id, offset: 0 };
}

async function sendParts(chosen) {
  const size = Number(form.dataset.partBytes);
  const its = await describe(chosen);
  const begun = await takeUp(chosen, its) || await begin(chosen, its);
  const upload = `${form.dataset.uploadsUrl}${begun.id}/`;
  let { offset } = begun;
  while (offset < chosen.size) {
    say(`${megabytes(offset)} of ${megabytes(chosen.size)} MB sent`, offset / chosen.size);
    const part = chosen.slice(offset, offset + size);
    const put = () => call("PUT", `${upload}parts/?offset=${offset}`, part, "application/octet-stream");
    const sent = await patiently(put);
    if (sent.status === 409) {
      const seen = await patiently(() => call("GET", upload));
      if (seen.status !== 200 || seen.answer.state !== "receiving") refuse(sent);
      offset = seen.answer.received_bytes;
    } else if (sent.status === 200) {
      offset = sent.answer.received_bytes;
    } else {
      refuse(sent);
    }
  }
  say("All sent.", 1);
  const finished = await patiently(() => call("POST", `${upload}finish/`));
  // 409: the upload was finished before, but its response was lost.
  if (![202, 409].includes(finished.status)) refuse(finished);
  keep(null);
  window.location.assign(form.dataset.resultUrl.replace("/0/", `/${begun.id}/`));
}

async function offer() {
  const begun = unfinished();
  if (!begun) return;
  const there = await receiving(begun.id);
  if (!there) {
    keep(null);
    return;
  }
  const sent = `${megabytes(there.received_bytes)} of ${megabytes(begun.size)} MB`;
  say(`An upload of ${begun.name} stopped at ${sent}. Choose the same file to continue it, or another file to start over.`, there.received_bytes / begun.size);
}

form.addEventListener("submit", async (event) => {
  const chosen = file.files[0];
  const pasted = form.elements.rows.value.trim();
  if (!chosen || pasted || chosen.size <= Number(form.dataset.partBytes)) return;
  event.preventDefault();
  const button = form.querySelector("button[type=submit]");
  button.disabled = true;
  const warn = (leaving) => leaving.preventDefault();
  window.addEventListener("beforeunload", warn);
  try {
    await sendParts(chosen);
  } catch (error) {
    say(`The upload stopped: ${error.message}. Choose “${button.textContent.trim()}” to continue.`);
    button.disabled = false;
  } finally {
    window.removeEventListener("beforeunload", warn);
  }
});

for (const [name, over] of [["dragover", true], ["dragleave", false], ["drop", false]]) {
  drop.addEventListener(name, (event) => {
    event.preventDefault();
    drop.classList.toggle("over", over);
    if (name === "drop" && event.dataTransfer.files.length) file.files = event.dataTransfer.files;
  });
}

offer().catch(() => {});
