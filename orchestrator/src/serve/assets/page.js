// The script of the pages of `studio serve`. The server makes all markup; this file sends forms, keeps
// the page current after events, and handles the keys of a review.
"use strict";

const main = document.getElementById("main");
const toasts = document.getElementById("toasts");
const busy = new Set();
/** What was done on this page: texts and operations. */
const receipts = [];

// Requests.

async function post(path, body) {
  const response = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "application/json" },
    body: JSON.stringify(body),
  });
  const answer = await response.json();
  return { ok: response.ok, answer };
}

function failureText(answer) {
  const error = answer.error;
  if (error) {
    return [error.what, error.why, ...(error.try || [])].filter(Boolean).join("\n");
  }
  const refused = (answer.refused || [])[0];
  return refused ? refused.why : "the command failed";
}

async function readPage(address) {
  const response = await fetch(address, { headers: { Accept: "text/html" } });
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  return { ok: response.ok, page };
}

// Toasts.

function toast(text, isFailure, operation) {
  const item = document.createElement("div");
  item.className = isFailure ? "toast bad" : "toast";
  const words = document.createElement("span");
  words.textContent = text;
  item.append(words);
  if (operation) {
    item.append(button("Undo", async () => {
      item.remove();
      const { ok, answer } = await post("/api/v1/undo", { operation });
      toast(ok ? `${operation} is undone` : failureText(answer), !ok);
      refresh();
    }));
  }
  item.append(button("Close", () => item.remove()));
  toasts.append(item);
  if (!isFailure) {
    setTimeout(() => item.matches(":hover, :focus-within") || item.remove(), 15000);
  }
}

function button(label, onClick) {
  const element = document.createElement("button");
  element.type = "button";
  element.textContent = label;
  element.addEventListener("click", onClick);
  return element;
}

function ask(text) {
  const dialog = document.getElementById("question");
  document.getElementById("question-text").textContent = text;
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.onclick = (event) => event.target.value && dialog.close(event.target.value);
    dialog.onclose = () => resolve(dialog.returnValue === "yes");
    dialog.returnValue = "";
  });
}

// Forms: each sends its fields as JSON.

function fieldsOf(form) {
  const fields = {};
  for (const field of form.elements) {
    if (!field.name) continue;
    const text = field.value;
    if (field.type === "checkbox") fields[field.name] = field.checked;
    else if (field.dataset.type === "json") fields[field.name] = JSON.parse(text);
    else if (field.dataset.split) fields[field.name] = parts(text, field.dataset.split);
    else if (text === "") continue;
    else if (field.type === "number" || field.dataset.type === "number") fields[field.name] = Number(text);
    else fields[field.name] = text;
  }
  return fields;
}

function parts(text, separator) {
  const pieces = separator === "---" ? text.split(/^---\s*$/m) : text.split(separator === "\\n" ? "\n" : separator);
  return pieces.map((piece) => piece.trim()).filter(Boolean);
}

async function send(form, body) {
  const path = form.getAttribute("action");
  if (busy.has(path)) return;
  busy.add(path);
  const buttons = form.querySelectorAll("button");
  buttons.forEach((it) => it.setAttribute("aria-disabled", "true"));
  const waiting = form.dataset.busy ? document.createElement("p") : null;
  if (waiting) {
    waiting.className = "waiting";
    waiting.setAttribute("role", "status");
    waiting.textContent = form.dataset.busy;
    form.append(waiting);
  }
  try {
    const { ok, answer } = await post(path, body);
    const confirm = !ok && (answer.refused || [])[0]?.confirm;
    if (confirm && path.endsWith("/accept")) {
      if (await ask(`${answer.refused[0].why}\n\nLand it?`)) {
        busy.delete(path);
        const flag = confirm.flag.replace(/^--/, "").replaceAll("-", "_");
        return await send(form, { ...body, [flag]: true, match_tree: confirm.tree });
      }
      return;
    }
    if (!ok) return toast(failureText(answer), true);
    const operation = answer.operation && !answer.undone ? answer.operation : null;
    receipts.push([doneText(form, answer), operation]);
    toast(doneText(form, answer), false, operation);
    if (form.hasAttribute("data-reset")) form.reset();
    if (form.dataset.next) {
      sessionStorage.setItem("toasts", JSON.stringify(receipts));
      location.assign(form.dataset.next);
    }
    else if (form.dataset.then === "next") leaveReview(answer);
    else refresh();
  } catch (error) {
    toast("the server does not answer", true);
  } finally {
    busy.delete(path);
    waiting?.remove();
    buttons.forEach((it) => it.removeAttribute("aria-disabled"));
  }
}

