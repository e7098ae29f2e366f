// What every page can do: say values, save views and tables, and sort, filter and search many results.
document.documentElement.classList.add("live");

// ---- Saying: an element says its text where it is pointed at, touched, or reached by keyboard.
const saidBy = (element) => {
  const group = element.closest("[data-sayings]");
  return group ? group.querySelector("[data-said]") : null;
};

const say = (element) => {
  const out = saidBy(element);
  if (!out) return;
  out.textContent = element.dataset.says;
  const group = element.closest("[data-sayings]");
  for (const other of group.querySelectorAll(".saying")) other.classList.remove("saying");
  element.classList.add("saying");
  // What shares its row or column, such as the names of both, stands out with it.
  for (const other of group.querySelectorAll(".across")) other.classList.remove("across");
  for (const line of ["row", "column"]) {
    const at = element.dataset[line];
    if (at === undefined) continue;
    for (const other of group.querySelectorAll(`[data-${line}="${CSS.escape(at)}"]`)) other.classList.add("across");
  }
};

const speaker = (target) => (target instanceof Element ? target.closest("[data-says]") : null);

for (const kind of ["pointerover", "click", "focusin"]) {
  document.addEventListener(kind, (event) => {
    const element = speaker(event.target);
    if (element) say(element);
  });
}

// The tab key stops once in each group; arrow keys then move to the nearest element in their direction.
const visible = (element) => element.getClientRects().length > 0;
for (const group of document.querySelectorAll("[data-sayings]")) {
  const all = [...group.querySelectorAll("[data-says][tabindex]")];
  all.forEach((element, i) => element.setAttribute("tabindex", i ? "-1" : "0"));
}

const centre = (element) => {
  const box = element.getBoundingClientRect();
  return [box.left + box.width / 2, box.top + box.height / 2];
};

const neighbour = (group, element, dx, dy) => {
  const [x, y] = centre(element);
  let best = null;
  let least = Infinity;
  for (const other of group.querySelectorAll("[data-says][tabindex]")) {
    if (other === element || !visible(other)) continue;
    const [u, v] = centre(other);
    const ahead = (u - x) * dx + (v - y) * dy;
    const aside = Math.abs((u - x) * dy) + Math.abs((v - y) * dx);
    if (ahead <= 1) continue;
    const cost = ahead + 3 * aside;
    if (cost < least) [best, least] = [other, cost];
  }
  return best;
};

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
document.addEventListener("keydown", (event) => {
  const element = speaker(event.target);
  const way = ARROWS[event.key];
  const group = element && element.closest("[data-sayings]");
  if (!group || !way || event.altKey || event.ctrlKey || event.metaKey) return;
  const next = neighbour(group, element, ...way);
  event.preventDefault();
  if (!next) return;
  element.setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus();
});

// ---- Saving.
const download = (blob, name) => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
};

// Text that a spreadsheet would run as a formula gets a quote before it; numbers do not.
const field = (text) => {
  const plain = text.replace(/\s+/g, " ").trim();
  const safe = /^[=+\-@]/.test(plain) && !/^[+-]?[\d.]+(e[+-]?\d+)?$/i.test(plain) ? `'${plain}` : plain;
  return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};

const csv = (table) =>
  [...table.rows]
    .filter((row) => row.dataset.csv !== "no")
    .map((row) =>
      [...row.cells]
        .filter((cell) => cell.dataset.csv !== "no")
        .map((cell) => field(cell.dataset.value ?? cell.textContent))
        .join(","),
    )
    .join("\r\n") + "\r\n";

// A saved picture keeps the colours of the screen it was saved from, wherever it is looked at.
const styles = () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const text = [...document.querySelectorAll("style")].map((style) => style.textContent).join("\n");
  return text.replaceAll(/@media\s*\(prefers-color-scheme:\s*dark\)/g, dark ? "@media all" : "@media not all");
};
const paper = () => getComputedStyle(document.body).backgroundColor;

