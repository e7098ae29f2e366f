/*
 * A paper to draw a molecule on, in a frame of its own: sandbox="allow-scripts", so that it shares nothing with the app.
 * From the app: {integrand: "molecule", smiles} and {integrand: "theme", theme: "light" | "dark" | ""}.
 * To the app: {integrand: "ready"} once, {integrand: "drawn", smiles} after each change by hand; "" is an empty paper.
 */
"use strict";

(() => {
  const LONGEST = 1000; // Characters of a SMILES, in and out: up to three seconds to lay out, and twice as many take eighteen.
  const LONGEST_FILE = 50000; // Characters of a pasted molfile, which has its own places for the atoms.
  const WAIT = 200; // Milliseconds without a change before the app is told.
  const INSIDE = `
    :host { overflow: hidden }
    #tools { flex: none }
    div { min-width: 0 }
    canvas:focus-visible { outline: 2px solid #175cd3 !important; outline-offset: -2px }
    dialog { box-sizing: border-box; left: 0 !important; right: 0 !important; max-width: calc(100% - 8px); margin-inline: auto }
    @media (pointer: coarse) { #tools { transform: scale(1.3); transform-origin: 0 0; margin: 0 14px 0 0 } }
  `;

  const { CanvasEditor, Molecule } = OCL;
  const note = document.getElementById("note");
  const place = document.getElementById("paper");
  const app = window.parent;
  const home = location.origin; // That of the address: the document's own is opaque in the sandbox.
  let known = ""; // What is on the paper, as far as the app knows.
  let heard = ""; // The last SMILES that the app sent or was sent.
  let timer = 0;
  let held = false; // Whether a mouse button or a finger is down.
  let later = null; // The SMILES that came meanwhile, or while the frame was hidden.

  const say = (text) => {
    note.textContent = text;
  };
  const tell = (message) => {
    if (app !== window) app.postMessage(message, home);
  };

  const editor = new CanvasEditor(place);
  const inside = place.firstElementChild.shadowRoot;
  const [tools, paper] = inside.querySelectorAll("canvas");

  function code(molecule) {
    return molecule.getCompactCopy().getIDCode();
  }

  function written() {
    const molecule = editor.getMolecule();
    return molecule.getAllAtoms() ? molecule.getCompactCopy().toIsomericSmiles() : "";
  }

  function report() {
    timer = 0;
    let smiles;
    try {
      smiles = written();
    } catch {
      return say("This drawing cannot be written as SMILES.");
    }
    if (smiles.length > LONGEST) return say(`This drawing is too large: its SMILES has more than ${LONGEST} characters.`);
    if (smiles === known) return;
    say("");
    known = heard = smiles;
    tell({ integrand: "drawn", smiles });
  }

  function show(smiles) {
    later = null;
    if (smiles === heard) return; // The app says again what was drawn: what has been added meanwhile stays.
    if (held || !place.clientWidth) {
      later = smiles;
      return;
    }
    clearTimeout(timer);
    let molecule = new Molecule(0, 0);
    let trouble = "";
    if (smiles.length > LONGEST) {
      trouble = `Too long to be drawn here: more than ${LONGEST} characters.`;
    } else if (smiles) {
      try {
        molecule = Molecule.fromSmiles(smiles);
      } catch {
        trouble = "This SMILES cannot be drawn here.";
      }
    }
    molecule.setFragment(false);
    if (code(molecule) !== code(editor.getMolecule())) { // The same one stays as it was drawn.
      // The pointer leaves the atom that it is on: the library would look for it in the new molecule.
      paper.dispatchEvent(new PointerEvent("pointermove", { clientX: -9999, clientY: -9999 }));
      editor.setMolecule(molecule);
    }
    heard = smiles;
    known = written();
    say(trouble);
  }

  function catchUp() {
    if (later !== null) show(later);
  }

  editor.setOnChangeListener(({ type }) => {
    if (type !== "molecule") return;
    clearTimeout(timer);
    timer = setTimeout(report, WAIT);
  });

  new ResizeObserver(() => setTimeout(catchUp, 0)).observe(place);
  inside.addEventListener("pointerdown", (event) => {
    held = event.button === 0;
    if (!held) event.stopPropagation(); // The library would wait for the end of a right click, which a menu may swallow.
  }, true);
  for (const kind of ["pointerup", "pointercancel"]) {
    addEventListener(kind, () => {
      held = false;
      setTimeout(catchUp, 0);
    }, true);
    // The library waits for this at the document, where the position is no longer one on its canvas, and not for a cancelled
    // touch, after which it would be deaf.
    inside.addEventListener(kind, (event) => {
      event.stopPropagation();
      const { pointerId, button, offsetX, offsetY, shiftKey, ctrlKey, altKey } = event;
      const [clientX, clientY] = [offsetX - scrollX, offsetY - scrollY];
      const up = { pointerId, button, clientX, clientY, shiftKey, ctrlKey, altKey };
      document.dispatchEvent(new PointerEvent("pointerup", up));
    });
  }

  addEventListener("message", ({ source, origin, data }) => {
    if (source !== app || app === window || origin !== home || typeof data !== "object" || data === null) return;
    if (data.integrand === "molecule" && typeof data.smiles === "string") {
      show(data.smiles.length > LONGEST ? data.smiles.slice(0, LONGEST + 1) : data.smiles.trim());
    } else if (data.integrand === "theme" && ["light", "dark", ""].includes(data.theme)) {
      document.documentElement.dataset.theme = data.theme;
    }
  });

  // The library's dialogs wait for a form to be sent, which the sandbox does not let happen, and its messages for an alert.
  inside.addEventListener("click", (event) => {
    const button = event.target.closest("dialog form button[type=submit]");
    if (!button) return;
    event.preventDefault();
    button.form.dispatchEvent(new SubmitEvent("submit", { cancelable: true, submitter: button }));
  });
  window.alert = say;

  // The library takes any text for something; here it is a molfile or SMILES.
  addEventListener("paste", (event) => {
    const text = event.clipboardData.getData("text");
    const file = /V[23]000/.test(text);
    let trouble = "";
    if (text.length > (file ? LONGEST_FILE : LONGEST)) {
      trouble = "Too long to be pasted here.";
    } else if (!file) {
      try {
        Molecule.fromSmiles(text);
      } catch {
        trouble = "What was pasted is no SMILES that can be drawn here.";
      }
    }
    if (trouble) event.stopPropagation();
    say(trouble);
  }, true);
  for (const kind of ["dragover", "drop"]) addEventListener(kind, (event) => event.preventDefault());

  const sheet = new CSSStyleSheet();
  sheet.replaceSync(INSIDE);
  inside.adoptedStyleSheets = [...inside.adoptedStyleSheets, sheet];
  tools.id = "tools";
  tools.setAttribute("role", "img");
  tools.setAttribute("aria-label", "Tools for drawing, for a mouse, a pen or a finger");
  paper.setAttribute("role", "img");
  paper.setAttribute("aria-label", "The drawn molecule. Without a pointer, type its SMILES in the field of the app, or paste it here.");

  tell({ integrand: "ready" });
})();
