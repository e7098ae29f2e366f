// Lets a reader choose what the canvas shows, and reads out pixels and regions. Nothing is loaded, stored or sent.
const clip = (value, low, high) => Math.max(low, Math.min(high, value));

// Numbers for people: three digits, a true minus.
function say(value, sign = true) {
  if (!Number.isFinite(value)) return "unknown";
  const size = Math.abs(value), rounded = Number(size.toPrecision(3));
  const text = rounded && (rounded < 1e-4 || rounded >= 1e6) ? rounded.toExponential() : String(rounded);
  return (value < 0 && rounded ? "−" : sign && rounded ? "+" : "") + text;
}

class Viewer {
  constructor(root) {
    this.find = (name) => root.querySelector(`[data-part="${name}"]`);
    const data = JSON.parse(this.find("data").textContent);
    this.data = { ...data, photo: bytes(data.photo) };
    this.maps = data.maps.map(() => null); // read when first looked at
    this.coarse = new Map(); // maps in squares, by map and side
    this.canvas = this.find("canvas");
    this.form = this.find("controls");
    this.canvas.width = data.width;
    this.canvas.height = data.height;
    this.box = null; // a region, in cells of the map
    this.corner = null; // where it began
    this.cursor = null; // the cell that was looked at last
    this.listen();
    this.follow();
    root.classList.add("live");
  }

  get map() {
    const index = this.state.map;
    return (this.maps[index] ??= read(this.data.maps[index]));
  }

  get cells() {
    const { map, side } = this.state, name = `${map} ${side}`;
    if (!this.coarse.has(name)) this.coarse.set(name, squares(this.map, side));
    return this.coarse.get(name);
  }

  get state() {
    const values = new FormData(this.form);
    const [map, side, share] = ["map", "side", "share"].map((name) => Number(values.get(name)));
    return { map, side, share: share / 100, view: values.get("view"), sign: values.get("sign") };
  }

