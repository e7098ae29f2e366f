// Lights what belongs together in a drawn molecule and its bars, switches views, copies SMILES. Nothing is stored or sent.
const reachable = (elements) =>
  elements.forEach((element, k) => {
    element.setAttribute("tabindex", k ? "-1" : "0"); // the tab key stops once; arrow keys move on
    if (element instanceof SVGElement) element.setAttribute("role", "img");
    if (element instanceof SVGElement) element.setAttribute("aria-label", element.dataset.says);
  });

class Linked {
  constructor(root) {
    this.root = root;
    this.marks = [...root.querySelectorAll(".marks [data-says]")];
    this.rows = [...root.querySelectorAll("tr[data-marks]")];
    reachable(this.marks.slice().reverse()); // atoms come last in the drawing, since they lie on top
    for (const row of this.rows) {
      // A bar of an atom, bond or arc says what its mark says.
      const mark = row.dataset.says === undefined && !row.closest(".accounts") && document.getElementById(row.dataset.marks);
      if (mark) row.dataset.says = mark.dataset.says;
    }
    for (const table of root.querySelectorAll("table")) reachable([...table.querySelectorAll("tr[data-says]")]);
    for (const kind of ["pointerover", "focusin", "click"]) {
      root.addEventListener(kind, (event) => this.light(this.part(event.target)));
    }
    root.addEventListener("pointerleave", () => this.light(null));
    root.addEventListener("keydown", (event) => event.key === "Escape" && this.light(null));
    for (const button of root.querySelectorAll("[data-view]")) button.addEventListener("click", () => this.view(button));
    for (const box of root.querySelectorAll("[data-toggle]")) {
      box.addEventListener("change", () => this.toggle(box.dataset.toggle, box.checked));
    }
    const copy = root.querySelector("[data-copy]");
    if (copy) copy.addEventListener("click", () => this.copy(copy));
    const matrix = root.querySelector(".cells");
    if (matrix) matrix.addEventListener("pointermove", (event) => this.cell(matrix, event));
  }

  part(target) {
    return target instanceof Element ? target.closest(".marks [data-says], tr[data-marks]") : null;
  }

  light(part) {
    if (part === this.lit) return;
    this.lit = part;
    for (const lit of this.root.querySelectorAll(".on")) lit.classList.remove("on");
    if (!part) return;
    const names = part.dataset.marks ? part.dataset.marks.split(" ") : [part.id];
    for (const name of names) {
      const mark = document.getElementById(name);
      const ends = /^(m\d+)p(\d+)-(\d+)$/.exec(name); // a weak pair has no arc of its own: its two atoms light up
      if (mark && mark.getClientRects().length) mark.classList.add("on");
      else if (ends) for (const k of [2, 3]) document.getElementById(`${ends[1]}a${ends[k]}`).classList.add("on");
    }
    for (const row of this.rows) {
      const held = row.dataset.marks.split(" ");
      if (row === part || (names.length === 1 && held.includes(names[0]))) row.classList.add("on");
    }
  }

  // The class is on the drawing too, so that a saved picture shows the present view.
  toggle(name, on) {
    for (const look of this.root.querySelectorAll(".look")) look.classList.toggle(name, on);
  }

  view(button) {
    this.toggle("pairs", button.dataset.view === "pairs");
    for (const other of this.root.querySelectorAll("[data-view]")) other.setAttribute("aria-pressed", other === button);
  }

  async copy(button) {
    const code = this.root.querySelector(".smiles code");
    const chosen = document.createRange();
    chosen.selectNodeContents(code);
    getSelection().removeAllRanges();
    getSelection().addRange(chosen);
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = document.execCommand("copy") ? "Copied" : "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  }

  // Names take the room of two cells before the first.
  cell(matrix, event) {
    const frame = matrix.getBoundingClientRect(), count = Number(matrix.dataset.count);
    const [i, j] = [(event.clientY - frame.top) / frame.height, (event.clientX - frame.left) / frame.width]
      .map((share) => Math.floor(share * (count + 2) - 2)).sort((a, b) => a - b);
    const name = this.root.id, ends = matrix.dataset.ends.split(" ");
    const bond = ends.indexOf(`${i}-${j}`);
    const key = i === j ? `a${i}` : bond >= 0 ? `b${bond}` : `p${i}-${j}`;
    const mark = i < 0 ? null : document.getElementById(`${name}${key}`);
    const row = i < 0 ? null : this.rows.find((one) => one.dataset.marks === `${name}${key}`);
    this.light(mark || row || null);
    const out = matrix.closest("[data-sayings]").querySelector("[data-said]");
    const text = (mark && mark.dataset.says) || (row && `${row.cells[0].textContent}: ${row.cells[2].textContent}`);
    out.textContent = text || out.dataset.prompt;
  }
}

for (const root of document.querySelectorAll("[data-molecule]")) new Linked(root);

// A link to a molecule opens it.
const opened = () => {
  const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  const one = target && target.closest("details.one");
  if (!one) return;
  one.open = true;
  if (one.closest(".card")?.hidden) {
    // What a search or a filter left out shows again.
    for (const control of document.querySelectorAll("[data-search],[data-filter]")) {
      control.value = "";
      control.dispatchEvent(new Event("input"));
    }
  }
  one.scrollIntoView();
};
addEventListener("hashchange", opened);
opened();
