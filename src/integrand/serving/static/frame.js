// Tells the app that shows this page in a frame how high the page is, so that only the app itself scrolls, and which view the
// reader has chosen, so that a more exact result of the same photo opens with it.
"use strict";
{
  const app = window.parent;
  const send = (about) => app.postMessage({ integrand: "frame", ...about }, "*");
  const size = () => send({ height: Math.ceil(document.body.getBoundingClientRect().height) });
  const state = () => setTimeout(() => send({ state: location.hash }), 50);
  if (app !== window) {
    new ResizeObserver(size).observe(document.body);
    for (const name of ["change", "pointerup", "keyup"]) document.addEventListener(name, state);
    size();
  }
}
