// From numbers to pixels: the maps of viewer.py, coloured as the views of views.py colour them.
const clip = (value, low, high) => Math.max(low, Math.min(high, value));
const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

// Half-precision floats, little-endian: not every browser has Float16Array.
function halves(text, unit) {
  const view = new DataView(bytes(text).buffer);
  const out = new Float64Array(view.byteLength / 2);
  for (let i = 0; i < out.length; i++) {
    const bits = view.getUint16(2 * i, true);
    const exponent = (bits >> 10) & 31, fraction = bits & 1023;
    const size = exponent === 31 ? NaN : exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction;
    out[i] = (bits >> 15 ? -size : size) * unit;
  }
  return out;
}

// A map of labels from the lengths of its runs.
function labelled(runs, size) {
  const out = new Uint16Array(size);
  for (let i = 0, at = 0; i < runs.length; i += 2) out.fill(runs[i], at, (at += runs[i + 1]));
  return out;
}

// The border of all pixels with a label, as the text of an SVG path; corners are rounded by as many averages of neighbours.
function border(labels, width, height, label, rounds) {
  const next = new Map(), wide = width + 1;
  const has = (x, y) => x >= 0 && y >= 0 && x < width && y < height && labels[y * width + x] === label;
  const edge = (from, to) => next.has(from) ? next.get(from).push(to) : next.set(from, [to]);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      if (!has(x, y)) continue;
      const corner = y * wide + x;
      if (!has(x, y - 1)) edge(corner, corner + 1);
      if (!has(x + 1, y)) edge(corner + 1, corner + 1 + wide);
      if (!has(x, y + 1)) edge(corner + 1 + wide, corner + wide);
      if (!has(x - 1, y)) edge(corner + wide, corner);
    }
  }
  const loops = [];
  for (const [start, ends] of next) {
    while (ends.length) {
      let points = [], at = start;
      do {
        points.push([at % wide, Math.floor(at / wide)]);
        at = next.get(at).pop();
      } while (at !== start && next.get(at).length);
      for (let round = 0; round < rounds; round++) {
        points = points.map(([x, y], i) => {
          const [u, v] = points[(i + 1) % points.length];
          return [(x + u) / 2, (y + v) / 2];
        });
      }
      loops.push(`M${points.map(([x, y]) => `${+x.toFixed(2)},${+y.toFixed(2)}`).join("L")}Z`);
    }
  }
  return loops.join("");
}

// Sorted magnitudes with their running sum, so that the limit for a share is one binary search.
function ranked(values) {
  const size = values.filter(Number.isFinite).map(Math.abs).sort();
  const most = size.length ? size[size.length - 1] : 0;
  let sum = 0;
  const mass = size.map((value) => (sum += value / most));
  return (share) => {
    if (!most) return 0;
    const wanted = share * sum;
    let low = 0, high = size.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (mass[middle] < wanted) low = middle + 1; else high = middle;
    }
    return size[low];
  };
}

// Sums over every rectangle that starts at the first pixel, so that any rectangle is four of them.
function table(values, width, height, of) {
  const sums = new Float64Array((width + 1) * (height + 1));
  for (let y = 0; y < height; y++) {
    let row = 0;
    for (let x = 0; x < width; x++) {
      const value = values[y * width + x];
      row += Number.isFinite(value) ? of(value) : 0;
      sums[(y + 1) * (width + 1) + x + 1] = sums[y * (width + 1) + x + 1] + row;
    }
  }
  const at = (x, y) => sums[y * (width + 1) + x];
  return (box) => at(box.right, box.bottom) - at(box.left, box.bottom) - at(box.right, box.top) + at(box.left, box.top);
}

function read(map, size) {
  const signed = halves(map.signed, map.unit), strength = halves(map.strength, map.unit);
  const all = { left: 0, top: 0, right: map.width, bottom: map.height };
  // What rounding to halves left out of the whole is spread evenly, so that the whole is exact.
  const rough = table(signed, map.width, map.height, (value) => value)(all);
  const slip = map.total === null ? 0 : (map.total - rough) / signed.length;
  return {
    ...map, signed, strength, all, inside: labelled(map.inside, size),
    limits: { signed: ranked(signed), strength: ranked(strength) },
    sum: table(signed, map.width, map.height, (value) => value + slip),
    raised: table(signed, map.width, map.height, (value) => Math.max(value, 0)),
  };
}

// The same map in squares: attributions add up, so that a square has a number too.
function squares(map, side) {
  if (side === 1) return map;
  const width = Math.ceil(map.width / side), height = Math.ceil(map.height / side);
  const signed = new Float64Array(width * height), strength = new Float64Array(width * height);
  for (let y = 0; y < map.height; y++) {
    for (let x = 0; x < map.width; x++) {
      const to = Math.floor(y / side) * width + Math.floor(x / side), from = y * map.width + x;
      signed[to] += map.signed[from];
      strength[to] += map.strength[from];
    }
  }
  return { width, height, signed, strength, limits: { signed: ranked(signed), strength: ranked(strength) } };
}

