// A result that can be asked again: one labelled control for each thing to choose, a status line, and the page in a frame.
const SANDBOX = "allow-scripts allow-downloads";

const element = (tag, attributes, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};

// Notebooks have themes of their own, whatever the system's is: light letters mean a dark one.
const isDark = (el) => {
  const [red, green, blue] = getComputedStyle(el).color.match(/[\d.]+/g).map(Number);
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140;
};

const chooser = (control, chosen, changed) => {
  const options = control.options.map(([value, label]) => {
    const option = element("option", { value }, label);
    option.selected = value === chosen;
    return option;
  });
  const select = element("select", { "data-name": control.name }, ...options);
  select.addEventListener("change", changed);
  return [select, element("label", {}, element("span", {}, control.label), select)];
};

const same = (one, other) => Object.keys(one).every((name) => one[name] === other[name]);

const render = ({ model, el }) => {
  const frame = element("iframe", { sandbox: SANDBOX, loading: "lazy" });
  const status = element("p", { role: "status" });
  let waiting = false; // for the kernel
  let next = null; // what was chosen meanwhile; only the last of it is asked

  const choice = () => Object.fromEntries(selects.map((select) => [select.dataset.name, select.value]));
  const ask = (wanted) => {
    waiting = true;
    model.set("choice", wanted);
    model.save_changes();
  };
  const changed = () => {
    say("computing", "Computing …");
    if (waiting) next = choice();
    else ask(choice());
  };

  const made = model.get("controls").map((control) => chooser(control, model.get("choice")[control.name], changed));
  const selects = made.map(([select]) => select);
  const controls = element("div", { class: "controls" }, ...made.map(([, label]) => label));

  const say = (state, text) => {
    status.textContent = text;
    root.dataset.state = state;
    frame.setAttribute("aria-busy", String(state === "computing"));
  };
  const showStatus = () => {
    if (!waiting || model.get("state") === "computing") say(model.get("state"), model.get("status"));
  };
  const showPage = () => {
    const { page, title } = { page: model.get("page"), title: model.get("title") };
    frame.title = title;
    frame.style.height = `${model.get("height")}px`;
    frame.hidden = !page;
    if (frame.srcdoc !== page) frame.srcdoc = page;
  };
  const showAnswer = () => {
    waiting = false;
    const wanted = next;
    next = null;
    if (wanted && !same(wanted, model.get("choice"))) return ask(wanted);
    for (const select of selects) select.value = model.get("choice")[select.dataset.name];
    showPage();
    showStatus();
  };

  const root = element("div", { class: "integrand-widget" }, controls, status, frame);
  el.append(root);
  root.style.colorScheme = isDark(el) ? "dark" : "light";
  model.on("change:answered", showAnswer);
  model.on("change:state", showStatus);
  showPage();
  showStatus();
  return () => {
    model.off("change:answered", showAnswer);
    model.off("change:state", showStatus);
  };
};

export default { render };
