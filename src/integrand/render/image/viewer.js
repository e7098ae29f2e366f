// Lets a reader choose what the canvas shows, and reads out pixels and regions. Nothing is loaded, stored or sent.
const WIDEST = 1100, SHARP = 112;

// Views whose parts are found in Python and say their own texts.
const PARTED = ["outlines", "regions"];

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
    const size = data.width * data.height, longest = Math.max(data.width, data.height), sharp = longest < SHARP;
    // Corners of lines are rounded where pixels are too small to be seen one by one.
    this.data = { ...data, photo: bytes(data.photo), labels: labelled(data.labels, size), rounds: sharp ? 0 : 4 };
    if (data.aim) this.data.aim = labelled(data.aim, size);
    this.zoom = Math.max(1, Math.ceil(WIDEST / longest)); // so that lines and numbers are fine, and saved pictures large
    this.plain = document.createElement("canvas"); // the view pixel by pixel
    [this.plain.width, this.plain.height] = [data.width, data.height];
    this.maps = data.maps.map(() => null); // read when first looked at
    this.coarse = new Map(); // maps in squares, by map and side
    this.canvas = this.find("canvas");
    this.form = this.find("controls");
    this.canvas.width = data.width * this.zoom;
    this.canvas.height = data.height * this.zoom;
    this.sharp = sharp;
    this.spot = null; // the region under the pointer; of outlines, 1 inside and 0 outside
    this.box = null; // a region, in cells of the map
    this.corner = null; // where it began
    this.cursor = null; // the cell that was looked at last
    this.listen();
    this.follow();
    root.classList.add("live");
  }

  get map() {
    const index = this.state.map;
    return (this.maps[index] ??= read(this.data.maps[index], this.data.width * this.data.height));
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
    const state = this.state, map = this.map, cells = this.cells, parted = PARTED.includes(state.view);
    const known = map.sums.filter(Number.isFinite).map(Math.abs);
    const limit = state.view === "regions" ? Math.max(0, ...known)
      : cells.limits[state.view === "scaled" ? "strength" : "signed"](state.share);
    this.plain.getContext("2d").putImageData(paint(this.data, map, cells, state, limit), 0, 0);
    this.canvas.dataset.limit = limit;
    const share = `${Math.round(100 * state.share)}%`;
    this.form.elements.share.setAttribute("aria-valuetext", `${share} of the attribution, up to ${say(limit, false)}`);
    this.find("share").textContent = share;
    for (const name of ["side", "sign"]) this.form.querySelector(`[data-choice="${name}"]`).hidden = parted;
    this.form.querySelector(".slide").hidden = parted;
    this.find("svg").hidden = !parted;
    this.legend(state, map, limit);
    this.compose();
    this.show();
  }

  // The picture with its lines and numbers, at the size of the canvas.
  compose() {
    this.drawn = this.spot;
    const pen = this.canvas.getContext("2d"), { view } = this.state, { width, height } = this.canvas;
    pen.imageSmoothingEnabled = !this.sharp && this.zoom > 1;
    pen.imageSmoothingQuality = "high";
    pen.drawImage(this.plain, 0, 0, width, height);
    const line = Math.max(width, height) / 520; // a pixel of the screen, as the picture is usually shown
    pen.lineJoin = "round";
    pen.save();
    pen.scale(this.zoom, this.zoom);
    for (const [path, colour, thick] of lines(this.data, this.map, view, this.spot)) {
      pen.strokeStyle = colour;
      pen.lineWidth = (thick * line) / this.zoom;
      pen.stroke(new Path2D(path));
    }
    pen.restore();
    pen.font = `600 ${13 * line}px system-ui, sans-serif`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    for (const [x, y, text] of marks(this.data, this.map, view)) {
      pen.fillStyle = "#fffffff0";
      pen.beginPath();
      pen.arc(x * width, y * height, 9 * line, 0, 7);
      pen.fill();
      pen.fillStyle = "#111";
      pen.fillText(text, x * width, y * height + line);
    }
  }

  // The same as an SVG document: the photo as pixels, lines and numbers as shapes.
  svg() {
    const { width, height } = this.data, { view } = this.state, line = Math.max(width, height) / 520;
    const space = "http://www.w3.org/2000/svg", root = document.createElementNS(space, "svg");
    const add = (name, attributes, text = "") => {
      const element = document.createElementNS(space, name);
      for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
      element.textContent = text;
      root.append(element);
    };
    for (const [key, value] of Object.entries({ viewBox: `0 0 ${width} ${height}`, width: 4 * width, height: 4 * height })) {
      root.setAttribute(key, value);
    }
    add("image", { width, height, href: this.plain.toDataURL() });
    for (const [path, stroke, thick] of lines(this.data, this.map, view, null)) {
      add("path", { d: path, stroke, fill: "none", "stroke-width": thick * line, "stroke-linejoin": "round" });
    }
    for (const [x, y, text] of marks(this.data, this.map, view)) {
      const [cx, cy] = [x * width, y * height], font = "600 13px system-ui, sans-serif";
      add("circle", { cx, cy, r: 9 * line, fill: "#fff", "fill-opacity": 0.94 });
      const style = `font:${font};font-size:${13 * line}px`;
      add("text", { x: cx, y: cy, dy: "0.35em", "text-anchor": "middle", fill: "#111", style }, text);
    }
    return new XMLSerializer().serializeToString(root);
  }

  legend({ view, sign, side }, map, limit) {
    const rgb = (colour) => `rgb(${colour.join()})`, { colours, ends } = this.data, size = say(limit, false);
    const [low, high] = ends[view] || [], middle = Array(3).fill(128 * this.data.dim);
    const stops = view === "scaled" ? ["#000", "#fff"] : (low ? [low, middle, high] : colours).map(rgb);
    const marks = view === "scaled" ? ["0", `${size} or more`] : [`−${size}`, "0", `+${size}`];
    const plain = view === "photo", bare = plain || view === "outlines";
    this.find("ramp").style.background = `linear-gradient(to right,${stops.join()})`;
    this.find("ramp").parentElement.hidden = bare;
    this.find("ends").replaceChildren(...marks.map((text) => {
      const mark = document.createElement("span");
      mark.textContent = text;
      return mark;
    }));
    const edge = PARTED.includes(view) ? 1 : side * map.grain;
    const added = edge > 1 ? ` Each square adds up ${edge} × ${edge} pixels.` : "";
    const only = sign === "both" || PARTED.includes(view) ? "" : ` Only what is ${sign} is shown.`;
    const remark = map.remark ? ` This map: ${map.remark}.` : "";
    const said = plain ? "The photo as the network gets it." : this.data.meanings[view] + added;
    this.find("meaning").textContent = this.data.aimed ? `${said} ${this.data.aimed}` : said;
    this.find("sides").textContent = plain ? "" : map.about + only + remark;
  }

  // The marked region, or the cell under the keyboard's cursor, as an outline over the canvas.
  mark() {
    const parted = PARTED.includes(this.state.view);
    const outline = this.find("mark"), box = this.box || (this.keyed && this.cursor && !parted && this.cell(this.cursor));
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
    const out = this.find("reading"), whole = say(sum(all)), { view } = this.state;
    out.setAttribute("aria-live", this.keyed ? "polite" : "off");
    this.find("clear").hidden = !this.box;
    if (this.box) {
      const { left, right, top, bottom } = this.box, cells = (right - left) * (bottom - top);
      const total = sum(this.box), up = raised(this.box);
      const area = say((100 * cells) / (width * height), false);
      out.textContent = `This rectangle contributes ${say(total)} of ${whole}: ${say(up)} from pixels that raise the score, ` +
        `${say(total - up)} from pixels that lower it. It covers ${area}% of the picture. Its error is not known; that of ` +
        "regions is.";
    } else if (view === "outlines") {
      out.textContent = this.map.focus[this.spot ?? 2];
    } else if (view === "regions") {
      out.textContent = this.spot === null ? `${this.map.says.length} regions add up to ${whole}. Point at one to read it.`
        : this.map.says[this.spot];
    } else if (at) {
      const i = at.y * width + at.x, what = grain > 1 ? `Block of ${grain} × ${grain} pixels` : "Pixel";
      const size = say(strength[i], false);
      out.textContent = `${what} at column ${at.x + 1}, row ${at.y + 1}: ${say(signed[i])} of ${whole} ` +
        `(its colours without signs: ${size}).`;
    } else {
      out.textContent = `All pixels together: ${whole}. Point at one to read it, drag over a rectangle to add it up.`;
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

  // The region under the pointer, in views that have some.
  part(event) {
    const { view } = this.state, { width, height, labels } = this.data, frame = this.canvas.getBoundingClientRect();
    if (!PARTED.includes(view)) return null;
    const inside = (share, most) => clip(Math.floor(share * most), 0, most - 1);
    const x = inside((event.clientX - frame.left) / frame.width, width);
    const i = inside((event.clientY - frame.top) / frame.height, height) * width + x;
    return view === "regions" ? labels[i] : this.map.inside[i];
  }

  // The region that an arrow key leads to: the nearest in its direction, counting what lies aside three times.
  beyond(x, y) {
    if (this.state.view === "outlines") return 1 - (this.spot ?? 0);
    if (this.spot === null) return this.map.order[0];
    const [left, top] = this.data.regions[this.spot];
    let best = this.spot, least = Infinity;
    this.data.regions.forEach(([u, v], k) => {
      const ahead = (u - left) * Math.sign(x) + (v - top) * Math.sign(y);
      const aside = Math.abs((u - left) * Math.sign(y)) + Math.abs((v - top) * Math.sign(x));
      if (ahead > 0.001 && ahead + 3 * aside < least) [best, least] = [k, ahead + 3 * aside];
    });
    return best;
  }

  // The region between a corner and a cell, both inside it.
  span(from, to) {
    const [left, right] = [from.x, to.x].sort((a, b) => a - b), [top, bottom] = [from.y, to.y].sort((a, b) => a - b);
    return { left, top, right: right + 1, bottom: bottom + 1 };
  }

  show() {
    if (this.drawn !== this.spot) this.compose();
    this.mark();
    this.tell();
  }

  listen() {
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("input", () => {
      const grid = `${this.map.width} ${this.map.height}`;
      if (this.grid !== grid) this.clear(); // rectangles of a map on another grid
      this.grid = grid;
      this.spot = null;
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
    this.find("svg").addEventListener("click", (event) => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([this.svg()], { type: "image/svg+xml" }));
      link.download = event.target.dataset.file;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
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
    this.spot = this.part(event);
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
    this.spot = this.part(event);
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
    this.cursor = this.corner = this.spot = null;
    this.show();
  }

  key(event) {
    const step = event.shiftKey ? 10 : 1, { width, height } = this.map;
    const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
    if (event.key in moves && PARTED.includes(this.state.view)) {
      this.clear();
      this.spot = this.beyond(...moves[event.key]);
    } else if (event.key in moves) {
      const from = this.cursor || { x: width >> 1, y: height >> 1 }, [x, y] = moves[event.key];
      this.cursor = { x: clip(from.x + x, 0, width - 1), y: clip(from.y + y, 0, height - 1) };
      this.box = this.corner ? this.span(this.corner, this.cursor) : null;
    } else if ((event.key === "Enter" || event.key === " ") && !PARTED.includes(this.state.view)) {
      this.cursor ??= { x: width >> 1, y: height >> 1 };
      if (this.corner) this.corner = null; // the region stays, the next arrow leaves it
      else this.box = this.span((this.corner = this.cursor), this.cursor);
    } else if (event.key === "Escape") {
      this.clear();
      this.spot = null;
    } else return;
    event.preventDefault();
    this.keyed = true;
    this.show();
    this.remember();
  }
}

for (const root of document.querySelectorAll("[data-viewer]")) new Viewer(root);
