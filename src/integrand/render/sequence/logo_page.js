// The logo of a long sequence: letters as wide as the reader likes, and an overview that leads to a place.
for (const root of document.querySelectorAll("[data-logo]")) {
  const strip = root.querySelector("[data-strip]");
  const inner = strip.firstElementChild;
  const zoom = root.querySelector("[data-zoom]");
  const overview = root.querySelector("[data-overview]");
  const seen = overview?.querySelector(".seen");
  const show = () => {
    if (!seen || !inner.offsetWidth) return;
    const wide = overview.viewBox.baseVal.width;
    seen.setAttribute("x", (wide * strip.scrollLeft) / inner.offsetWidth);
    seen.setAttribute("width", Math.min(wide, (wide * strip.clientWidth) / inner.offsetWidth));
  };
  zoom?.addEventListener("input", () => {
    // What is in the middle stays there.
    const middle = (strip.scrollLeft + strip.clientWidth / 2) / inner.offsetWidth;
    root.style.setProperty("--col", `${zoom.value}px`);
    strip.scrollLeft = middle * inner.offsetWidth - strip.clientWidth / 2;
    show();
  });
  const go = (event) => {
    const box = overview.getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width;
    strip.scrollLeft = share * inner.offsetWidth - strip.clientWidth / 2;
  };
  overview?.addEventListener("pointerdown", (event) => {
    overview.setPointerCapture(event.pointerId);
    go(event);
  });
  overview?.addEventListener("pointermove", (event) => {
    if (event.buttons) go(event);
  });
  strip.addEventListener("scroll", show, { passive: true });
  addEventListener("resize", show);
  const first = document.getElementById(root.dataset.first ?? "");
  if (first) {
    // The page begins where most of the evidence is.
    const box = first.getBoundingClientRect();
    strip.scrollLeft = box.left - strip.getBoundingClientRect().left - strip.clientWidth / 2;
  }
  show();
}
for (const link of document.querySelectorAll("[data-goto]")) {
  link.addEventListener("click", (event) => {
    const column = document.getElementById(link.dataset.goto);
    if (!column) return;
    event.preventDefault();
    column.scrollIntoView({ block: "nearest", inline: "center" });
    column.focus({ preventScroll: true });
  });
}
