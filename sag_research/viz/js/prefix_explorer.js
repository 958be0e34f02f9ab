// The tree of beginnings that runs share, and the flow of their steps. Every node's runs are those
// of its children, those that ended there, and those that are not drawn: nothing is left unsaid.
function sagPrefixExplorer(root, start, options) {
  const THINNEST = 5; // pixels; what would be thinner is drawn together with others
  const state = { min: options.min, depth: options.depth, view: options.view, stop: null };
  const stack = [indexed(start)];
  let focus = 0;
  let chosen = [];
  let waiting = null; // the path that Python was asked for
  let tall = 400; // pixels of the picture without its scale

  const data = () => stack[stack.length - 1];
  const same = (a, b) => a.length === b.length && a.every((code, place) => code === b[place]);
  const token = (code) => (code < 0 ? ["all runs", "every run"] : data().tokens[code]);
  const plus = (a, b) => a.map((value, place) => value + b[place]);
  const less = (a, b) => a.map((value, place) => value - b[place]);

  function indexed(given) {
    const { nodes } = given;
    const kids = nodes.parent.map(() => []);
    nodes.parent.forEach((parent, child) => { if (parent >= 0) kids[parent].push(child); });
    for (const list of kids) list.sort((a, b) => nodes.counts[b][0] - nodes.counts[a][0] || a - b);
    // whether anything below a node was not sent; children stand behind their parents
    const partial = nodes.cut_tokens.map((many) => many > 0);
    for (let child = partial.length - 1; child > 0; child -= 1) {
      if (partial[child]) partial[nodes.parent[child]] = true;
    }
    return { ...given, kids, partial };
  }

  function pathOf(node) {
    const codes = [];
    for (let at = node; at > 0; at = data().nodes.parent[at]) codes.unshift(data().nodes.token[at]);
    return [...data().path, ...codes];
  }

  function nodeAt(path) {
    const own = data().path;
    if (!same(path.slice(0, own.length), own)) return -1;
    let at = 0;
    for (const code of path.slice(own.length)) {
      at = data().kids[at].find((kid) => data().nodes.token[kid] === code) ?? -1;
      if (at < 0) return -1;
    }
    return at;
  }

  // ------------------------------------------------------------------ the page around
  root.classList.add("sag-tree", "sag-prefixes");
  root.style.height = `${options.height}px`;
  const top = sagEl("div", "sag-top");
  const views = {};
  const picker = sagEl("span");
  picker.setAttribute("role", "group");
  for (const [name, text] of [["tree", "Tree"], ["sankey", "Flow of steps"], ["table", "Table"]]) {
    views[name] = sagButton(text, () => set("view", name, true));
    picker.append(views[name], " ");
  }
  const least = sagEl("input");
  Object.assign(least, { type: "range", min: 1, max: Math.max(2, options.most), value: state.min });
  const leastSaid = sagEl("span");
  const leastLabel = sagEl("label", "", "at least ");
  leastLabel.append(least, leastSaid);
  least.addEventListener("input", () => set("min", Number(least.value), true));
  const deep = sagEl("input");
  Object.assign(deep, { type: "number", min: 1, max: 20, value: state.depth });
  const deepLabel = sagEl("label", "", "steps shown ");
  deepLabel.append(deep);
  deep.addEventListener("change", () => set("depth", Number(deep.value) || state.depth, true));
  top.append(sagEl("span", "sag-title", options.title), picker, leastLabel, deepLabel);
  const crumbs = sagEl("div", "sag-crumbs");
  crumbs.setAttribute("role", "navigation");
  const main = sagEl("div", "sag-main");
  const stage = sagEl("div", "sag-stage");
  stage.setAttribute("role", "application");
  stage.setAttribute("aria-label",
    "Prefix tree. Arrows walk, Enter zooms in, Backspace goes up, Home shows all runs.");
  const side = sagEl("div", "sag-side");
  const said = sagEl("div", "sag-said");
  said.setAttribute("aria-live", "polite");
  const legend = sagEl("div", "sag-legend");
  const notes = sagEl("div", "sag-notes");
  main.append(stage, side);
  root.append(top, notes, crumbs, main, legend, said);
  const tip = sagTip(root);

  // ------------------------------------------------------------------ looks
  const whole = options.whole; // counts of all runs

  // How much more often these runs failed than all did, as a colour; the scale ends at 1/4 and 4.
  function tint(counts) {
    const known = counts[1] + counts[2];
    const base = whole[1] / (whole[1] + whole[2]);
    if (!known || !base) return "var(--sag-even)";
    const lift = Math.max(-2, Math.min(2, Math.log2(counts[1] / known / base)));
    const end = lift < 0 ? "--sag-less" : "--sag-more";
    return `color-mix(in srgb, var(${end}) ${Math.round(50 * Math.abs(lift))}%, var(--sag-even))`;
  }

  function box(counts, x, y, width, height, kind) {
    const made = sagSvg("rect", { x, y, width, height, class: `box ${kind || ""}` });
    if (!kind && counts[1] + counts[2] === 0) made.classList.add("unknown");
    else if (!kind) made.style.fill = tint(counts);
    return made;
  }

  // The outcomes of a node as a strip: failed above, successful, then unknown.
  function strip(group, counts, x, y, height) {
    let at = y;
    [["failed", counts[1]], ["succeeded", counts[2]], ["open", counts[3]]].forEach(([name, n]) => {
      const tall = (height * n) / counts[0];
      if (n) group.append(sagSvg("rect", { x, y: at, width: 5, height: tall, class: name }));
      at += tall;
    });
  }

  // `mark` is the room that something else takes in the upper right corner.
  function label(group, name, numbers, x, y, full, height, mark = 0) {
    const width = full - mark;
    if (height < 13 || width < 24) return;
    const middle = y + height / 2;
    const [short, long] = numbers;
    if (height >= 30) {
      const below = height >= 44 ? full : width;
      const fits = sagFit(long, below) === long;
      group.append(sagSvg("text", { x, y: middle - 3 }, sagFit(name, width)));
      group.append(sagSvg("text", { x, y: middle + 12 }, fits ? long : sagFit(short, below)));
      return;
    }
    const left = width - short.length * 6.4 - 6;
    const text = left > 36 ? `${sagFit(name, left)}  ${short}` : sagFit(name, width);
    group.append(sagSvg("text", { x, y: middle + 4 }, sagFit(text, width)));
  }

  const numbersOf = (counts) => `${counts[0].toLocaleString("en")} · ${sagRate(counts)} failed`;
  const onNode = (counts) => [undefined, "short"].map(
    (long) => `${counts[0].toLocaleString("en")} · ${sagRate(counts, long)}`);

  function tipLines(name, counts, words) {
    const open = counts[3] ? `, ${counts[3].toLocaleString("en")} unknown` : "";
    return [name, ...(words ? [words] : []), `${sagMany(counts[0], "run")}: `
      + `${counts[1].toLocaleString("en")} failed, ${counts[2].toLocaleString("en")} succeeded${open}`,
    `failure rate ${sagRate(counts, true)}`];
  }

  function interactive(group, lines, act, zoom) {
    group.addEventListener("pointermove", (event) => tip.show(event, lines));
    group.addEventListener("pointerleave", tip.hide);
    group.addEventListener("click", () => { act(); stage.focus({ preventScroll: true }); });
    if (zoom) group.addEventListener("dblclick", zoom);
  }

  // ------------------------------------------------------------------ the tree
  // Rows of one drawing: nodes, what is not drawn of them, and what ended.
  function layout() {
    const { nodes, kids } = data();
    const n = nodes.counts[focus][0];
    const scale = (tall - 8) / n;
    const enough = Math.max(state.min, Math.ceil(THINNEST / scale));
    const drawn = [];
    const place = (node, level, y) => {
      drawn.push({ node, level, y, height: nodes.counts[node][0] * scale, counts: nodes.counts[node] });
      if (level === state.depth) return;
      let at = y;
      let rest = nodes.cut[node];
      let others = nodes.cut_tokens[node];
      for (const kid of kids[node]) {
        if (nodes.counts[kid][0] >= enough) {
          place(kid, level + 1, at);
          at += nodes.counts[kid][0] * scale;
        } else {
          rest = plus(rest, nodes.counts[kid]);
          others += 1;
        }
      }
      if (others) {
        drawn.push({ of: node, others, level: level + 1, y: at, height: rest[0] * scale, counts: rest });
        at += rest[0] * scale;
      }
      const ended = nodes.ended[node];
      if (ended[0]) drawn.push({ of: node, level: level + 1, y: at, height: ended[0] * scale, counts: ended });
    };
    place(focus, 0, 4);
    return drawn;
  }

  let shown = [];

  function drawTree() {
    tall = Math.max(260, stage.clientHeight - 26);
    shown = layout();
    const levels = 1 + Math.max(...shown.map((one) => one.level));
    const first = 122;
    const room = Math.max(stage.clientWidth - 4, 320);
    const step = Math.max(112, (room - first) / Math.max(levels - 1, 1));
    const width = first + step * (levels - 1);
    const svg = sagSvg("svg", { width, height: tall + 22, role: "img" });
    svg.setAttribute("aria-label", `${options.title}: prefix tree, also given as a table`);
    for (const one of shown) {
      const x = one.level ? first + step * (one.level - 1) : 0;
      svg.append(drawOne(one, x, (one.level ? step : first) - 2));
    }
    const from = data().path.length + depthOf(focus);
    for (let level = 1; level < levels; level += 1) {
      const x = first + step * (level - 1) + 2;
      svg.append(sagSvg("text", { x, y: tall + 14, class: "faint" }, `step ${from + level - 1}`));
    }
    stage.replaceChildren(svg);
    highlight();
  }

  function depthOf(node) {
    let depth = 0;
    for (let at = node; at > 0; at = data().nodes.parent[at]) depth += 1;
    return depth;
  }

  function drawOne(one, x, width) {
    const group = sagSvg("g", { class: "node" });
    const { nodes } = data();
    const isNode = one.node !== undefined;
    const target = isNode ? one.node : one.of;
    const [name, words] = isNode ? nameOf(one.node)
      : [one.others ? othersWords(one.others, width) : "ended here", ""];
    group.append(box(one.counts, x, one.y, width, one.height, isNode ? "" : "rest"));
    if (isNode) {
      group.dataset.node = one.node;
      strip(group, one.counts, x, one.y, one.height);
    } else group.dataset.rest = one.others || 0;
    const parted = isNode ? nodes.parted[one.node] : 0;
    const numbers = isNode ? onNode(one.counts) : Array(2).fill(sagMany(one.counts[0], "run"));
    // in a narrow row the mark alone, so that the numbers keep their room
    const cramped = one.height < 30 && width < 190;
    const mark = parted ? `◆${cramped ? "" : parted}` : "";
    const room = mark ? 8 + 7.5 * mark.length : 0;
    label(group, name, numbers, x + 9, one.y, width - 12, one.height, room);
    const lines = tipLines(name, one.counts, words);
    if (parted) {
      lines.push(`◆ ${partedWords(parted)}`);
      const y = one.y + Math.min(one.height / 2, 12) + 4;
      const place = { x: x + width - 5, y, class: "parting" };
      if (one.height >= 13) group.append(sagSvg("text", place, mark));
    }
    interactive(group, lines, () => choose(pathOf(target)), () => zoom(target));
    return group;
  }

  const othersWords = (many, width) => (width < 210 ? sagMany(many, "other")
    : sagMany(many, "other continuation"));
  const partedWords = (many) => `with the next step, ${sagMany(many, "failed run")} left every `
    + `successful run of ${many === 1 ? "its task" : "their tasks"}`;

  function nameOf(node) {
    if (node > 0) return token(data().nodes.token[node]);
    const { path } = data();
    return path.length ? token(path[path.length - 1]) : token(-1);
  }

  // ------------------------------------------------------------------ the flow of steps
  let stops = [];

  function drawFlow() {
    const { stops: given, flows, path } = data();
    const first = path.length;
    const columns = new Map();
    given.step.forEach((at, key) => {
      if (at >= first + state.depth) return;
      if (!columns.has(at)) columns.set(at, []);
      columns.get(at).push(key);
    });
    tall = Math.max(260, stage.clientHeight - 26);
    const crowd = Math.max(1, ...[...columns.values()].map((keys) => keys.length));
    const gap = Math.min(16, 180 / crowd);
    const scale = (tall - 8 - gap * (crowd - 1)) / data().nodes.counts[0][0];
    const room = Math.max(stage.clientWidth - 4, 320);
    const step = Math.max(112, room / Math.max(columns.size, 1));
    const svg = sagSvg("svg", { width: step * columns.size, height: tall + 22, role: "img" });
    svg.setAttribute("aria-label", `${options.title}: flow of steps, also given as a table`);
    const places = new Map();
    for (const [at, keys] of columns) {
      let y = 4;
      for (const key of keys) {
        const height = Math.max(1, given.counts[key][0] * scale);
        places.set(key, { key, x: (at - first) * step, y, height, out: y, in: y, level: at - first });
        y += height + gap;
      }
      const x = (at - first) * step + 2;
      svg.append(sagSvg("text", { x, y: tall + 14, class: "faint" }, `step ${at}`));
    }
    for (const [source, target, ...counts] of flows) {
      const a = places.get(source);
      const b = places.get(target);
      if (a && b) svg.append(band(a, b, counts, counts[0] * scale));
    }
    for (const one of places.values()) svg.append(drawStop(one, step, scale));
    stops = [...places.values()];
    stage.replaceChildren(svg);
    highlight();
  }

  function band(a, b, counts, height) {
    const [left, right] = [a.x + 16, b.x];
    const middle = (left + right) / 2;
    const [y, to] = [a.out, b.in];
    a.out += height;
    b.in += height;
    const d = `M${left},${y} C${middle},${y} ${middle},${to} ${right},${to} l0,${height} `
      + `C${middle},${to + height} ${middle},${y + height} ${left},${y + height} Z`;
    const made = sagSvg("path", { d });
    made.style.fill = tint(counts);
    made.style.opacity = 0.55;
    return made;
  }

  function stopName(key) {
    const { stops: given } = data();
    if (given.token[key] >= 0) return token(given.token[key]);
    return [`${given.tokens[key].toLocaleString("en")} rarer steps`, "steps that few of these runs took"];
  }

  function drawStop(one, step, scale) {
    const { stops: given } = data();
    const [counts, ended] = [given.counts[one.key], given.ended[one.key]];
    const [name, words] = stopName(one.key);
    const group = sagSvg("g", { class: "node" });
    group.dataset.stop = one.key;
    group.append(box(counts, one.x, one.y, 16, one.height));
    strip(group, counts, one.x, one.y, one.height);
    if (ended[0]) {
      const tall = Math.max(1, ended[0] * scale);
      const x = one.x + 17;
      group.append(sagSvg("rect", { x, y: one.y + one.height - tall, width: 6, height: tall, class: "box rest" }));
    }
    label(group, name, onNode(counts), one.x + 26, one.y - 3, step - 34, Math.max(one.height + 6, 14));
    const lines = [...tipLines(name, counts, words), `${sagMany(ended[0], "run")} ended with it`];
    interactive(group, lines, () => chooseStop(one.key));
    return group;
  }

  // ------------------------------------------------------------------ the table
  function tableRows() {
    const { nodes, kids } = data();
    const rows = [];
    const walk = (node, names) => {
      const small = kids[node].filter((kid) => nodes.counts[kid][0] < state.min);
      const rest = small.reduce((sum, kid) => sum + nodes.counts[kid][0], nodes.cut[node][0]);
      const counts = nodes.counts[node];
      rows.push({ key: node, cells: [names.join(" → ") || "all runs", names.length, ...counts,
        sagRate(counts, true), nodes.ended[node][0], nodes.cut_tokens[node] + small.length, rest,
        nodes.parted[node]] });
      for (const kid of kids[node]) {
        if (nodes.counts[kid][0] >= state.min) walk(kid, [...names, token(nodes.token[kid])[0]]);
      }
    };
    walk(focus, pathOf(focus).map((code) => token(code)[0]));
    return rows;
  }

  function drawTable() {
    const heads = ["steps", "depth", "runs", "failed", "succeeded", "unknown",
      "failure rate (95 %)", "ended here", "other continuations", "their runs", "parting"];
    stage.replaceChildren(sagTable(heads, tableRows(), (node) => choose(pathOf(node))));
    drawSide();
  }

  // ------------------------------------------------------------------ what is chosen
  function highlight() {
    for (const one of stage.querySelectorAll(".node")) {
      const is = state.view === "sankey" ? Number(one.dataset.stop) === state.stop
        : one.dataset.node !== undefined && same(pathOf(Number(one.dataset.node)), chosen);
      one.classList.toggle("chosen", is);
    }
    drawSide();
  }

  function examples(list) {
    const made = sagEl("ul");
    for (const run of list) {
      const [id, outcome, steps] = data().runs[run];
      const words = `${SAG_SIGNS[outcome]} ${id}`;
      const item = sagEl("li");
      item.append(sagButton(words, () => options.onRun(run), `${id}: ${outcome}, ${sagMany(steps, "step")}`));
      made.append(item);
    }
    return made;
  }

  function countFacts(counts) {
    return [["runs", counts[0].toLocaleString("en")], ["failed", counts[1].toLocaleString("en")],
      ["succeeded", counts[2].toLocaleString("en")],
      ["unknown", `${counts[3].toLocaleString("en")}${counts[3] ? " (not in the rate)" : ""}`],
      ["failure rate", sagRate(counts, true)]];
  }

  function drawSide() {
    const parts = state.view === "sankey" && state.stop !== null ? stopSide() : nodeSide();
    side.replaceChildren(...parts);
  }

  function stopSide() {
    const { stops: given } = data();
    const counts = given.counts[state.stop];
    const [name, words] = stopName(state.stop);
    said.textContent = `step ${given.step[state.stop]}: ${name}, ${numbersOf(counts)}`;
    return [sagEl("h3", "", `step ${given.step[state.stop]}: ${name}`), sagEl("p", "", words),
      sagFacts([...countFacts(counts), ["ended with it", given.ended[state.stop][0].toLocaleString("en")]]),
      sagEl("h4", "", exampleWords(given.examples[state.stop], counts)), examples(given.examples[state.stop])];
  }

  const exampleWords = (list, counts) => `${list.length < counts[0] ? "examples among the " : ""}`
    + `${sagMany(counts[0], "run")}`;

  function nodeSide() {
    const node = nodeAt(chosen);
    if (node < 0) return [sagEl("p", "", "These steps are not on this page.")];
    const { nodes, kids } = data();
    const counts = nodes.counts[node];
    const name = chosen.length ? nameOf(node)[0] : "all runs";
    said.textContent = `${name}, ${numbersOf(counts)}`;
    const small = kids[node].filter((kid) => nodes.counts[kid][0] < state.min);
    const rest = small.reduce((sum, kid) => sum + nodes.counts[kid][0], nodes.cut[node][0]);
    const others = nodes.cut_tokens[node] + small.length;
    const facts = [...countFacts(counts), ["ended here", nodes.ended[node][0].toLocaleString("en")]];
    if (others) facts.push([sagMany(others, "other"), `${sagMany(rest, "run")} go on otherwise`]);
    const parts = [sagEl("h3", "", name)];
    if (chosen.length) parts.push(sagEl("p", "", token(chosen[chosen.length - 1])[1]));
    parts.push(sagFacts(facts));
    if (nodes.parted[node]) parts.push(sagEl("p", "", `◆ ${partedWords(nodes.parted[node])}`));
    parts.push(sagEl("h4", "", exampleWords(nodes.examples[node], counts)), examples(nodes.examples[node]));
    if (kids[node].length) parts.push(sagEl("h4", "", "goes on with"), nextSteps(node));
    if (chosen.length > 1) parts.push(sagEl("h4", "", "the steps in words"), inWords());
    return parts;
  }

  function nextSteps(node) {
    const { nodes, kids } = data();
    const list = sagEl("ul");
    for (const kid of kids[node].slice(0, 8)) {
      const item = sagEl("li");
      const text = `${token(nodes.token[kid])[0]} · ${numbersOf(nodes.counts[kid])}`;
      item.append(sagButton(text, () => choose(pathOf(kid)), token(nodes.token[kid])[1]));
      list.append(item);
    }
    return list;
  }

  function inWords() {
    const list = sagEl("ol");
    list.start = 0;
    for (const code of chosen) list.append(sagEl("li", "", token(code)[1]));
    return list;
  }

  function choose(path, silent) {
    chosen = path;
    state.stop = null;
    if (nodeAt(path) < 0) {
      const kept = stack.findIndex((one) => same(one.path, []));
      if (kept >= 0) stack.length = kept + 1;
      focus = 0;
      const inside = nodeAt(path) >= 0;
      if (inside) draw();
      else if (options.ask) ask(path);
    }
    highlight();
    if (!silent) options.onChoose(path);
  }

  function chooseStop(key) {
    state.stop = key;
    highlight();
    options.onStop(data().stops.step[key], data().stops.token[key], data().path);
  }

  // ------------------------------------------------------------------ zoom
  function ask(path) {
    waiting = path;
    options.ask(path);
  }

  function zoom(node) {
    focus = node;
    if (node > 0 && options.ask && data().partial[node]) ask(pathOf(node));
    draw();
  }

  function up() {
    waiting = null;
    if (focus > 0) focus = data().nodes.parent[focus];
    else if (stack.length > 1) {
      const above = data().path.slice(0, -1);
      stack.pop();
      focus = Math.max(0, nodeAt(above));
    } else if (data().path.length && options.ask) ask(data().path.slice(0, -1));
    draw();
  }

  function goTo(path) {
    waiting = null;
    while (stack.length > 1 && path.length < data().path.length) stack.pop();
    const node = nodeAt(path);
    if (node >= 0) focus = node;
    else if (options.ask) ask(path);
    choose(path);
    draw();
  }

  function replace(given) {
    // an answer that was overtaken by another question is of no use
    if (waiting === null || !same(given.path, waiting)) return;
    waiting = null;
    stack.push(indexed(given));
    if (stack.length > 4) stack.splice(1, 1);
    focus = 0;
    draw();
  }

  // ------------------------------------------------------------------ keys
  function walk(way) {
    if (state.view === "sankey") return walkStops(way);
    const at = shown.find((one) => one.node !== undefined && same(pathOf(one.node), chosen));
    if (!at) return choose(pathOf(focus));
    const level = shown.filter((one) => one.node !== undefined && one.level === at.level);
    const place = level.indexOf(at);
    const { nodes } = data();
    const next = {
      left: at.node === focus ? undefined : nodes.parent[at.node],
      right: shown.find((one) => one.level === at.level + 1 && nodes.parent[one.node] === at.node)?.node,
      up: level[place - 1]?.node,
      down: level[place + 1]?.node,
    }[way];
    return next === undefined ? undefined : choose(pathOf(next));
  }

  function walkStops(way) {
    const at = stops.find((one) => one.key === state.stop);
    if (!at) return stops.length ? chooseStop(stops[0].key) : undefined;
    const beside = way === "left" || way === "right";
    const level = stops.filter((one) => one.level === at.level + ({ left: -1, right: 1 }[way] || 0));
    const next = beside ? [...level].sort((a, b) => Math.abs(a.y - at.y) - Math.abs(b.y - at.y))[0]
      : level[level.indexOf(at) + (way === "up" ? -1 : 1)];
    return next ? chooseStop(next.key) : undefined;
  }

  sagKeys(stage, {
    ArrowLeft: () => walk("left"), ArrowRight: () => walk("right"),
    ArrowUp: () => walk("up"), ArrowDown: () => walk("down"),
    Enter: () => { const node = nodeAt(chosen); if (node >= 0 && node !== focus) zoom(node); },
    Backspace: up,
    Home: () => goTo([]),
  });

  // ------------------------------------------------------------------ all of it
  function drawCrumbs() {
    const path = pathOf(focus);
    const parts = [];
    for (let length = 0; length <= path.length; length += 1) {
      const here = path.slice(0, length);
      if (length) parts.push("→");
      parts.push(sagButton(length ? token(path[length - 1])[0] : "all runs", () => goTo(here)));
    }
    crumbs.replaceChildren(...parts);
  }

  function drawNotes() {
    const lines = [...options.notes];
    const { cut_tokens: cut, parent } = data().nodes;
    const missing = cut.reduce((sum, many) => sum + many, 0);
    if (missing && !options.ask) {
      lines.push(`this page holds the ${sagMany(parent.length - 1, "most frequent beginning")}; `
        + "rarer ones are counted together");
    }
    if (state.view === "sankey" && data().path.length !== pathOf(focus).length) {
      lines.push("the flow shows all runs: that of a part needs Python");
    }
    notes.textContent = lines.join(" · ");
  }

  function drawLegend() {
    const base = whole[1] + whole[2] ? sagRate(whole) : null;
    const entry = (made, text) => {
      const one = sagEl("span");
      one.append(made, text);
      return one;
    };
    const patch = (colour, dashed) => {
      const made = sagEl("i");
      made.style.background = colour;
      if (dashed) made.style.borderStyle = "dashed";
      return made;
    };
    const parts = base === null ? [] : [
      entry(patch("var(--sag-less)"), `fails less often than all (${base})`),
      entry(patch("var(--sag-more)"), "more often"),
    ];
    parts.push(entry(patch("var(--sag-paper)", true), "no outcome known"),
      entry(patch("var(--sag-failed)"), "failed"), entry(patch("var(--sag-succeeded)"), "succeeded"),
      entry(patch("var(--sag-unknown)"), "unknown"),
      entry(sagEl("b", "", "◆3"), "with the next step 3 failed runs left all successful ones of their task"),
      entry(sagEl("b", "", "75 · 42 % (31–53)"), "runs, failure rate, 95 % interval"));
    legend.replaceChildren(...parts);
  }

  function draw() {
    tip.hide();
    for (const [name, button] of Object.entries(views)) {
      button.setAttribute("aria-pressed", String(name === state.view));
    }
    least.value = state.min;
    leastSaid.textContent = sagMany(state.min, "run");
    deep.value = state.depth;
    leastLabel.style.visibility = state.view === "sankey" ? "hidden" : "visible";
    // the flow behind another beginning is for Python to count
    const here = pathOf(focus);
    const asked = waiting !== null && same(waiting, here);
    if (state.view === "sankey" && options.ask && !asked && !same(data().path, here)) ask(here);
    drawCrumbs();
    drawNotes();
    if (state.view === "table") drawTable();
    else if (state.view === "sankey") drawFlow();
    else drawTree();
  }

  function set(name, value, tell) {
    if (state[name] === value) return;
    state[name] = value;
    if (name === "view") state.stop = null;
    draw();
    if (tell) options.onSetting(name, value);
  }

  drawLegend();
  draw();
  const unwatch = sagWatchSize(stage, draw);
  return {
    choose: (path) => { if (!same(path, chosen)) choose(path, true); },
    replace, set,
    destroy() { unwatch(); root.replaceChildren(); },
  };
}