function doneText(form, answer) {
  const landed = (answer.landed || [])[0];
  if (answer.sent === false) return "nothing to send";
  if (!landed || !landed.commit) return form.dataset.done || "done";
  const checks = (landed.checks || []).map((it) => `${it.command} ${it.ok ? "passed" : "failed"}`);
  const rest = landed.remaining_hunks ? `${landed.remaining_hunks} hunks remain` : null;
  return [`${landed.id} landed on ${landed.target} as ${landed.commit.slice(0, 12)}`, ...checks, rest]
    .filter(Boolean).join("\n");
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  event.preventDefault();
  if (form.id === "filter") return;
  if (form.dataset.confirm && !(await ask(form.dataset.confirm))) return;
  send(form, fieldsOf(form));
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.form) {
    event.preventDefault();
    event.target.form.requestSubmit();
  }
});

// The filter of the board.

let filterTimer;
document.addEventListener("input", (event) => {
  if (event.target.id !== "q") return;
  clearTimeout(filterTimer);
  filterTimer = setTimeout(() => {
    const words = event.target.value;
    history.replaceState(null, "", words ? `/?q=${encodeURIComponent(words)}` : "/");
    refresh();
  }, 150);
});

// Live pages: after an event, the page is read again, and what differs is replaced.

let isReading = false;
let isStale = false;
// A page that was read while a decision was being recorded may lack it.
let decisionsMade = 0;
let decisionsRecorded = 0;

async function refresh() {
  if (isReading) {
    isStale = true;
    return;
  }
  isReading = true;
  const recordedBefore = decisionsRecorded;
  try {
    const { ok, page } = await readPage(location.href);
    const fresh = page.getElementById("main");
    if (ok && fresh) {
      morph(main, fresh);
      planTextChanged();
      if (recordedBefore === decisionsMade) reviewChanged(fresh);
      else isStale = true;
    }
  } catch (error) {
    // The stream says when the server is back.
  }
  isReading = false;
  if (isStale) {
    isStale = false;
    refresh();
  }
}

function morph(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || (old.id || "") !== (fresh.id || "")) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    old.data = fresh.data;
    return;
  }
  if (old.hasAttribute("data-keep")) return;
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== "open" && name !== "aria-disabled") old.removeAttribute(name);
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (old.getAttribute(name) !== value && name !== "data-stream") old.setAttribute(name, value);
  }
  morphChildren(old, fresh);
}

function morphChildren(old, fresh) {
  const known = new Map();
  for (const child of old.children) if (child.id) known.set(child.id, child);
  const wantedIds = new Set([...fresh.children].map((child) => child.id).filter(Boolean));
  let at = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    while (at?.id && !wantedIds.has(at.id)) at = drop(at);
    const same = child.id && known.get(child.id);
    if (same) {
      known.delete(child.id);
      // A moved element loses the focus, so others move around it.
      if (same !== at) {
        while (at && at !== same && !(at.id && known.has(at.id))) at = drop(at);
        if (same !== at) old.insertBefore(same, at);
      }
      at = same.nextSibling;
      morph(same, child);
    } else if (at && !at.id && !child.id && at.nodeName === child.nodeName) {
      const next = at.nextSibling;
      morph(at, child);
      at = next;
    } else {
      old.insertBefore(child, at);
    }
  }
  while (at) at = drop(at);
}

