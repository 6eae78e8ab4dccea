// Files larger than one part go to the API in parts, with progress; a broken part is sent again where the server says.
// Smaller files, and browsers without this script, post the form as it is.

const form = document.querySelector("[data-upload]");
const file = form.elements.file;
const drop = form.querySelector(".drop");
const progress = form.querySelector(".upload-progress");
const TRIES = 5;

function say(text, share) {
  progress.hidden = false;
  progress.querySelector("p").textContent = text;
  if (share !== undefined) progress.querySelector("progress").value = share;
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
  for (let attempt = 1; ; attempt += 1) {
    try {
      const result = await action();
      if (result.status < 500) return result;
    } catch (error) {
      if (attempt === TRIES) throw error;
    }
    if (attempt === TRIES) throw new Error("the server does not answer");
    await new Promise((wake) => { setTimeout(wake, 500 * 2 ** attempt); });
  }
}

function refuse({ status, answer }) {
  throw new Error(answer.detail || `the server answered ${status}`);
}

async function sendParts(chosen) {
  const size = Number(form.dataset.partBytes);
  const wanted = JSON.stringify({ filename: chosen.name, draft: true });
  const begun = await call("POST", form.dataset.partsUrl, wanted, "application/json");
  if (begun.status !== 201) refuse(begun);
  const upload = `${form.dataset.uploadsUrl}${begun.answer.id}/`;
  let offset = 0;
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
  // 409: an answer was lost, and it was finished before.
  if (![202, 409].includes(finished.status)) refuse(finished);
  window.location.assign(form.dataset.resultUrl.replace("/0/", `/${begun.answer.id}/`));
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
    say(`The upload stopped: ${error.message}. Choose Upload to send it again.`);
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
