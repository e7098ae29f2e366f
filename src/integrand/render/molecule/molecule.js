// Lights the bar of what is pointed at in a drawn molecule, and the other way round. Nothing is loaded, stored or sent.
const unit = (row) => row.closest("[data-molecule]").dataset.unit;
const named = (row) => `${row.cells[0].textContent}: ${row.cells[2].textContent}${unit(row)}`;

class Linked {
  constructor(root) {
    this.root = root;
    this.figure = root.querySelector("figure");
    this.tip = root.querySelector(".tip");
    this.lists = [...root.querySelectorAll(".marks, .rows")].map((list) => [...list.querySelectorAll("a")]);
    // One stop for the tab key in each list; the arrows move within it.
    for (const links of this.lists) links.forEach((link, k) => { link.tabIndex = k ? -1 : 0; });
    for (const mark of root.querySelectorAll(".marks a")) {
      const row = document.getElementById(this.key(mark));
      if (row) mark.setAttribute("aria-label", named(row));
    }
    root.addEventListener("pointerover", (event) => this.light(this.key(event.target)));
    root.addEventListener("pointerleave", () => this.light(this.key(document.activeElement)));
    root.addEventListener("focusin", (event) => this.light(this.key(event.target)));
    root.addEventListener("focusout", () => this.light(null));
    root.addEventListener("click", (event) => this.choose(event));
    root.addEventListener("keydown", (event) => this.step(event));
    const matrix = root.querySelector(".cells");
    if (matrix) matrix.addEventListener("pointermove", (event) => this.cell(matrix, event));
  }

  key(target) {
    const part = target instanceof Element && this.root.contains(target) && target.closest(".marks a, .rows tr");
    return part ? part.id.replace(/_$/, "") : null;
  }

  light(key) {
    if (key === this.lit) return;
    this.lit = key;
    for (const part of this.root.querySelectorAll(".on")) part.classList.remove("on");
    this.tip.hidden = true;
    const row = key && document.getElementById(key);
    if (!row) return;
    row.classList.add("on");
    const box = row.closest(".rows"), above = row.offsetTop - box.scrollTop;
    if (above < 0 || above > box.clientHeight - row.offsetHeight) box.scrollTop = row.offsetTop - box.clientHeight / 2;
    const marks = this.marks(key);
    for (const mark of marks) mark.classList.add("on");
    this.say(row, marks[0]);
  }

  // A weak pair has no arc of its own: its two atoms light up instead.
  marks(key) {
    const own = document.getElementById(`${key}_`);
    if (own) return [own];
    const pair = /^(m\d+)p(\d+)-(\d+)$/.exec(key);
    return pair ? [2, 3].map((k) => document.getElementById(`${pair[1]}a${pair[k]}_`)) : [];
  }

  say(row, mark) {
    const half = row.dataset.half;
    this.tip.textContent = named(row) + (half ? `, with half of its pairs ${half}${unit(row)}` : "");
    this.tip.hidden = !mark;
    if (!mark) return;
    const frame = this.figure.getBoundingClientRect(), spot = mark.getBoundingClientRect();
    const middle = spot.left + spot.width / 2 - frame.left, room = this.tip.offsetWidth / 2;
    this.tip.style.left = `${Math.max(room, Math.min(frame.width - room, middle))}px`;
    this.tip.style.top = `${spot.top - frame.top}px`;
  }

  choose(event) {
    const link = event.target instanceof Element && event.target.closest(".marks a, .rows a");
    if (!link) return;
    event.preventDefault();
    link.focus({ preventScroll: true });
    this.light(this.key(link));
  }

  step(event) {
    if (event.key === "Escape") return this.light(null);
    const by = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    const links = by && this.lists.find((list) => list.includes(event.target));
    if (!links) return;
    event.preventDefault();
    const next = links[(links.indexOf(event.target) + by + links.length) % links.length];
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus({ preventScroll: true });
  }

  // Names take the room of two cells before the first.
  cell(matrix, event) {
    const frame = matrix.getBoundingClientRect(), count = Number(matrix.dataset.count);
    const [i, j] = [(event.clientY - frame.top) / frame.height, (event.clientX - frame.left) / frame.width]
      .map((share) => Math.floor(share * (count + 2) - 2)).sort((a, b) => a - b);
    const name = this.root.id, bond = this.root.querySelector(`.rows [data-ends="${i}-${j}"]`);
    const key = i === j ? `${name}a${i}` : bond ? bond.id : `${name}p${i}-${j}`, row = document.getElementById(key);
    this.light(row ? key : null);
    this.root.querySelector(".matrix output").textContent = row ? named(row) : "";
  }
}

for (const root of document.querySelectorAll("[data-molecule]")) new Linked(root);