function drop(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

function connect() {
  const address = main?.dataset.stream;
  if (!address) return;
  const status = document.getElementById("connection");
  let last = null;
  let timer = null;
  const open = () => {
    const after = last && address.includes("?") ? address.replace(/after=[^&]*/, `after=${last}`) : address;
    const source = new EventSource(after);
    let isFirst = true;
    const changed = (event) => {
      last = event.lastEventId || last;
      // A review is expensive to read: only its own session matters.
      const sessions = review && JSON.parse(event.data).sessions;
      if (sessions && !sessions.includes(review.dataset.id)) return;
      clearTimeout(timer);
      timer = setTimeout(refresh, 100);
    };
    source.addEventListener("open", () => {
      if (!isFirst || status.textContent) refresh();
      isFirst = false;
      status.textContent = "";
    });
    for (const name of ["sessions", "everything", "journal", "plan", "queue"]) source.addEventListener(name, changed);
    source.addEventListener("start", (event) => (last = event.lastEventId));
    source.onerror = () => {
      status.textContent = "The server does not answer. Start studio serve and open its link.";
      // A browser gives up after an answer that is an error.
      if (source.readyState === EventSource.CLOSED) setTimeout(open, 2000);
    };
  };
  open();
  // Ages.
  setInterval(() => document.hidden || refresh(), 60000);
}

// The text of a plan: an edit continues from the text that it began with.

function planTextChanged() {
  const form = document.getElementById("plan-edit");
  const changed = document.getElementById("plan-changed");
  if (form && changed) changed.hidden = form.elements.digest.value === changed.dataset.digest;
}

document.addEventListener("click", (event) => {
  if (event.target.id !== "plan-replace") return;
  const form = document.getElementById("plan-edit");
  form.elements.digest.value = document.getElementById("plan-changed").dataset.digest;
  form.requestSubmit();
});

// Reviews.

const review = document.getElementById("review");
let current = null;
let pointed = null;

function hunks() {
  return [...review.querySelectorAll(".hunk")];
}

function select(hunk, doScroll = true) {
  current?.removeAttribute("aria-current");
  current = hunk;
  if (!hunk) return;
  hunk.setAttribute("aria-current", "true");
  hunk.focus({ preventScroll: true });
  if (doScroll) hunk.scrollIntoView({ block: "nearest" });
}

function step(by) {
  const all = hunks();
  const at = current ? all.indexOf(current) + by : by > 0 ? 0 : all.length - 1;
  if (all[at]) {
    select(all[at]);
    if (current.getBoundingClientRect().top < 0 || current.offsetHeight > innerHeight) {
      current.scrollIntoView({ block: "start" });
    }
  }
}

// Only the lines in view are in the page; a hunk that was never in view has its height.
const LINE_HEIGHT = 20;
const wanted = new Set();
let loadTimer = null;
const observer = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) if (entry.isIntersecting) want(entry.target);
  },
  { rootMargin: "1000px" },
);

function want(hunk) {
  if (hunk.hasAttribute("data-loaded") || hunk.hasAttribute("data-folded")) return;
  wanted.add(hunk);
  loadTimer ??= setTimeout(load, 30);
}

async function load() {
  loadTimer = null;
  const batch = [...wanted].slice(0, 40);
  batch.forEach((hunk) => wanted.delete(hunk));
  if (!batch.length) return;
  batch.forEach((hunk) => hunk.setAttribute("data-loaded", ""));
  await readHunks(batch.map((hunk) => hunk.dataset.hunk));
  if (wanted.size) loadTimer ??= setTimeout(load, 0);
}

async function readHunks(ids) {
  const query = new URLSearchParams(review.dataset.query);
  query.set("head", review.dataset.head);
  query.set("ids", ids.join(","));
  const { ok, page } = await readPage(`/sessions/${review.dataset.id}/review/hunks?${query}`);
  if (!ok) return workChanged();
  for (const part of page.querySelectorAll("[data-for]")) {
    const hunk = document.getElementById(`hunk-${part.dataset.for}`);
    const lines = hunk.querySelector(".lines");
    if (!lines.querySelector("table")) lines.replaceChildren(...part.querySelector(".lines").childNodes);
    lines.style.minHeight = "";
    hunk.querySelector(".comments").replaceChildren(...part.querySelector(".comments").childNodes);
  }
  document.getElementById("counts").replaceWith(page.getElementById("counts"));
}

// One after the other, so that keys that follow each other fast are recorded in their order.
let recorded = Promise.resolve();

function record(change) {
  recorded = recorded.then(async () => {
    const body = { head: review.dataset.head, ...change };
    try {
      const { ok, answer } = await post(`/api/v1/sessions/${review.dataset.id}/review`, body);
      if (!ok) toast(failureText(answer), true);
      return ok;
    } catch {
      // Later keys are recorded when it answers again.
      toast("the server does not answer", true);
      return false;
    }
  });
  return recorded;
}

async function decide(hunk, decision, doStep) {
  const before = hunk.dataset.decision;
  const value = before === decision ? "undecided" : decision;
  decisionsMade += 1;
  show(hunk, value);
  if (doStep && value !== "undecided") step(1);
  if (!(await record({ decisions: [{ hunk: hunk.dataset.hunk, decision: value }] }))) show(hunk, before);
  decisionsRecorded += 1;
  await readHunks([hunk.dataset.hunk]);
}

function show(hunk, decision) {
  hunk.dataset.decision = decision;
  hunk.querySelector(".decision").textContent = decision;
  hunk.querySelector("[data-key=a]").setAttribute("aria-pressed", decision === "accepted");
  hunk.querySelector("[data-key=r]").setAttribute("aria-pressed", decision === "returned");
}

function fold(hunk) {
  const isFolded = hunk.toggleAttribute("data-folded");
  hunk.querySelector("[data-key=f]").setAttribute("aria-expanded", !isFolded);
  if (!isFolded) want(hunk);
}