  // The part of the address after # may name the state: #map=1&view=heatmap&sign=positive&side=8&share=0.9&region=10,20,30,40
  follow() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    for (const name of ["map", "view", "sign", "side"]) {
      const knob = [...this.form.elements].find((input) => input.name === name && input.value === wanted.get(name));
      if (knob) knob.checked = true;
    }
    const share = Number(wanted.get("share"));
    if (share > 0 && share <= 1) this.form.elements.share.value = 100 * share;
    const [x, y, width, height] = (wanted.get("region") || "").split(",").map(Number);
    if (width > 0 && height > 0) this.box = this.fit({ left: x, top: y, right: x + width, bottom: y + height });
    this.grid = `${this.map.width} ${this.map.height}`;
    this.draw();
  }

  fit(box) {
    const { width, height } = this.map, inside = (value, most) => clip(Math.round(value) || 0, 0, most);
    const left = inside(box.left, width), right = inside(box.right, width);
    const top = inside(box.top, height), bottom = inside(box.bottom, height);
    return right > left && bottom > top ? { left, top, right, bottom } : null;
  }

  remember() {
    const { map, view, sign, side, share } = this.state, box = this.box;
    const region = box ? `&region=${box.left},${box.top},${box.right - box.left},${box.bottom - box.top}` : "";
    try {
      history.replaceState(null, "", `#map=${map}&view=${view}&sign=${sign}&side=${side}&share=${share}${region}`);
    } catch { /* some browsers do not let a file change its address */ }
  }

  draw() {
    const state = this.state, map = this.map, cells = this.cells;
    const limit = cells.limits[state.view === "scaled" ? "strength" : "signed"](state.share);
    this.canvas.getContext("2d").putImageData(paint(this.data, map, cells, state, limit), 0, 0);
    this.canvas.dataset.limit = limit;
    const share = `${Math.round(100 * state.share)}%`;
    this.form.elements.share.setAttribute("aria-valuetext", `${share} of the attribution, up to ${say(limit, false)}`);
    this.find("share").textContent = share;
    this.legend(state, map, limit);
    this.mark();
    this.tell();
  }

  legend({ view, sign, side }, map, limit) {
    const rgb = (colour) => `rgb(${colour.join()})`, { colours, ends } = this.data, size = say(limit, false);
    const [low, high] = ends[view] || [], middle = Array(3).fill(128 * this.data.dim);
    const stops = view === "scaled" ? ["#000", "#fff"] : (low ? [low, middle, high] : colours).map(rgb);
    const marks = view === "scaled" ? ["0", `${size} or more`] : [`−${size}`, "0", `+${size}`];
    const plain = view === "photo";
    this.find("ramp").style.background = `linear-gradient(to right,${stops.join()})`;
    this.find("ramp").style.visibility = this.find("ends").style.visibility = plain ? "hidden" : "visible";
    this.find("ends").replaceChildren(...marks.map((text) => {
      const mark = document.createElement("span");
      mark.textContent = text;
      return mark;
    }));
    const edge = side * map.grain, added = edge > 1 ? ` Each square adds up ${edge} × ${edge} pixels.` : "";
    const only = sign === "both" ? "" : ` Only what is ${sign} is shown.`, remark = map.remark ? ` This map: ${map.remark}.` : "";
    this.find("meaning").textContent = plain ? "The photo as the network gets it." : this.data.meanings[view] + added;
    this.find("sides").textContent = plain ? "" : map.about + only + remark;
  }

  // The marked region, or the cell under the keyboard's cursor, as an outline over the canvas.
  mark() {
    const outline = this.find("mark"), box = this.box || (this.keyed && this.cursor && this.cell(this.cursor));
    outline.hidden = !box;
    if (!box) return;
    const { width, height } = this.map, part = (value, most) => `${(100 * value) / most}%`;
    outline.style.left = part(box.left, width);
    outline.style.top = part(box.top, height);
    outline.style.width = part(box.right - box.left, width);
    outline.style.height = part(box.bottom - box.top, height);
  }

  cell(at) {
    return { left: at.x, top: at.y, right: at.x + 1, bottom: at.y + 1 };
  }

  tell() {
    const { sum, raised, signed, strength, width, height, all, grain } = this.map, at = this.cursor;
    const out = this.find("reading"), whole = say(sum(all));
    out.setAttribute("aria-live", this.keyed ? "polite" : "off");
    this.find("clear").hidden = !this.box;
    if (this.box) {
      const { left, right, top, bottom } = this.box, cells = (right - left) * (bottom - top);
      const total = sum(this.box), up = raised(this.box);
      const area = say((100 * cells) / (width * height), false);
      out.textContent = `This region contributes ${say(total)} of ${whole}: ${say(up)} from pixels that raise the score, ` +
        `${say(total - up)} from pixels that lower it. It covers ${area}% of the picture.`;
    } else if (at) {
      const i = at.y * width + at.x, what = grain > 1 ? `Block of ${grain} × ${grain} pixels` : "Pixel";
      const size = say(strength[i], false);
      out.textContent = `${what} at column ${at.x + 1}, row ${at.y + 1}: ${say(signed[i])} of ${whole} ` +
        `(its colours without signs: ${size}).`;
    } else {
      out.textContent = `All pixels together: ${whole}. Point at one to read it, drag over a region to add it up.`;
    }
  }

  place(event) {
    const frame = this.canvas.getBoundingClientRect(), { width, height } = this.map;
    const inside = (part, most) => clip(Math.floor(part * most), 0, most - 1);
    return {
      x: inside((event.clientX - frame.left) / frame.width, width),
      y: inside((event.clientY - frame.top) / frame.height, height),
    };
  }

  // The region between a corner and a cell, both inside it.
  span(from, to) {
    const [left, right] = [from.x, to.x].sort((a, b) => a - b), [top, bottom] = [from.y, to.y].sort((a, b) => a - b);
    return { left, top, right: right + 1, bottom: bottom + 1 };
  }

  show() {
    this.mark();
    this.tell();
  }

  listen() {
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("input", () => {
      const grid = `${this.map.width} ${this.map.height}`;
      if (this.grid !== grid) this.clear(); // regions of a map on another grid
      this.grid = grid;
      this.draw();
    });
    this.form.addEventListener("change", () => this.remember());
    window.addEventListener("hashchange", () => {
      this.follow();
      this.canvas.scrollIntoView({ block: "nearest" }); // a link further down the page leads here
    });
    this.find("clear").addEventListener("click", () => {
      this.clear();
      this.show();
      this.remember();
      this.canvas.focus(); // the button is gone
    });
    const select = this.find("select");
    select.addEventListener("click", () => {
      const on = select.getAttribute("aria-pressed") !== "true";
      select.setAttribute("aria-pressed", on);
      this.canvas.classList.toggle("selecting", on);
    });
    const handlers = {
      pointerdown: this.press, pointermove: this.move, pointerup: this.release, pointercancel: this.drop,
      pointerleave: this.leave, keydown: this.key, blur: this.leave,
    };
    for (const [name, handler] of Object.entries(handlers)) {
      this.canvas.addEventListener(name, (event) => handler.call(this, event));
    }
  }

  clear() {
    this.box = this.corner = null;
  }

  press(event) {
    if (event.button) return;
    this.keyed = false;
    this.cursor = this.place(event);
    this.clear();
    // A finger scrolls the page unless regions are being marked; a mouse or pen always marks.
    if (event.pointerType !== "touch" || this.canvas.classList.contains("selecting")) {
      this.corner = this.cursor;
      try { this.canvas.setPointerCapture(event.pointerId); } catch { /* a pointer that is gone already */ }
    }
    this.show();
  }

  move(event) {
    if (event.pointerType === "touch" && !this.corner) return;
    this.keyed = false;
    this.cursor = this.place(event);
    const { x, y } = this.cursor;
    const moved = this.corner && (this.box || x !== this.corner.x || y !== this.corner.y);
    if (moved) this.box = this.span(this.corner, this.cursor);
    this.show();
  }

  release() {
    this.corner = null;
    this.remember();
  }

  drop() {
    this.clear();
    this.show();
  }

  leave(event) {
    if (this.corner && !this.keyed) return;
    if (event.pointerType === "touch") return; // what was tapped stays to be read
    this.cursor = this.corner = null;
    this.show();
  }

  key(event) {
    const step = event.shiftKey ? 10 : 1, { width, height } = this.map;
    const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
    if (event.key in moves) {
      const from = this.cursor || { x: width >> 1, y: height >> 1 }, [x, y] = moves[event.key];
      this.cursor = { x: clip(from.x + x, 0, width - 1), y: clip(from.y + y, 0, height - 1) };
      this.box = this.corner ? this.span(this.corner, this.cursor) : null;
    } else if (event.key === "Enter" || event.key === " ") {
      this.cursor ??= { x: width >> 1, y: height >> 1 };
      if (this.corner) this.corner = null; // the region stays, the next arrow leaves it
      else this.box = this.span((this.corner = this.cursor), this.cursor);
    } else if (event.key === "Escape") {
      this.clear();
    } else return;
    event.preventDefault();
    this.keyed = true;
    this.show();
    this.remember();
  }
}

for (const root of document.querySelectorAll("[data-viewer]")) new Viewer(root);
