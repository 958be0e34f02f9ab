// What the two trees share. Texts only ever become text. No import and no export here: the
// module of a widget and the script of a page are these files, one after another.
const SAG_SVG = "http://www.w3.org/2000/svg";
const SAG_SIGNS = { failure: "✘", success: "✔", unknown: "?" };

function sagEl(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function sagSvg(tag, attributes, text) {
  const made = document.createElementNS(SAG_SVG, tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function sagButton(text, act, title) {
  const made = sagEl("button", "", text);
  made.type = "button";
  if (title) made.title = title;
  made.addEventListener("click", act);
  return made;
}

// A text shortened to a width in pixels, measured in the type it is drawn with.
const sagFit = (() => {
  const canvas = document.createElement("canvas").getContext("2d");
  return (text, width, font) => {
    canvas.font = font || '12px system-ui, "DejaVu Sans", sans-serif';
    if (canvas.measureText(text).width <= width) return text;
    const letters = Array.from(text);
    let low = 0;
    let high = letters.length;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      const cut = `${letters.slice(0, middle).join("")}…`;
      if (canvas.measureText(cut).width <= width) low = middle;
      else high = middle - 1;
    }
    return low ? `${letters.slice(0, low).join("")}…` : "";
  };
})();

// Wilson's interval of a rate at 95 %, as [low, high]; null where nothing is known.
function sagWilson(part, n) {
  if (!n) return null;
  const z = 1.959963984540054;
  const rate = part / n;
  const scale = 1 + (z * z) / n;
  const centre = (rate + (z * z) / (2 * n)) / scale;
  const half = (z * Math.sqrt((rate * (1 - rate)) / n + (z * z) / (4 * n * n))) / scale;
  return [part === 0 ? 0 : centre - half, part === n ? 1 : centre + half];
}

const sagPercent = (share) => `${Math.round(100 * share)} %`;
const sagMany = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

// "43 % (31 to 56 %)" of the runs whose outcome is known.
function sagRate(counts, long) {
  const [, failed, succeeded] = counts;
  const interval = sagWilson(failed, failed + succeeded);
  if (!interval) return long === true ? "not known: no outcome is" : "?";
  const rate = sagPercent(failed / (failed + succeeded));
  const [low, high] = interval.map((share) => Math.round(100 * share));
  if (long === "short") return `${rate} (${low}–${high})`;
  return long ? `${rate} (${low} to ${high} %)` : rate;
}

function sagTable(heads, rows, choose) {
  const table = sagEl("table");
  const head = table.createTHead().insertRow();
  for (const name of heads) {
    const cell = sagEl("th", "", name);
    cell.scope = "col";
    head.append(cell);
  }
  const body = table.createTBody();
  for (const { cells, key } of rows) {
    const row = body.insertRow();
    cells.forEach((value, place) => {
      const cell = row.insertCell();
      if (typeof value === "number") cell.className = "number";
      const said = typeof value === "number" ? value.toLocaleString("en") : value;
      if (place === 0 && choose) cell.append(sagButton(said, () => choose(key)));
      else cell.textContent = said;
    });
  }
  return table;
}

// A list of names and values; values that are elements are put in as they are.
function sagFacts(pairs) {
  const list = sagEl("dl");
  for (const [name, value] of pairs) {
    const said = sagEl("dd");
    said.append(value);
    list.append(sagEl("dt", "", name), said);
  }
  return list;
}

// A tip that follows the pointer, with lines of text.
function sagTip(root) {
  const tip = sagEl("div", "sag-tip");
  tip.hidden = true;
  root.append(tip);
  return {
    show(event, lines) {
      tip.replaceChildren(...lines.map((line) => sagEl("div", "", line)));
      tip.hidden = false;
      const box = root.getBoundingClientRect();
      const x = Math.min(event.clientX - box.left + 14, box.width - tip.offsetWidth - 6);
      const below = event.clientY - box.top + 18;
      const room = below + tip.offsetHeight < box.height;
      tip.style.left = `${Math.max(4, x)}px`;
      tip.style.top = `${room ? below : Math.max(4, below - tip.offsetHeight - 30)}px`;
    },
    hide() { tip.hidden = true; },
  };
}

// Keys are ours while the picture has the focus: the notebook would act on them as well.
function sagKeys(stage, acts) {
  stage.tabIndex = 0;
  stage.dataset.lmSuppressShortcuts = "true";
  stage.addEventListener("keydown", (event) => {
    if (event.target !== stage || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  });
}

function sagWatchSize(stage, draw) {
  let [width, height] = [stage.clientWidth, stage.clientHeight];
  const observer = new ResizeObserver(() => {
    if (!stage.clientWidth || (stage.clientWidth === width && stage.clientHeight === height)) return;
    [width, height] = [stage.clientWidth, stage.clientHeight];
    draw();
  });
  observer.observe(stage);
  return () => observer.disconnect();
}