function comment(hunk, line) {
  if (hunk.querySelector("form.new-comment")) return;
  const form = document.createElement("form");
  form.className = "new-comment";
  const label = document.createElement("label");
  const row = line && hunk.contains(line) ? line : null;
  label.textContent = row ? `Comment on line ${rowNumber(row)}` : "Comment on the hunk";
  const text = document.createElement("textarea");
  text.rows = 3;
  text.required = true;
  label.append(text);
  const save = document.createElement("button");
  save.textContent = "Comment";
  const close = () => {
    form.remove();
    select(hunk, false);
  };
  form.append(label, save, button("Cancel", close));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    event.stopPropagation();
    const body = { hunk: hunk.dataset.hunk, text: text.value };
    if (row) body.line = Number(row.dataset.line);
    if (!(await record({ comment: body }))) return;
    close();
    await readHunks([hunk.dataset.hunk]);
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    event.stopPropagation();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  hunk.querySelector(".comments").after(form);
  text.focus();
}

function rowNumber(row) {
  const numbers = [...row.querySelectorAll(".number")].map((cell) => cell.textContent).filter(Boolean);
  return numbers.at(-1) || "";
}

function leaveReview(answer) {
  if (answer.sent === false) return;
  // The next page shows the receipts.
  sessionStorage.setItem("toasts", JSON.stringify(receipts));
  const landed = (answer.landed || [])[0];
  if (landed?.remaining_hunks) location.reload();
  else location.assign(review.dataset.next || `/sessions/${review.dataset.id}`);
}

function workChanged() {
  if (document.getElementById("changed")) return;
  const note = document.createElement("p");
  note.id = "changed";
  note.className = "warning";
  note.setAttribute("role", "status");
  note.textContent = "The work has changed. ";
  note.append(button("Load it", () => location.reload()));
  review.prepend(note);
}

function reviewChanged(fresh) {
  const head = fresh.querySelector("#review")?.dataset.head;
  if (!review || !head) return;
  if (head !== review.dataset.head) return workChanged();
  for (const other of fresh.querySelectorAll(".hunk")) {
    const hunk = document.getElementById(other.id);
    if (hunk && hunk.dataset.decision !== other.dataset.decision) show(hunk, other.dataset.decision);
    const comments = hunk?.querySelector(".comments");
    const newer = other.querySelector(".comments");
    if (comments && !comments.isEqualNode(newer)) comments.replaceWith(newer);
  }
  document.getElementById("counts").replaceWith(fresh.querySelector("#counts"));
}

// Each is called with whether its key was pressed, or its button.
const REVIEW_KEYS = {
  j: () => step(1),
  k: () => step(-1),
  a: (isKey) => current && decide(current, "accepted", isKey),
  r: (isKey) => current && decide(current, "returned", isKey),
  c: () => current && comment(current, pointed),
  f: () => current && fold(current),
  v: () => document.getElementById("toggle-view").click(),
  s: () => recorded.then(() => document.getElementById("review-send").click()),
  l: () => recorded.then(() => document.getElementById("review-land").click()),
  n: () => document.getElementById("next")?.click(),
  "?": () => document.getElementById("help").showModal(),
};

function startReview() {
  for (const hunk of hunks()) {
    if (!hunk.hasAttribute("data-loaded")) {
      hunk.querySelector(".lines").style.minHeight = `${hunk.dataset.lines * LINE_HEIGHT}px`;
    }
    observer.observe(hunk);
  }
  const help = document.getElementById("help");
  help.addEventListener("click", (event) => event.target.value && help.close());
  document.getElementById("help-button").addEventListener("click", () => help.showModal());
  review.addEventListener("click", async (event) => {
    const hunk = event.target.closest(".hunk");
    const number = event.target.dataset.remove;
    if (number && (await record({ remove: Number(number) }))) {
      event.target.closest(".comment").remove();
      if (hunk) readHunks([hunk.dataset.hunk]);
      return;
    }
    if (!hunk) return;
    const key = event.target.dataset.key;
    if (hunk !== current) select(hunk, false);
    if (key) {
      pointed = null;
      REVIEW_KEYS[key](false);
    } else if (event.target.closest(".number")) {
      comment(hunk, event.target.closest("tr"));
    }
  });
  review.addEventListener("pointerover", (event) => (pointed = event.target.closest("tr")));
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, textarea, select, dialog");
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    const action = REVIEW_KEYS[event.key];
    if (action) {
      event.preventDefault();
      action(true);
    }
  });
  // The first hunk without a decision, as it was left.
  select(hunks().find((hunk) => hunk.dataset.decision === "undecided"));
  if (document.visibilityState === "visible") record({ looked: true });
}

for (const [text, operation] of JSON.parse(sessionStorage.getItem("toasts") || "[]")) {
  toast(text, false, operation);
}
sessionStorage.removeItem("toasts");
if (review) startReview();
connect();
