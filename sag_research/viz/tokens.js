// Shows growing texts, each under its route. Everything is set as textContent.
function section(route) {
  const box = document.createElement("section");
  const name = document.createElement("div");
  const text = document.createElement("pre");
  name.textContent = route;
  name.style.cssText = "font-size: 0.85em; opacity: 0.7;";
  text.style.cssText = "white-space: pre-wrap; margin: 0 0 0.5em 0; max-height: 24em; overflow-y: auto;";
  text.className = "sag-tokens-text";
  text.dataset.route = route;
  box.append(name, text);
  return { box, text };
}

function render({ model, el }) {
  const title = document.createElement("div");
  title.textContent = model.get("title");
  title.style.fontWeight = "bold";
  el.classList.add("sag-tokens");
  el.append(title);
  const known = new Map();

  function draw() {
    for (const [route, value] of Object.entries(model.get("shown"))) {
      if (!known.has(route)) {
        const made = section(route);
        known.set(route, made.text);
        el.append(made.box);
      }
      const text = known.get(route);
      text.textContent = value;
      text.scrollTop = text.scrollHeight;
    }
  }

  model.on("change:shown", draw);
  draw();
  return () => model.off("change:shown", draw);
}

export default { render };
