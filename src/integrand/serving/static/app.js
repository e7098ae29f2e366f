// The app's page: forms made from what the server says of its rooms, and results in frames that cannot reach the page.
// Nothing is loaded from anywhere else; settings live in the address, and what was done before in the tab's own storage.
"use strict";

const $ = (id) => document.getElementById(id);
const HIGHEST = 60000, PAST = 20, LONG_LINK = 1800;

// An element with attributes, event listeners (on...) and children; texts are never read as HTML.
function make(tag, about = {}, ...children) {
  const one = document.createElement(tag);
  for (const [name, value] of Object.entries(about)) {
    if (name.startsWith("on")) one.addEventListener(name.slice(2), value);
    else if (value === true) one.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) one.setAttribute(name, value);
  }
  one.append(...children);
  return one;
}

const percent = (share) => {
  if (share >= 0.995 && share < 1) return `${Math.floor(1000 * share) / 10}%`;
  return `${share >= 0.0995 ? (100 * share).toFixed(0) : share >= 0.001 ? (100 * share).toPrecision(2) : "<0.1"}%`;
};
const capital = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);

const NOTHING = "Nothing yet: fill in the form, or try an example.";

let rooms = [], limits = {}, room = null, running = null, shown = null, said = null, state = "", followed = null;
let visit = 0; // counts what was asked for, so that what comes late is not shown
let focus = null; // what gets the keyboard's focus once it is there again
let photo = null; // what was chosen in this room: {id, file, name, key, example}
const photos = new Map(); // those that were chosen in this tab, by id
let board = null; // the drawing board: {frame, line}

async function begin() {
  const told = await (await fetch("api/rooms")).json();
  [rooms, limits] = [told.rooms, told];
  $("rooms").append(...rooms.map((one) => make("li", {}, make("a", { href: `?room=${one.name}`, "data-room": one.name, onclick: enter }, one.title))));
  $("cancel").addEventListener("click", () => {
    stop("Cancelled.");
    $("result").focus();
  });
  $("skip").addEventListener("click", (event) => {
    event.preventDefault();
    $("result").focus();
  });
  window.addEventListener("popstate", () => location.search !== followed && follow());
  window.addEventListener("message", framed);
  window.addEventListener("message", drawn);
  window.addEventListener("pagehide", () => forget(photo));
  follow();
}

function enter(event) {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  history.pushState(null, "", event.currentTarget.getAttribute("href"));
  follow();
  $("room-title").focus();
}

