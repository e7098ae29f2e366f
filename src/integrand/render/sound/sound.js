// The playhead over all layers, and hearing a window: exactly its samples, with a short fade at both ends.
for (const part of document.querySelectorAll("[data-sound]")) {
  const audio = part.querySelector("audio");
  const head = part.querySelector(".head");
  const windows = [...part.querySelectorAll(".over rect[data-start]")];
  let chosen = null;

  const choose = (element) => {
    chosen = element;
  };
  for (const one of windows) for (const kind of ["pointerover", "focus", "click"]) one.addEventListener(kind, () => choose(one));
  if (!audio || !head) continue;

  const seconds = Number(head.dataset.seconds);
  const place = (at) => {
    head.style.left = `${Math.max(0, Math.min(100, (100 * at) / seconds))}%`;
  };
  const follow = () => {
    place(audio.currentTime);
    if (!audio.paused && !audio.ended) requestAnimationFrame(follow);
  };
  for (const kind of ["play", "seeked", "timeupdate", "pause"]) audio.addEventListener(kind, follow);

  // The samples are decoded from the page itself: 16 bits, one channel, after 44 bytes of header.
  let context = null;
  let buffer = null;
  let playing = null;
  const decoded = () => {
    if (buffer) return buffer;
    const text = atob(audio.getAttribute("src").split(",")[1]);
    const bytes = Uint8Array.from(text, (sign) => sign.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    const count = (bytes.length - 44) >> 1;
    buffer = context.createBuffer(1, count, view.getUint32(24, true));
    const samples = buffer.getChannelData(0);
    for (let k = 0; k < count; k++) samples[k] = view.getInt16(44 + 2 * k, true) / 32768;
    return buffer;
  };

  const hear = (start, end) => {
    audio.pause();
    context ??= new AudioContext();
    context.resume();
    if (playing) playing.stop();
    const source = context.createBufferSource();
    const gain = context.createGain();
    const [from, to] = [Math.max(0, start), Math.min(seconds, end)];
    const now = context.currentTime + 0.01;
    const fade = Math.min(0.003, (to - from) / 4);
    gain.gain.setValueAtTime(0, now);
    gain.gain.linearRampToValueAtTime(1, now + fade);
    gain.gain.setValueAtTime(1, now + (to - from) - fade);
    gain.gain.linearRampToValueAtTime(0, now + (to - from));
    source.buffer = decoded();
    source.connect(gain).connect(context.destination);
    source.start(now, from, to - from);
    playing = source;
    const run = () => {
      if (playing !== source) return;
      const at = context.currentTime - now;
      place(from + Math.max(0, Math.min(at, to - from)));
      if (at < to - from) requestAnimationFrame(run);
    };
    run();
  };

  const around = 0.25;
  const hearElement = (element, more) => {
    const [start, end] = [Number(element.dataset.start), Number(element.dataset.end)];
    hear(start - (more ? around : 0), end + (more ? around : 0));
    part.dataset.heard = `${start}-${end}`;
  };
  for (const one of windows) {
    one.addEventListener("click", () => hearElement(one, false));
    one.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      hearElement(one, false);
    });
  }
  for (const button of document.querySelectorAll("button[data-hear]")) {
    button.addEventListener("click", () => {
      const element = button.dataset.start ? button : chosen ?? windows[0];
      if (element) hearElement(element, button.dataset.hear === "around");
    });
  }
  place(0);
}