function ramp(colours, at) {
  const place = ((at + 1) / 2) * (colours.length - 1);
  const low = Math.min(Math.floor(place), colours.length - 2), part = place - low;
  return [0, 1, 2].map((c) => colours[low][c] + (colours[low + 1][c] - colours[low][c]) * part);
}

const mix = (one, other, part) => one.map((value, c) => value + (other[c] - value) * part);
const grey = (pixel, dim) => Array(3).fill(dim * (0.2126 * pixel[0] + 0.7152 * pixel[1] + 0.0722 * pixel[2]));
const tinted = (ends) => (pixel, at, data) => mix(grey(pixel, data.dim), data.ends[ends][at > 0 ? 1 : 0], Math.abs(at));

// Each view: from a pixel of the photo (0 to 255) and its attribution over the limit (-1 to 1) to a colour. That of outlines is
// whether the pixel is inside, that of regions the sum of its region.
const VIEWS = {
  photo: (pixel) => pixel,
  outlines: (pixel, at, data) => (at ? pixel : grey(pixel, data.dimmed)),
  regions: (pixel, at, data) =>
    mix(grey(pixel, 1 - data.pale).map((value) => value + 255 * data.pale), ramp(data.colours, at), data.tint),
  scaled: (pixel, at) => pixel.map((value) => value * Math.abs(at)),
  signed: tinted("signed"),
  "green-red": tinted("green-red"),
  heatmap: (pixel, at, data) => ramp(data.colours, at),
  overlay: (pixel, at, data) => mix(pixel, ramp(data.colours, at), data.opacity * Math.abs(at)),
};

// What a view shows of each pixel of the photo, over the limit: -1 to 1, NaN where it is not known.
function levels(data, map, cells, state, limit) {
  const { width, height } = data, inside = (value) => clip(value / (limit || 1), -1, 1);
  if (state.view === "outlines") return Float64Array.from(map.inside);
  if (state.view === "regions") return Float64Array.from(data.labels, (label) => inside(map.sums[label] ?? NaN));
  const values = state.view === "scaled" ? cells.strength : cells.signed, out = new Float64Array(width * height);
  for (let y = 0, i = 0; y < height; y++) {
    const row = Math.floor(Math.floor((y * map.height) / height) / state.side) * cells.width;
    for (let x = 0; x < width; x++, i++) {
      const cell = row + Math.floor(Math.floor((x * map.width) / width) / state.side), sign = cells.signed[cell];
      const hidden = (state.sign === "positive" && !(sign > 0)) || (state.sign === "negative" && !(sign < 0));
      out[i] = !Number.isFinite(values[cell]) ? NaN : hidden ? 0 : inside(values[cell]);
    }
  }
  return out;
}

function paint(data, map, cells, state, limit) {
  const { width, height, photo } = data, view = VIEWS[state.view], at = levels(data, map, cells, state, limit);
  const picture = new ImageData(width, height);
  for (let i = 0; i < at.length; i++) {
    const pixel = [photo[3 * i], photo[3 * i + 1], photo[3 * i + 2]];
    const colour = Number.isFinite(at[i]) || state.view === "photo" ? view(pixel, at[i], data) : data.unknown;
    picture.data.set(colour, 4 * i); // a clamped array rounds halves to even, as numpy does
    picture.data[4 * i + 3] = 255;
  }
  return picture;
}

// The lines over a picture, from the lowest to the uppermost: the text of a path, its colour and its width on a screen.
function lines(data, map, view, spot) {
  if (!data.aim) return inner(data, map, view, spot);
  // The border of a mask is rounded as outlines are, that of a box hardly seen to be.
  const path = (data.around ??= border(data.aim, data.width, data.height, 1, data.rounds));
  return [...inner(data, map, view, spot), [path, "#101010", 4.4], [path, "#ffd60a", 2.4]];
}

function inner(data, map, view, spot) {
  const { width, height, rounds } = data;
  if (view === "outlines") {
    if (!map.inside.includes(1)) return [];
    const path = (map.outline ??= border(map.inside, width, height, 1, rounds));
    return [[path, "#101010", 3.4], [path, "#fff", 1.7]];
  }
  if (view !== "regions") return [];
  data.borders ??= data.regions.map((_, k) => border(data.labels, width, height, k, rounds));
  const strong = map.order.slice(0, data.numbered).filter((k) => map.sums[k] !== null);
  const fine = data.borders.map((path) => [path, "#ffffffb0", 0.8]);
  const main = strong.flatMap((k) => [[data.borders[k], "#101010", 2.6], [data.borders[k], "#fff", 1.4]]);
  const here = data.borders[spot] === undefined ? [] : [[data.borders[spot], "#fff", 5], [data.borders[spot], "#101010", 2.6]];
  return [...fine, ...main, ...here];
}

// The numbers on a picture: place as shares of its sides, and text.
function marks(data, map, view) {
  if (view !== "regions") return [];
  const strong = map.order.slice(0, data.numbered).filter((k) => map.sums[k] !== null);
  return strong.map((k, i) => [...data.regions[k], String(i + 1)]);
}