// An element as an SVG document of its own, with the page's styles; what is no SVG stands in one as foreign content.
const standalone = (element) => {
  const box = element.getBoundingClientRect();
  const [width, height] = [Math.ceil(box.width), Math.ceil(box.height)];
  const space = "http://www.w3.org/2000/svg";
  const root = document.createElementNS(space, "svg");
  root.setAttribute("xmlns", space);
  const style = document.createElementNS(space, "style");
  style.textContent = styles();
  const back = document.createElementNS(space, "rect");
  back.setAttribute("width", "100%");
  back.setAttribute("height", "100%");
  back.setAttribute("fill", paper());
  const copy = element.cloneNode(true);
  if (element instanceof SVGElement) {
    copy.setAttribute("width", width);
    copy.setAttribute("height", height);
    root.append(style, back, copy);
  } else {
    const foreign = document.createElementNS(space, "foreignObject");
    foreign.setAttribute("width", "100%");
    foreign.setAttribute("height", "100%");
    const canvases = [...element.querySelectorAll("canvas")];
    [...copy.querySelectorAll("canvas")].forEach((canvas, i) => {
      const image = document.createElement("img");
      image.src = canvases[i].toDataURL();
      image.style.width = `${canvases[i].getBoundingClientRect().width}px`;
      canvas.replaceWith(image);
    });
    const body = document.createElement("div");
    const look = getComputedStyle(element);
    body.style.cssText = `color:${look.color};font:${look.font};width:${width}px`;
    body.className = "live";
    body.append(copy);
    foreign.append(body);
    root.append(style, back, foreign);
  }
  root.setAttribute("width", width);
  root.setAttribute("height", height);
  root.setAttribute("viewBox", `0 0 ${width} ${height}`);
  return { text: new XMLSerializer().serializeToString(root), width, height };
};

const png = async (element) => {
  if (element instanceof HTMLCanvasElement) return new Promise((done) => element.toBlob(done, "image/png"));
  const { text, width, height } = standalone(element);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  const scale = 2;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.drawImage(image, 0, 0, width, height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
};

const save = async (button) => {
  const { export: kind, part, file } = button.dataset;
  const element = document.getElementById(part);
  if (kind === "csv") {
    const bytes = new TextEncoder().encode(csv(element)); // a mark in front, by which spreadsheets know UTF-8
    download(new Blob([new Uint8Array([0xef, 0xbb, 0xbf]), bytes], { type: "text/csv" }), file);
  } else if (kind === "svg") {
    download(new Blob([standalone(element).text], { type: "image/svg+xml" }), file);
  } else download(await png(element), file);
};

document.addEventListener("click", (event) => {
  const button = event.target instanceof Element ? event.target.closest("[data-export]") : null;
  if (!button) return;
  const label = button.textContent;
  save(button).catch(() => {
    button.textContent = "This browser cannot save it";
    setTimeout(() => (button.textContent = label), 4000);
  });
});

// ---- Many results: search, filter, order.
// A kind's value may hold an equals sign, as C=O does; what comes after an order's last one is a number.
const pairs = (card, prefix) =>
  Object.fromEntries(
    Object.entries(card.dataset)
      .filter(([key]) => new RegExp(`^${prefix}-?\\d+$`).test(key))
      .map(([, value]) => [value, prefix === "kind" ? value.indexOf("=") : value.lastIndexOf("=")])
      .map(([value, at]) => [value.slice(0, at), value.slice(at + 1)]),
  );

for (const root of document.querySelectorAll("[data-collection]")) {
  const list = root.querySelector(".cards");
  const cards = [...list.children].map((element, place) => ({
    element,
    place,
    text: element.dataset.text.toLowerCase(),
    kinds: pairs(element, "kind"),
    order: pairs(element, "order"),
  }));
  const search = root.querySelector("[data-search]");
  const order = root.querySelector("[data-order]");
  const filters = [...root.querySelectorAll("[data-filter]")];
  const count = root.querySelector("[data-count]");
  const update = () => {
    const words = (search?.value ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const card of cards) {
      const kept =
        words.every((word) => card.text.includes(word)) &&
        filters.every((one) => !one.value || card.kinds[one.dataset.filter] === one.value);
      card.element.hidden = !kept;
      shown += kept;
    }
    const key = order?.value;
    const rank = (card) => (key && key in card.order ? Number(card.order[key]) : Infinity);
    const sorted = [...cards].sort((a, b) => (key ? rank(a) - rank(b) || 0 : 0) || a.place - b.place);
    list.append(...sorted.map((card) => card.element));
    if (count) {
      const noun = count.dataset.noun;
      count.textContent = `${shown} of ${cards.length} ${noun}${cards.length === 1 ? "" : "s"}`;
    }
  };
  for (const control of [search, order, ...filters]) control?.addEventListener("input", update);
  if (search) update();
}
