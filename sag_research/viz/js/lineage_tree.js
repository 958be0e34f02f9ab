// The forks of a run: a row a run, indented under its parent, with a lane over the steps.
function sagLineageTree(root, data, options) {
  const ROW = 36;
  const TOP = 22;
  const state = { view: options.view, chosen: options.chosen, closed: new Set() };
  const many = data.id.length;
  const kids = data.id.map(() => []);
  data.parent.forEach((parent, child) => { if (parent >= 0) kids[parent].push(child); });

  root.classList.add("sag-tree", "sag-lineage");
  root.style.height = `${options.height}px`;
  const top = sagEl("div", "sag-top");
  const views = {};
  const picker = sagEl("span");
  picker.setAttribute("role", "group");
  for (const [name, text] of [["tree", "Tree"], ["table", "Table"]]) {
    views[name] = sagButton(text, () => set("view", name, true));
    picker.append(views[name], " ");
  }
  const closer = sagButton("close all branches", () => {
    state.closed = state.closed.size ? new Set()
      : new Set(data.id.map((_, row) => row).filter((row) => row > 0 && kids[row].length));
    draw();
  });
  top.append(sagEl("span", "sag-title", options.title), picker, closer);
  const main = sagEl("div", "sag-main");
  const stage = sagEl("div", "sag-stage");
  stage.setAttribute("role", "application");
  stage.setAttribute("aria-label", "Tree of forks. Up and down walk, left and right close and open a branch.");
  const side = sagEl("div", "sag-side");
  const said = sagEl("div", "sag-said");
  said.setAttribute("aria-live", "polite");
  const legend = sagEl("div", "sag-legend");
  const notes = sagEl("div", "sag-notes", options.notes.join(" · "));
  main.append(stage, side);
  root.append(top, notes, main, legend, said);
  const tip = sagTip(root);

  const outcomeWords = (row) => {
    const [n, failed, succeeded, unknown] = data.counts[row];
    if (!data.others[row]) return data.outcome[row];
    return `${n.toLocaleString("en")} runs: ${failed} failed, ${succeeded} succeeded, ${unknown} unknown`;
  };
  const nameOf = (row) => (data.others[row]
    ? `${sagMany(data.others[row], "other fork")}, ${sagMany(data.counts[row][0], "run")}` : data.id[row]);
  const whereOf = (row) => {
    if (data.others[row]) return "";
    if (data.parent[row] < 0) return "the first run";
    const at = data.fork_step[row];
    return at === null ? "forked before the first step" : `forked after step ${at}`;
  };
  const stepsOf = (row) => (data.others[row] ? ""
    : `${sagMany(data.steps[row], "step")} of its own${data.inherited[row] ? `, ${data.inherited[row]} taken over` : ""}`);

  function visibleRows() {
    const found = [];
    const hidden = new Set();
    for (let row = 0; row < many; row += 1) {
      const parent = data.parent[row];
      if (parent >= 0 && (hidden.has(parent) || state.closed.has(parent))) hidden.add(row);
      else found.push(row);
    }
    return found;
  }

  let rows = [];

  function drawTree() {
    rows = visibleRows();
    const width = Math.max(stage.clientWidth - 16, 560);
    const names = Math.min(460, Math.max(280, width * 0.48));
    const ends = 150;
    const longest = Math.max(1, ...data.id.map((_, row) => data.inherited[row] + data.steps[row]));
    const x = (step) => names + ((width - names - ends) * step) / longest;
    const svg = sagSvg("svg", { width, height: TOP + ROW * rows.length + 6, role: "img" });
    svg.setAttribute("aria-label", `${options.title}: tree of forks, also given as a table`);
    const every = Math.max(1, Math.ceil(longest / 12));
    for (let step = 0; step <= longest; step += every) {
      const at = x(step);
      svg.append(sagSvg("line", { x1: at, x2: at, y1: TOP - 4, y2: TOP + ROW * rows.length, class: "grid" }));
      if (step < longest) svg.append(sagSvg("text", { x: at + 2, y: TOP - 8, class: "faint" }, String(step)));
    }
    svg.append(sagSvg("text", { x: names - 36, y: TOP - 8, class: "faint" }, "step"));
    const line = new Map(rows.map((row, place) => [row, TOP + ROW * place + ROW / 2]));
    for (const row of rows) {
      const parent = data.parent[row];
      if (parent < 0 || data.others[row]) continue;
      const [from, to, at] = [line.get(parent), line.get(row), x(data.inherited[row])];
      svg.append(sagSvg("path", { d: `M${at},${from} L${at},${to}`, class: "joint" }));
    }
    for (const row of rows) svg.append(drawRow(row, line.get(row), { x, names, width, longest }));
    stage.replaceChildren(svg);
    highlight();
  }

  function drawRow(row, y, { x, names, width, longest }) {
    const group = sagSvg("g", { class: `node${data.asked === row ? " asked" : ""}` });
    group.dataset.row = row;
    group.append(sagSvg("rect", { x: 0, y: y - ROW / 2, width, height: ROW, class: "row" }));
    const indent = 6 + 14 * Math.min(data.depth[row], 12);
    if (data.parent[row] >= 0) {
      group.append(sagSvg("path", { d: `M${indent - 8},${y - ROW / 2} V${y} H${indent - 1}`, class: "joint" }));
    }
    const sign = kids[row].length ? (state.closed.has(row) ? "▸ " : "▾ ") : "";
    const name = sagSvg("text", { x: indent + 3, y: y - 3, class: "name" });
    name.textContent = sagFit(`${sign}${nameOf(row)}`, names - indent - 14);
    group.append(name);
    const words = [data.words[row], whereOf(row)].filter(Boolean).join(" · ");
    group.append(sagSvg("text", { x: indent + 3, y: y + 12, class: "faint" }, sagFit(words, names - indent - 22)));
    if (!data.others[row]) drawLane(group, row, y, x, longest);
    const end = data.inherited[row] + data.steps[row];
    const at = data.others[row] ? x(0) : x(end) + 6;
    const tail = data.others[row] ? outcomeWords(row)
      : `${SAG_SIGNS[data.outcome[row]]} ${data.outcome[row]}${data.left[row] ? ", abandoned" : ""}`;
    group.append(sagSvg("text", { x: at, y: y + 4 }, sagFit(tail, width - at)));
    group.addEventListener("pointermove", (event) => tip.show(event, lines(row)));
    group.addEventListener("pointerleave", tip.hide);
    group.addEventListener("click", () => { choose(row); stage.focus({ preventScroll: true }); });
    group.addEventListener("dblclick", () => toggle(row));
    return group;
  }

  function drawLane(group, row, y, x, longest) {
    const [from, to] = [data.inherited[row], data.inherited[row] + data.steps[row]];
    group.append(sagSvg("line", { x1: x(0), x2: x(from), y1: y, y2: y, class: "taken" }));
    const kind = `lane ${data.outcome[row]}`;
    group.append(sagSvg("line", { x1: x(from), x2: Math.max(x(to), x(from) + 2), y1: y, y2: y, class: kind }));
    if (data.left[row]) {
      const end = Math.max(x(to), x(from) + 2);
      group.append(sagSvg("line", { x1: end, x2: end, y1: y - 8, y2: y + 8, class: "stop" }));
    }
    if (x(1) - x(0) < 5) return;
    for (let step = from + 1; step < to; step += 1) {
      group.append(sagSvg("line", { x1: x(step), x2: x(step), y1: y - 3, y2: y + 3, class: "tick" }));
    }
  }

  const lines = (row) => [nameOf(row), data.words[row], whereOf(row), stepsOf(row), outcomeWords(row),
    data.end[row]].filter(Boolean);

  function drawTable() {
    const heads = ["run", "forked from", "after step", "own steps", "taken over", "outcome", "end", "what was changed"];
    const cells = (row) => [nameOf(row), data.parent[row] < 0 ? "" : data.id[data.parent[row]],
      data.fork_step[row] ?? "", data.others[row] ? "" : data.steps[row], data.others[row] ? "" : data.inherited[row],
      outcomeWords(row), data.end[row], data.words[row]];
    stage.replaceChildren(sagTable(heads, data.id.map((_, key) => ({ key, cells: cells(key) })), choose));
    drawSide();
  }

  function drawSide() {
    const row = state.chosen;
    const facts = [["outcome", outcomeWords(row)]];
    if (!data.others[row]) {
      facts.push(["own steps", data.steps[row].toLocaleString("en")],
        ["taken over", data.inherited[row].toLocaleString("en")], ["end", data.end[row] || "none yet"]);
    }
    const parts = [sagEl("h3", "", nameOf(row)), sagFacts(facts)];
    if (data.parent[row] >= 0) {
      const list = sagEl("ul");
      const item = sagEl("li");
      item.append(sagButton(data.id[data.parent[row]], () => choose(data.parent[row])));
      list.append(item);
      parts.push(sagEl("h4", "", whereOf(row) ? `${whereOf(row)} of` : "forks of"), list);
    }
    if (data.words[row]) parts.push(sagEl("h4", "", "what was changed"), sagEl("p", "", data.words[row]));
    if (kids[row].length) {
      const list = sagEl("ul");
      for (const kid of kids[row].slice(0, 50)) {
        const item = sagEl("li");
        const sign = data.others[kid] ? "" : `${SAG_SIGNS[data.outcome[kid]]} `;
        item.append(sagButton(`${sign}${nameOf(kid)}`, () => choose(kid), data.words[kid]));
        list.append(item);
      }
      const shown = kids[row].length > 50 ? `50 of ${kids[row].length} forks` : sagMany(kids[row].length, "fork");
      parts.push(sagEl("h4", "", shown), list);
    }
    side.replaceChildren(...parts);
  }

  function highlight() {
    for (const one of stage.querySelectorAll(".node")) {
      one.classList.toggle("chosen", Number(one.dataset.row) === state.chosen);
    }
    said.textContent = lines(state.chosen).join(", ");
    drawSide();
  }

  function choose(row, silent) {
    if (row < 0 || row >= many) return;
    state.chosen = row;
    let opened = false;
    for (let at = data.parent[row]; at >= 0; at = data.parent[at]) opened = state.closed.delete(at) || opened;
    if (opened) draw();
    highlight();
    reveal();
    if (!silent && !data.others[row]) options.onChoose(row);
  }

  // Only the picture may scroll: the notebook around it stays where it is.
  function reveal() {
    const line = rows.indexOf(state.chosen);
    if (line < 0 || state.view !== "tree") return;
    const [above, below] = [TOP + ROW * line - 20, TOP + ROW * (line + 1) + 8];
    if (above < stage.scrollTop) stage.scrollTop = above;
    else if (below > stage.scrollTop + stage.clientHeight) stage.scrollTop = below - stage.clientHeight;
  }

  function toggle(row, close) {
    if (!kids[row].length) return;
    if (close ?? !state.closed.has(row)) state.closed.add(row);
    else state.closed.delete(row);
    draw();
  }

  function move(by) {
    const next = rows[rows.indexOf(state.chosen) + by];
    if (next !== undefined) choose(next);
  }

  sagKeys(stage, {
    ArrowUp: () => move(-1), ArrowDown: () => move(1),
    ArrowLeft: () => (kids[state.chosen].length && !state.closed.has(state.chosen)
      ? toggle(state.chosen, true) : choose(data.parent[state.chosen])),
    ArrowRight: () => (state.closed.has(state.chosen) ? toggle(state.chosen, false)
      : choose(kids[state.chosen][0] ?? -1)),
    Enter: () => toggle(state.chosen), Backspace: () => choose(data.parent[state.chosen]),
    Home: () => choose(0), End: () => choose(rows[rows.length - 1]),
  });

  function drawLegend() {
    const entry = (name, text) => {
      const one = sagEl("span");
      const made = sagEl("i");
      if (name === "taken") Object.assign(made.style, { border: "0", borderTop: "2px dotted", height: "0" });
      else if (name === "stop") Object.assign(made.style, { border: "0", borderLeft: "3px solid", width: "3px" });
      else made.style.background = `var(--sag-${name})`;
      one.append(made, text);
      return one;
    };
    legend.replaceChildren(entry("succeeded", "✔ success"), entry("failed", "✘ failure"),
      entry("unknown", "? unknown"), entry("taken", "steps taken over from the parent"),
      entry("stop", "abandoned here"));
  }

  function draw() {
    tip.hide();
    for (const [name, button] of Object.entries(views)) {
      button.setAttribute("aria-pressed", String(name === state.view));
    }
    closer.textContent = state.closed.size ? "open all branches" : "close all branches";
    if (state.view === "table") drawTable();
    else drawTree();
  }

  function set(name, value, tell) {
    if (state[name] === value) return;
    state[name] = value;
    draw();
    if (tell) options.onSetting(name, value);
  }

  drawLegend();
  draw();
  reveal();
  const unwatch = sagWatchSize(stage, draw);
  return { choose: (row) => { if (row !== state.chosen) choose(row, true); }, set,
    destroy() { unwatch(); root.replaceChildren(); } };
}