// Show what the address says: the room, its settings, and the result if they are complete.
function follow() {
  stop();
  visit += 1;
  followed = location.search;
  const asked = new URLSearchParams(followed);
  const next = rooms.find((one) => one.name === asked.get("room")) || rooms[0];
  if (next !== room) {
    forget(photo);
    photo = null;
  }
  room = next;
  for (const link of $("rooms").querySelectorAll("a")) {
    if (link.dataset.room === room.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${room.title} · integrand`;
  $("room-title").textContent = room.title;
  $("room-title").tabIndex = -1;
  $("lead").textContent = room.lead;
  $("notice").textContent = room.notice;
  $("notice").hidden = !room.notice;
  form(asked);
  examples();
  clear();
  past();
  tell(NOTHING);
  const action = room.actions.includes(asked.get("do")) ? asked.get("do") : "explain";
  if (room.fields.every((field) => !field.needed || values()[field.name])) run(action);
}

function form(asked) {
  const all = room.fields.map((field) => [field, control(field, asked.get(field.name) ?? field.default)]);
  const first = all.filter(([field]) => field.needed || field.first).map(([, one]) => one);
  const rest = all.filter(([field]) => !field.needed && !field.first).map(([, one]) => one);
  const changed = room.fields.some((field) => !field.needed && !field.first && asked.has(field.name) && asked.get(field.name) !== field.default);
  const open = $("settings") ? $("settings").open : changed;
  const settings = make("details", { id: "settings", open }, make("summary", {}, "Settings"), make("div", { class: "fields" }, ...rest));
  const go = make(
    "div",
    { class: "go-row" },
    make("button", { type: "submit", class: "go" }, "Explain"),
    ...["methods", "baselines"]
      .filter((action) => room.actions.includes(action))
      .map((action) => make("button", { type: "button", onclick: () => run(action) }, `Compare ${action}`)),
  );
  $("form").replaceChildren(...first, go, settings);
  $("form").onsubmit = (event) => {
    event.preventDefault();
    run("explain");
  };
}

function control(field, value) {
  const id = `field-${field.name}`;
  const about = { id, name: field.name, "aria-describedby": field.help ? `${id}-help` : null };
  const help = field.help ? [make("span", { class: "help", id: `${id}-help` }, field.help)] : [];
  const label = make("label", { for: id }, field.label);
  if (field.kind === "photo") return chooser(field, id, value);
  if (field.kind === "choice") {
    if (!field.choices.includes(value)) value = field.default;
    const options = field.choices.map((one) => make("option", { value: one, selected: one === value }, one || "what the network says"));
    return make("div", { class: "field" }, label, make("select", about, ...options), ...help);
  }
  if (field.kind === "text") {
    const area = make("textarea", { ...about, rows: 3, maxlength: field.most, required: field.needed });
    area.value = value;
    area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        run("explain");
      }
    });
    return make("div", { class: "field" }, label, area, ...help);
  }
  const more = field.kind === "answer" ? { list: `${id}-list`, placeholder: field.name === "target" ? "what it says" : "" } : {};
  const line = make("input", { ...about, ...more, type: "text", maxlength: field.most, required: field.needed, autocomplete: "off", spellcheck: "false" });
  line.value = value;
  const list = field.kind === "answer" ? [make("datalist", { id: `${id}-list` })] : [];
  const draw = field.kind === "molecule" && limits.sketcher ? [sketcher(line)] : [];
  return make("div", { class: "field" }, label, line, ...list, ...help, ...draw);
}

// A place to drop a photo on, or to choose one.
function chooser(field, id, value) {
  const about = `${id}-about`;
  const file = make("input", { type: "file", id, accept: "image/*,.heic,.heif,.avif,.tif,.tiff,.ppm", "aria-describedby": about });
  const picture = make("img", { alt: "", hidden: true });
  const most = Number((limits.upload / 2 ** 20).toPrecision(3));
  const told = make("p", { id: about }, `or drop it here; up to ${most} MB`);
  const zone = make("div", { class: "drop" }, make("label", { for: id }, "Choose a photo"), file, picture, told);
  const show = () => {
    told.textContent = photo.name;
    picture.hidden = false;
    picture.onerror = () => (picture.hidden = true); // a format that the browser does not know; the server may
    const source = photo.example ? `examples/${room.name}/${encodeURIComponent(photo.example)}` : URL.createObjectURL(photo.file);
    picture.onload = () => URL.revokeObjectURL(source);
    picture.src = source;
  };
  const take = (chosen) => {
    if (!chosen) return;
    forget(photo);
    photo = { id: crypto.getRandomValues(new Uint32Array(2)).join("-"), file: chosen, name: chosen.name };
    photos.set(photo.id, photo);
    show();
    run("explain");
  };
  file.addEventListener("change", () => take(file.files[0]));
  zone.addEventListener("dragover", (event) => {
    event.preventDefault();
    zone.classList.add("over");
  });
  zone.addEventListener("dragleave", () => zone.classList.remove("over"));
  zone.addEventListener("drop", (event) => {
    event.preventDefault();
    zone.classList.remove("over");
    take(event.dataTransfer.files[0]);
  });
  if (value && room.examples.some((one) => one.photo === value)) photo = { example: value, name: `example: ${value}` };
  else if (photo && photo.example) photo = null;
  if (photo) show();
  return make("div", { class: "field" }, make("span", { class: "label" }, field.label), zone);
}

// The server need not keep a photo that is no longer looked at; should it be asked about again, it is sent again.
function forget(one) {
  if (!one || !one.key) return;
  fetch(`api/uploads/${one.key}`, { method: "DELETE", keepalive: true }).catch(() => {});
  one.key = null;
}

// The drawing board for molecules, in a frame of its own: what is drawn is written into the line, and the other way round.
function sketcher(line) {
  const frame = make("iframe", { class: "sketcher", title: "Draw a molecule", sandbox: "allow-scripts", hidden: true });
  const button = make("button", { type: "button", "aria-expanded": "false" }, "Draw");
  board = { frame, line };
  button.addEventListener("click", () => {
    frame.hidden = !frame.hidden;
    button.textContent = frame.hidden ? "Draw" : "Close the drawing board";
    button.setAttribute("aria-expanded", String(!frame.hidden));
    if (!frame.src) frame.src = "sketcher/sketcher.html";
    else if (!frame.hidden) draw();
  });
  return make("div", {}, button, frame);
}

const draw = () => board.frame.contentWindow.postMessage({ integrand: "molecule", smiles: board.line.value.trim() }, "*");

function drawn(event) {
  if (!board || event.source !== board.frame.contentWindow || !event.data) return;
  if (event.data.integrand === "ready") draw();
  const smiles = event.data.integrand === "drawn" ? event.data.smiles : null;
  if (typeof smiles === "string") board.line.value = smiles.slice(0, board.line.maxLength);
}

function examples() {
  const tries = room.examples.map((one) => {
    const fill = () => {
      const link = new URLSearchParams({ room: room.name });
      for (const [name, value] of Object.entries(one)) if (name !== "title") link.set(name, value);
      history.pushState(null, "", `?${link}`);
      follow();
      $("room-title").focus();
    };
    const face = one.photo ? make("img", { src: `examples/${room.name}/${encodeURIComponent(one.photo)}`, alt: one.title }) : one.title;
    return make("button", { type: "button", onclick: fill }, face);
  });
  $("examples").replaceChildren(...(tries.length ? [make("p", {}, "Try"), make("div", { class: "row" }, ...tries)] : []));
}

function values() {
  const found = {};
  for (const field of room.fields) {
    if (field.kind === "photo") found[field.name] = photo ? photo.example || photo.key || "new" : "";
    else found[field.name] = $(`field-${field.name}`).value.trim();
  }
  return found;
}

// The address of the present settings; a photo of one's own is not in it.
function link(action) {
  const found = new URLSearchParams({ room: room.name });
  const now = values();
  for (const field of room.fields) {
    if (field.kind === "photo" && !(photo && photo.example)) continue;
    if (now[field.name] && now[field.name] !== field.default) found.set(field.name, now[field.name]);
  }
  if (action !== "explain") found.set("do", action);
  return `?${found}`;
}

// What has happened, for everybody: also read aloud. Numbers that change all the time are in "steps" instead.
function tell(...lines) {
  $("status").replaceChildren(...lines.map((line) => make("p", {}, line)));
  $("steps").textContent = "";
}

function stop(message) {
  if (!running) return;
  running.abort();
  running = null;
  $("progress").hidden = true;
  if (message) tell(message);
}

function clear() {
  for (const part of ["problem", "answers", "frame", "tools"]) $(part).replaceChildren();
  for (const part of ["trust", "tools", "progress"]) $(part).hidden = true;
  [shown, said, state] = [null, null, ""];
}

function complain(message) {
  $("problem").textContent = message;
  tell();
  $("progress").hidden = true;
}

// The reason that an answer gives for refusing, or, from a proxy that knows no reasons, its number.
async function reason(answer) {
  const told = await answer.json().catch(() => ({}));
  return told.message || `The server answered ${answer.status}. Try again in a little while.`;
}

async function run(action) {
  stop();
  const empty = room.fields.find((field) => field.needed && !values()[field.name]);
  clear();
  if (empty) {
    complain(`${empty.label}: there is nothing here yet.`);
    $(`field-${empty.name}`).focus();
    return;
  }
  visit += 1;
  const here = link(action);
  history.replaceState(null, "", here.length < LONG_LINK ? here : `?room=${room.name}`);
  followed = location.search;
  const mine = (running = new AbortController());
  const began = performance.now();
  tell("Working …");
  $("progress").hidden = false;
  $("bar").removeAttribute("value");
  try {
    if (photo && photo.file && !photo.key) await upload(mine.signal);
    let answer = await post(action, mine.signal);
    if (answer.status === 410 && photo && photo.file) {
      await upload(mine.signal); // it was forgotten meanwhile
      answer = await post(action, mine.signal);
    }
    if (!answer.ok) throw new Error(await reason(answer));
    await read(answer.body.getReader(), (event) => mine === running && heard(event, action, began));
    if (mine === running && !shown && !$("problem").textContent) complain("The server stopped before there was a result. Try again.");
  } catch (error) {
    if (mine !== running) return; // cancelled, or another one has begun
    complain(error instanceof TypeError ? "The server cannot be reached. Is it still running?" : error.message);
  } finally {
    if (mine === running) {
      running = null;
      $("progress").hidden = true;
    }
  }
}

async function upload(signal) {
  const most = Number((limits.upload / 2 ** 20).toPrecision(3));
  if (photo.file.size > limits.upload) throw new Error(`The photo is too large: up to ${most} MB are taken here.`);
  const headers = { "Content-Type": "application/octet-stream", "X-File-Name": encodeURIComponent(photo.name) };
  const answer = await fetch("api/uploads", { method: "POST", body: photo.file, headers, signal });
  if (!answer.ok) throw new Error(await reason(answer));
  photo.key = (await answer.json()).upload;
}

function post(action, signal) {
  const headers = { "Content-Type": "application/json" };
  return fetch(`api/${room.name}/${action}`, { method: "POST", body: JSON.stringify(values()), headers, signal });
}

// Lines of JSON as they come.
async function read(reader, each) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    rest += done ? "" : decoder.decode(value, { stream: true });
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) if (line.trim()) each(JSON.parse(line));
    if (done) return;
  }
}

function heard(event, action, began) {
  const seconds = () => `${((performance.now() - began) / 1000).toFixed(1)} s`;
  if (event.event === "waiting") $("steps").textContent = `Waiting: ${event.before} before you.`;
  if (event.event === "answers") answers((said = event), action);
  if (event.event === "progress") progress(event);
  if (event.event === "failed") complain(event.message);
  if (event.event === "kept") {
    tell(event.message);
    remember(shown, action);
  }
  if (event.event === "done" && event.notes.length) $("status").append(...event.notes.map((note) => make("p", {}, note)));
  if (event.event !== "result") return;
  const first = !shown;
  shown = event;
  result(event, action);
  tell(event.final ? `Done in ${seconds()}.` : `A first look after ${seconds()}; getting more exact …`);
  $("progress").hidden = event.final;
  if (event.final) remember(event, action);
  if (first && matchMedia("(max-width: 52rem)").matches) $("result").scrollIntoView();
}

function progress(event) {
  $("bar").value = event.expected ? event.gradients / event.expected : 0;
  const error = event.error === null ? "" : `, error about ${percent(event.error)}`;
  $("steps").textContent = `${event.gradients} of about ${event.expected} gradients${error}`;
}

// What the network says: a list to choose from, if it has several answers.
function answers(event, action) {
  const target = room.fields.find((field) => field.name === "target" && field.kind === "answer");
  const hint = target && event.choices.length ? make("span", { class: "help" }, " Choose another answer to have it explained.") : "";
  const heading = make("p", {}, make("b", {}, capital(event.said)), hint);
  const list = event.choices.map((one) => {
    const bar = make("i", { "aria-hidden": "true" });
    bar.style.width = `${100 * (one.probability || 0)}%`;
    const pressed = one.label === event.chosen;
    const share = make("span", { class: "share" }, one.probability === null ? "" : ` ${percent(one.probability)}`);
    const face = target
      ? make("button", { type: "button", "aria-pressed": String(pressed), onclick: () => choose(one.label, action) }, bar, one.label, share)
      : make("span", { class: pressed ? "chip chosen" : "chip" }, bar, one.label, share);
    return make("li", {}, face);
  });
  for (const known of $("form").querySelectorAll("datalist")) known.replaceChildren(...event.choices.map((one) => make("option", { value: one.label })));
  $("answers").replaceChildren(heading, ...(list.length ? [make("ul", {}, ...list)] : []));
  if (focus === "answers") $("answers").querySelector("[aria-pressed=true]")?.focus();
  focus = null;
}

function choose(label, action) {
  $("field-target").value = label;
  focus = "answers";
  run(action);
}

function result(event, action) {
  $("trust").hidden = !event.trust;
  if (event.trust) {
    $("trust").className = event.trust.grade;
    const mark = { good: "✓ ", mixed: "⚠ ", bad: "⚠ " }[event.trust.grade];
    $("trust").replaceChildren(make("b", {}, `${mark}What the certificate says: `), event.trust.says);
  }
  const place = `results/${event.id}`;
  const save = (kind, label) => make("a", { href: `${place}/${kind}`, download: `${event.stem}.${kind.split(".")[1]}` }, label);
  const code = make("button", { type: "button", "aria-expanded": "false", onclick: () => lines(code, place) }, "Show the code");
  const copy = make("button", { type: "button", onclick: () => share(copy, action) }, "Copy link");
  $("tools").replaceChildren(save("page.html", "Save page"), save("picture.png", "Save PNG"), save("numbers.json", "Save JSON"), code, copy);
  $("tools").hidden = false;
  frame(event);
}

// The page of a result. A more exact one takes the place of the other once it is there, with the view that was chosen.
function frame(event) {
  const next = make("iframe", { title: `Result: ${event.title}`, sandbox: "allow-scripts allow-downloads", src: `results/${event.id}/page${state}` });
  const before = $("frame").querySelector("iframe");
  if (before) next.style.height = before.style.height;
  next.addEventListener("load", () => before && before.remove(), { once: true });
  $("frame").append(next);
  if (before) {
    next.style.position = "absolute";
    next.style.visibility = "hidden";
    next.style.width = `${before.clientWidth}px`;
    next.addEventListener("load", () => next.removeAttribute("style"), { once: true });
  }
}

function framed(event) {
  const one = [...$("frame").querySelectorAll("iframe")].find((frame) => frame.contentWindow === event.source);
  if (!one || !event.data || event.data.integrand !== "frame") return;
  const { height, state: view } = event.data;
  if (Number.isFinite(height)) one.style.height = `${Math.min(Math.max(height, 100), HIGHEST) + 4}px`;
  if (typeof view === "string" && /^#[\w=&.,%-]{0,300}$/.test(view)) state = view;
}

async function lines(button, place) {
  const open = button.getAttribute("aria-expanded") === "true";
  button.setAttribute("aria-expanded", String(!open));
  button.textContent = open ? "Show the code" : "Hide the code";
  $("tools").querySelector("pre")?.remove();
  if (open) return;
  const block = make("code", {}, "…");
  $("tools").append(make("pre", { tabindex: "0", role: "region", "aria-label": "The code that gives the same result" }, block));
  const answer = await fetch(`${place}/code.py`).catch(() => null);
  block.textContent = answer && answer.ok ? await answer.text() : "The server has forgotten this result. Explain it again.";
}

async function share(button, action) {
  const address = new URL(link(action), location.href).href;
  try {
    await navigator.clipboard.writeText(address);
    button.textContent = "Copied";
  } catch {
    prompt("The link", address); // where the clipboard is out of reach
  }
  setTimeout(() => (button.textContent = "Copy link"), 2000);
}

const kept = () => {
  try {
    const all = JSON.parse(sessionStorage.getItem("integrand") || "[]");
    return Array.isArray(all) ? all : [];
  } catch {
    return [];
  }
};

function remember(event, action) {
  const about = values().text || values().smiles || (photo && photo.name) || "";
  const one = { room: room.name, title: event.title, action, link: link(action), event, said, about: about.slice(0, 80) };
  if (photo && photo.file) [one.photo, one.file] = [photo.id, photo.name];
  try {
    const all = [one, ...kept().filter((other) => other.event.id !== event.id)].slice(0, PAST);
    sessionStorage.setItem("integrand", JSON.stringify(all));
  } catch {
    return; // no room, or not allowed: there is no history then
  }
  past();
}

function past() {
  const mine = kept().filter((one) => one.room === room.name);
  $("history").hidden = !mine.length;
  const items = mine.map((one) => make("li", {}, make("button", { type: "button", onclick: () => back(one) }, `${capital(one.title)} `, make("small", {}, one.about))));
  $("past").replaceChildren(...items);
}

// An earlier result again: as it was if the server still has it, else made anew, if its photo is still here.
async function back(one) {
  stop();
  const mine = (visit += 1);
  const there = await fetch(`results/${one.event.id}/code.py`).catch(() => null);
  if (mine !== visit || one.room !== room.name) return; // something else was asked for meanwhile
  if (one.photo !== (photo && photo.id)) {
    forget(photo);
    photo = photos.get(one.photo) || null;
  }
  history.pushState(null, "", one.link);
  followed = location.search;
  form(new URLSearchParams(one.link));
  clear();
  if (there && there.ok) {
    if (one.said) answers((said = one.said), one.action);
    shown = one.event;
    result(one.event, one.action);
    tell(`Earlier: ${one.event.sentence}`);
    $("result").focus();
  } else if (one.file && !photo) complain(`The server has forgotten this result, and this page the photo. Choose ${one.file} again.`);
  else run(one.action);
}

begin().catch(() => complain("The server cannot be reached. Is it still running?"));
