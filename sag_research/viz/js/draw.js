"use strict";
// Draws a scene with vis-network inside `root`. Every text goes to the page by textContent or to the
// canvas by fillText: nothing here parses markup. Several drawings may live on one page, so there
// are no ids and nothing global but this function.
//
// sagDraw(vis, root, data, {inspector, wheel, legend, table}) gives
//   network; choose(key or null); selected(); onChoose(told); find(text) -> keys; fit(); closer(factor);
//   patch(patch); replace(data); setTheme("light" | "dark" | "auto"); keys(); at(key); destroy()
function sagDraw(vis, root, data, options) {
  const wish = { inspector: true, wheel: true, legend: true, table: true, ...options };
  const FACE = "system-ui, 'DejaVu Sans', sans-serif";
  const BOX = 23;
  const FOLD = 4000;

  // Characters that reorder or hide text are made visible, so that nothing reads as what it is not.
  const HIDDEN = /[\u061c\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;
  const code = (c) => "\u27e8U+" + c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0") + "\u27e9";
  const plain = (text) => String(text).replace(HIDDEN, code);
  const element = (tag, text, className) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = plain(text);
    if (className) made.className = className;
    return made;
  };
  const pressable = (text, label, does) => {
    const made = element("button", text);
    made.type = "button";
    if (label) { made.title = label; made.setAttribute("aria-label", label); }
    made.addEventListener("click", does);
    return made;
  };

  // ---- the page
  root.classList.add("sag");
  const head = element("div", undefined, "sag-head");
  const title = element("strong");
  const notes = element("span", undefined, "sag-notes");
  head.append(title, " ", notes);
  const legend = element("div", undefined, "sag-legend");
  const main = element("div", undefined, "sag-main");
  const picture = element("div", undefined, "sag-picture");
  picture.tabIndex = 0;
  picture.setAttribute("role", "application");
  const canvas = element("div", undefined, "sag-canvas");
  const tools = element("div", undefined, "sag-tools");
  const inspector = element("div", undefined, "sag-inspector");
  inspector.setAttribute("role", "complementary");
  inspector.setAttribute("aria-label", "Details");
  const table = element("details", undefined, "sag-table");
  const said = element("div", undefined, "sag-said");
  said.setAttribute("aria-live", "polite");
  const view = element("div", undefined, "sag-view");
  view.append(canvas);
  picture.append(view, tools);
  main.append(picture);
  if (wish.inspector) main.append(inspector);
  root.replaceChildren(head, ...(wish.legend ? [legend] : []), main, ...(wish.table ? [table] : []), said);

  // ---- what is drawn: records by key, numbers only towards vis
  let records = new Map();
  let byNumber = new Map();
  let links = new Map();
  let near = new Map();
  let lanes = new Map();
  let rest = {};
  let counter = 0;
  const hidden = new Set();
  let kept = null;
  let pointed = null;
  let focused = null;
  let found = new Set();
  let lit = null;
  const listeners = [];

  const linkKey = (source, target, kind) => JSON.stringify([source, target, kind]);
  const readNode = (columns, i, number) => {
    const node = columns.nodes[i];
    const [label, caption, detail] = columns.texts[i];
    const [mark, tone, flags, scale] = columns.marks[i];
    return {
      number, key: columns.keys[i], x: node.x, y: node.y, size: node.size, kind: columns.kinds[i],
      box: node.shape === "box", label: plain(label), caption: plain(caption), detail, mark, tone, flags, scale,
    };
  };
  const forVis = (record) => ({
    id: record.number, x: record.x, y: record.y, size: record.size, shape: "custom",
    hidden: hidden.has(record.mark || record.kind), ctxRenderer: render,
  });
  const edgeForVis = (link) => {
    const { hidden: _, color: __, ...looks } = link.looks;
    const colour = css(LINK[link.kind] || "relation");
    return {
      ...looks, id: link.number, from: records.get(link.source).number, to: records.get(link.target).number,
      color: { color: colour, highlight: colour, hover: colour, inherit: false },
    };
  };
  const LINK = {
    NEXT: "next", CONTAINS: "next", FORKED_FROM: "fork", CAUSED_BY: "cause", PROCESSED: "names", MUTATED: "changed",
  };
  const drawnAlways = (link) => !link.looks.hidden;
  const nodes = new vis.DataSet();
  const edges = new vis.DataSet();

  const relate = () => {
    near = new Map();
    for (const link of links.values()) {
      for (const [end, other, side] of [[link.source, link.target, 0], [link.target, link.source, 1]]) {
        if (!near.has(end)) near.set(end, []);
        near.get(end).push({ other, side, link });
      }
    }
    lanes = new Map((rest.bands || []).filter((band) => band.run).map((band) => [band.run, band]));
  };
  const load = (whole) => {
    records = new Map();
    byNumber = new Map();
    links = new Map();
    rest = { bands: whole.bands, legend: whole.legend, notes: whole.notes, title: whole.title, layout: whole.layout };
    whole.keys.forEach((key, i) => {
      const record = readNode(whole, i, ++counter);
      records.set(key, record);
      byNumber.set(record.number, record);
    });
    whole.edges.forEach((edge, i) => {
      const { id, from, to, ...looks } = edge;
      const [kind, label] = whole.links[i];
      const [source, target] = [whole.keys[from], whole.keys[to]];
      links.set(linkKey(source, target, kind), { number: ++counter, source, target, kind, label, looks });
    });
    relate();
    nodes.clear();
    edges.clear();
    nodes.add([...records.values()].map(forVis));
    edges.add([...links.values()].filter(drawnAlways).map(edgeForVis));
  };

  // ---- colours: those of the style sheet, read once for each theme
  let colours = new Map();
  const css = (name) => {
    if (!colours.has(name)) colours.set(name, getComputedStyle(root).getPropertyValue("--sag-" + name).trim() || "#888888");
    return colours.get(name);
  };
  const mix = (colour, paper, share) => {
    const part = (text, i) => parseInt(text.slice(i, i + 2), 16);
    return "rgb(" + [1, 3, 5].map((i) => Math.round(part(paper, i) + (part(colour, i) - part(paper, i)) * share)).join(",") + ")";
  };
  const entityColour = (kind) => {
    const entry = (rest.legend.entities || []).find((one) => one.kind === kind);
    return entry ? entry.line : "#999999";
  };

  // ---- marks
  const polygon = (context, x, y, radius, corners, turn, inner) => {
    context.beginPath();
    const points = inner ? corners * 2 : corners;
    for (let i = 0; i < points; i += 1) {
      const angle = turn + (i * 2 * Math.PI) / points;
      const r = inner && i % 2 ? radius * inner : radius;
      context.lineTo(x + r * Math.cos(angle), y + r * Math.sin(angle));
    }
    context.closePath();
  };
  const UP = -Math.PI / 2;
  const outline = {
    look: (c, x, y, r) => { c.beginPath(); c.arc(x, y, r * 0.95, 0, 2 * Math.PI); c.closePath(); },
    search: (c, x, y, r) => polygon(c, x, y, r * 1.22, 4, UP),
    edit: (c, x, y, r) => { c.beginPath(); c.rect(x - r * 0.86, y - r * 0.86, r * 1.72, r * 1.72); c.closePath(); },
    test: (c, x, y, r) => polygon(c, x, y + r * 0.22, r * 1.32, 3, UP),
    submit: (c, x, y, r) => polygon(c, x, y, r * 1.4, 5, UP, 0.6),
    other: (c, x, y, r) => polygon(c, x, y, r * 1.04, 6, 0),
  };
  const paintMark = (context, mark, tone, x, y, r, stacked) => {
    const shape = outline[mark] || outline.other;
    const known = ["ok", "error", "empty"].includes(tone) ? tone : "unknown";
    context.lineJoin = "round";
    context.fillStyle = css(known);
    context.strokeStyle = css(known + "-line");
    context.lineWidth = known === "error" ? 2.4 : 1.4;
    if (stacked) { shape(context, x + 3.5, y - 3.5, r); context.fill(); context.stroke(); }
    shape(context, x, y, r);
    context.fill();
    context.stroke();
    return css(known + "-ink");
  };
  const paintRun = (context, x, y) => {
    context.fillStyle = css("run");
    context.beginPath();
    context.roundRect(x - 14, y - 11, 28, 22, 6);
    context.fill();
    context.fillStyle = css("run-ink");
    polygon(context, x, y, 7, 3, 0);
    context.fill();
  };
  const paintBox = (context, record, x, y) => {
    const [width, height] = [record.size, BOX * record.scale];
    const line = entityColour(record.kind);
    const dark = root.dataset.theme === "dark";
    context.fillStyle = mix(line, css("paper"), dark ? 0.34 : 0.14);
    context.strokeStyle = dark ? mix(line, "#ffffff", 0.55) : line;
    context.lineWidth = 1.5;
    context.beginPath();
    context.roundRect(x - width / 2, y - height / 2, width, height, 4);
    context.fill();
    context.stroke();
    context.font = 13 * record.scale + "px " + FACE;
    context.fillStyle = css("ink");
    context.fillText(record.label, x, y + 0.5);
  };
  const ring = (context, record, x, y, colour, gap) => {
    context.strokeStyle = colour;
    context.lineWidth = 2.5;
    context.beginPath();
    const [w, h] = extent(record);
    context.roundRect(x - w / 2 - gap, y - h / 2 - gap, w + 2 * gap, h + 2 * gap, 6);
    context.stroke();
  };
  const extent = (record) => {
    if (record.box) return [record.size, BOX * record.scale];
    if (record.kind === "Run") return [28, 22];
    return record.kind === "Event" ? [12, 12] : [2.2 * record.size, 2.2 * record.size];
  };
  const paint = (context, record, x, y, state) => {
    context.save();
    context.direction = "ltr";
    context.textAlign = "center";
    context.textBaseline = "middle";
    if (lit && !lit.has(record.key)) context.globalAlpha = 0.22;
    if (record.box) paintBox(context, record, x, y);
    else if (record.kind === "Run") paintRun(context, x, y);
    else if (record.kind === "Event") {
      context.fillStyle = css("event");
      context.beginPath();
      context.arc(x, y, record.size, 0, 2 * Math.PI);
      context.fill();
    } else {
      const ink = paintMark(context, record.mark, record.tone, x, y, record.size, record.kind === "Chain");
      context.fillStyle = ink;
      context.font = (record.label.length > 2 ? "600 9.5px " : "600 11.5px ") + FACE;
      context.fillText(record.label, x, y + (record.mark === "test" ? 3.5 : 0.5));
    }
    context.globalAlpha = 1;
    if (record.key === kept) ring(context, record, x, y, css("focus"), 3);
    else if (state.hover) ring(context, record, x, y, css("faint"), 3);
    if (record.key === focused && record.key !== kept) {
      context.setLineDash([4, 3]);
      ring(context, record, x, y, css("focus"), 4);
    }
    context.restore();
  };
  const render = ({ ctx, id, x, y, state }) => {
    const record = byNumber.get(id);
    if (!record) return { drawNode: () => {}, nodeDimensions: { width: 0, height: 0 } };
    const [width, height] = extent(record);
    return { drawNode: () => paint(ctx, record, x, y, state), nodeDimensions: { width, height } };
  };

  // ---- below and above the marks
  // vis draws while it is told of changes, so a record may be newer than what vis knows, or older
  const spot = (record) => network.body.nodes[record.number] || record;
  const SHOWN_NEAR = 300;
  const drawNear = (context) => {
    for (const key of new Set([kept, pointed, focused])) {
      if (key === null || !records.has(key)) continue;
      for (const { other, link } of (near.get(key) || []).slice(0, SHOWN_NEAR)) {
        if (drawnAlways(link) || !records.has(other) || hidden.has(records.get(other).mark || records.get(other).kind)) continue;
        const [from, to] = [link.source, link.target].map((end) => spot(records.get(end)));
        context.strokeStyle = css(LINK[link.kind] || "relation");
        context.lineWidth = link.kind === "MUTATED" ? 2.4 : 1.4;
        context.setLineDash(link.looks.dashes ? [5, 4] : []);
        context.beginPath();
        context.moveTo(from.x, from.y);
        context.lineTo(to.x, to.y);
        context.stroke();
      }
    }
    context.setLineDash([]);
  };
  const drawRisk = (context, band) => {
    if (!band.risk.length) return;
    const high = 20;
    context.fillStyle = css("risk");
    for (const [left, right, value] of band.risk) {
      context.globalAlpha = 0.3 + 0.7 * value;
      context.fillRect(left + 0.5, band.risk_y - Math.max(value * high, 0.8), right - left - 1, Math.max(value * high, 0.8));
    }
    context.globalAlpha = 1;
    context.strokeStyle = css("risk");
    context.lineWidth = 0.8;
    context.beginPath();
    context.moveTo(band.risk[0][0], band.risk_y);
    context.lineTo(band.risk[band.risk.length - 1][1], band.risk_y);
    context.stroke();
    context.fillStyle = css("faint");
    context.font = "11px " + FACE;
    context.fillText("risk", band.x + 8, band.risk_y - 2);
  };
  const before = (context) => {
    context.save();
    context.direction = "ltr";
    context.textAlign = "left";
    context.textBaseline = "alphabetic";
    for (const band of rest.bands) {
      context.fillStyle = css("band");
      context.strokeStyle = css("band-line");
      context.lineWidth = 1;
      context.beginPath();
      context.roundRect(band.x, band.y, band.width, band.height, 8);
      context.fill();
      context.stroke();
      drawRisk(context, band);
      context.fillStyle = css("faint");
      context.font = "11px " + FACE;
      context.textBaseline = "middle";
      for (const [kind, y] of band.rows) context.fillText(plain(kind), band.x + 10, y);
      context.textBaseline = "alphabetic";
    }
    drawNear(context);
    context.restore();
  };
  const FLAG = { alarm: "alarm", "fork-point": "fork" };
  const halo = (context, text, x, y, colour) => {
    context.strokeStyle = css("band");
    context.lineWidth = 4;
    context.strokeText(text, x, y);
    context.fillStyle = colour;
    context.fillText(text, x, y);
  };
  const drawFlags = (context, record, place, band) => {
    const alarm = record.flags.includes("alarm");
    const colour = css(alarm ? "alarm" : "parting");
    if (alarm && band) {
      context.strokeStyle = colour;
      context.lineWidth = 1.6;
      context.setLineDash([3, 3]);
      context.beginPath();
      context.moveTo(place.x, place.y + 15);
      context.lineTo(place.x, band.risk.length ? band.risk_y : place.y + 20);
      context.stroke();
      context.setLineDash([]);
    }
    context.font = "700 11px " + FACE;
    context.textAlign = "center";
    halo(context, record.flags.map((flag) => FLAG[flag] || flag).join(" \u00b7 "), place.x, place.y - 20, colour);
    context.textAlign = "left";
  };
  const OUTCOME = { success: "success", failure: "failure" };
  const after = (context) => {
    context.save();
    context.direction = "ltr";
    context.textAlign = "left";
    context.textBaseline = "alphabetic";
    context.lineJoin = "round";
    for (const band of rest.bands) {
      context.font = "600 12px " + FACE;
      halo(context, plain(band.label), band.x + 10, band.y + 17, css("ink"));
      if (!band.says) continue;
      context.font = "700 13px " + FACE;
      halo(context, band.says, band.end[0], band.end[1] + 5, css(OUTCOME[band.outcome] || "undecided"));
    }
    const legible = network.getScale() > 0.3;
    for (const record of records.values()) {
      if (record.box || hidden.has(record.mark || record.kind)) continue;
      const band = lanes.get(record.detail.run);
      if (record.flags.length) drawFlags(context, record, spot(record), band);
      if (!legible || !band || !band.captions || !record.caption) continue;
      const place = spot(record);
      context.save();
      if (lit && !lit.has(record.key)) context.globalAlpha = 0.3;
      context.fillStyle = css("faint");
      context.font = "12px " + FACE;
      context.translate(place.x - 2, band.risk.length ? band.risk_y + 12 : place.y + 24);
      context.rotate(0.87);
      context.fillText(record.caption, 0, 0);
      context.restore();
    }
    context.restore();
  };

  // ---- the network
  const visOptions = { ...data.options };
  visOptions.interaction = { ...visOptions.interaction, zoomView: Boolean(wish.wheel) };
  const themeOf = () => {
    const lab = document.body && document.body.dataset.jpThemeLight;
    if (lab === "true" || lab === "false") return lab === "true" ? "light" : "dark";
    return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  };
  let theme = "auto";
  root.dataset.theme = themeOf();
  load(data);
  const network = new vis.Network(canvas, { nodes, edges }, visOptions);
  network.on("beforeDrawing", before);
  network.on("afterDrawing", after);

  const dress = () => {
    const now = theme === "auto" ? themeOf() : theme;
    if (root.dataset.theme === now) return;
    root.dataset.theme = now;
    colours = new Map();
    edges.update([...links.values()].filter(drawnAlways).map(edgeForVis));
    writeLegend();
    network.redraw();
  };
  const setTheme = (name) => { theme = name; dress(); };
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", dress);
  const labTheme = new MutationObserver(dress);
  labTheme.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });

  // ---- where one looks
  const bounds = () => {
    let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
    const grow = (x0, y0, x1, y1) => {
      left = Math.min(left, x0); top = Math.min(top, y0);
      right = Math.max(right, x1); bottom = Math.max(bottom, y1);
    };
    for (const record of records.values()) {
      const [w, h] = extent(record);
      grow(record.x - w / 2 - 3, record.y - h / 2 - 3, record.x + w / 2 + 3, record.y + h / 2 + 3);
    }
    for (const band of rest.bands) grow(band.x, band.y, band.x + band.width, band.y + band.height);
    return left > right ? [0, 0, 1, 1] : [left, top, right, bottom];
  };
  const LEGIBLE = 0.8;
  const ENOUGH = 0.68;
  let shown = false;
  let gone = false;
  // vis leaves out what it has not measured yet, and measures it while it leaves it out
  const again = () => requestAnimationFrame(() => { if (!gone) network.redraw(); });
  const show = (whole) => {
    const [wide, high] = [canvas.clientWidth, canvas.clientHeight];
    if (!wide || !high) return;
    shown = true;
    const [left, top, right, bottom] = bounds();
    const margin = 14;
    const fit = Math.min((wide - 2 * margin) / (right - left), (high - 2 * margin) / (bottom - top), 1.6);
    const scale = whole || fit > ENOUGH || rest.layout === "force" ? fit : LEGIBLE;
    // a picture too large for legible text opens at its beginning
    const x = (right - left) * scale > wide - 2 * margin ? left - margin / scale + wide / scale / 2 : (left + right) / 2;
    const y = (bottom - top) * scale > high - 2 * margin
      ? top - margin / scale + high / scale / 2 : (top + bottom) / 2;
    network.moveTo({ position: { x, y }, scale: Math.max(scale, 0.02), animation: false });
    if (!whole && kept !== null) bring(kept);
    again();
  };
  const closer = (factor) => network.moveTo({ scale: Math.min(Math.max(network.getScale() * factor, 0.02), 8), animation: false });
  const bring = (key) => {
    const record = records.get(key);
    const place = network.canvasToDOM({ x: record.x, y: record.y });
    const edge = 40;
    const inside = place.x > edge && place.y > edge && place.x < canvas.clientWidth - edge && place.y < canvas.clientHeight - edge;
    if (!inside) network.moveTo({ position: { x: record.x, y: record.y }, animation: false });
  };

  // ---- the inspector
  const LONG = new Set(["thought", "action", "observation", "body", "goal"]);
  const nameOf = (record) => {
    const { run, step, steps, event, entity } = record.detail;
    if (record.kind === "Run") return "run " + (run || record.label);
    if (step !== undefined) return "step " + step;
    if (steps !== undefined) return "steps " + steps;
    return event || entity || record.label || record.caption || record.key;
  };
  const severalRuns = () => lanes.size > 1;
  const placeOf = (record) => nameOf(record) + (severalRuns() && record.kind !== "Run" && record.detail.run ? " \u00b7 " + record.detail.run : "");
  const SAY = {
    PROCESSED: ["names", "named in"], MUTATED: ["changes", "changed in"],
    NEXT: ["next", "before"], CONTAINS: ["begins with", "begins"], CAUSED_BY: ["caused by", "causes"],
    FORKED_FROM: ["forked from", "forked to"],
  };
  const neighbours = (key) => {
    const groups = new Map();
    for (const { other, side, link } of near.get(key) || []) {
      const say = SAY[link.kind] ? SAY[link.kind][side] : side === 0 ? link.kind + " \u2192" : "\u2190 " + link.kind;
      if (!groups.has(say)) groups.set(say, []);
      groups.get(say).push([other, link.label]);
    }
    return groups;
  };
  const longText = (text) => {
    const block = element("pre", text.length > FOLD ? text.slice(0, FOLD) : text);
    if (text.length <= FOLD) return [block];
    const more = pressable("Show all " + text.length.toLocaleString("en") + " characters", "", () => {
      block.textContent = plain(text);
      more.remove();
    });
    return [block, more];
  };
  const inspect = (key) => {
    if (!wish.inspector) return;
    const record = records.get(key);
    const parts = [element("h2", nameOf(record))];
    const list = element("dl");
    for (const [name, text] of Object.entries(record.detail)) {
      if (!LONG.has(name)) list.append(element("dt", name), element("dd", text));
    }
    if (record.flags.length) list.append(element("dt", "marked"), element("dd", record.flags.join(", ")));
    parts.push(list);
    for (const [name, text] of Object.entries(record.detail)) {
      if (LONG.has(name)) parts.push(element("h3", name), ...longText(text));
    }
    for (const [say, others] of neighbours(key)) {
      const row = element("div", undefined, "sag-near");
      for (const [other, label] of others.slice(0, 60)) {
        row.append(pressable(placeOf(records.get(other)) + (label ? " (" + label + ")" : ""), "", () => choose(other)));
      }
      if (others.length > 60) row.append(element("span", "and " + (others.length - 60) + " more"));
      parts.push(element("h3", say), row);
    }
    inspector.replaceChildren(...parts);
    inspector.scrollTop = 0;
  };
  const welcome = () => {
    const lines = rest.layout === "timeline" ? [
      "Each lane is one run of an agent, read from left to right. Each mark is one step: its shape says what the step did, its colour what came back. How the run ended stands at the lane\u2019s end.",
      "A fork is a lane below: it begins where a run was taken up again and went another way.",
      "The boxes above are what the steps name: files, errors, tests. Point at a step or a box to see what belongs together; an orange line means it was changed.",
    ] : [
      "Marks are steps: the shape says what a step did, the colour what came back. Boxes are what they name: files, errors, tests. Things named together lie together.",
    ];
    lines.push("Click keeps what you point at. Keys: arrows walk, Enter keeps, Escape lets go, / searches. Click a word in the legend to hide its kind.");
    inspector.replaceChildren(element("h2", "How to read this"), ...lines.map((text) => element("p", text)));
  };

  // ---- choosing
  const light = () => {
    if (kept !== null) lit = new Set([kept, ...(near.get(kept) || []).map((one) => one.other)]);
    else lit = found.size ? found : null;
    network.redraw();
  };
  const choose = (key, quiet) => {
    const known = key !== null && key !== undefined && records.has(key);
    const changed = (known ? key : null) !== kept;
    kept = known ? key : null;
    if (known) { focused = key; inspect(key); say(records.get(key)); } else { focused = null; welcome(); }
    light();
    if (changed && !quiet) listeners.forEach((told) => told(kept));
  };
  const say = (record) => {
    const { did, result } = record.detail;
    said.textContent = plain([placeOf(record), did, result, record.caption, ...record.flags].filter(Boolean).join(", ")).slice(0, 300);
  };
  network.on("click", (event) => {
    picture.focus({ preventScroll: true });
    choose(event.nodes.length ? byNumber.get(event.nodes[0]).key : null);
    network.unselectAll();
  });
  network.on("hoverNode", (event) => {
    const record = byNumber.get(event.node);
    if (!record) return;
    pointed = record.key;
    canvas.style.cursor = "pointer";
    if (kept === null) inspect(pointed);
    network.redraw();
  });
  network.on("blurNode", () => { pointed = null; canvas.style.cursor = ""; network.redraw(); });
  network.on("dragEnd", (event) => {
    for (const number of event.nodes) {
      const place = network.getPosition(number);
      Object.assign(byNumber.get(number), place);
    }
  });

  // ---- keys: along a lane, from lane to lane; in a cloud, to the nearest that way
  const visible = () => [...records.values()].filter((record) => !hidden.has(record.mark || record.kind));
  const step = (dx, dy) => {
    const all = visible();
    if (!all.length) return;
    const here = records.get(focused);
    if (!here) { point(all.reduce((a, b) => (b.kind === "Run" && (a.kind !== "Run" || b.y < a.y) ? b : a)).key); return; }
    const ahead = all.filter((one) => (dx ? (one.x - here.x) * dx > 0.5 : (one.y - here.y) * dy > 0.5));
    let cost = (one) => Math.abs(one.x - here.x) * (dx ? 1 : 2.5) + Math.abs(one.y - here.y) * (dx ? 2.5 : 1);
    let choice = ahead;
    if (rest.layout === "timeline") {
      choice = dx ? ahead.filter((one) => Math.abs(one.y - here.y) < 3) : ahead;
      cost = dx ? (one) => Math.abs(one.x - here.x) : (one) => Math.abs(one.y - here.y) * 1000 + Math.abs(one.x - here.x);
    }
    if (choice.length) point(choice.reduce((a, b) => (cost(b) < cost(a) ? b : a)).key);
  };
  const point = (key) => {
    focused = key;
    const record = records.get(key);
    bring(key);
    if (kept === null) inspect(key);
    say(record);
    network.redraw();
  };
  const KEYS = {
    ArrowLeft: () => step(-1, 0), ArrowRight: () => step(1, 0), ArrowUp: () => step(0, -1), ArrowDown: () => step(0, 1),
    Enter: () => focused !== null && choose(focused),
    Escape: () => { search.value = ""; seek(""); choose(null); },
    "/": () => search.focus(), "+": () => closer(1.3), "-": () => closer(1 / 1.3), 0: () => show(true),
  };
  picture.addEventListener("keydown", (event) => {
    const act = KEYS[event.key];
    if (!act || event.target !== picture || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation(); // a notebook has keys of its own
    act();
  });

  // ---- searching
  const find = (text) => {
    const wanted = String(text).trim().toLowerCase();
    if (!wanted) return [];
    return visible().filter((record) => [record.label, record.caption, record.key, ...Object.values(record.detail)]
      .some((one) => String(one).toLowerCase().includes(wanted))).map((record) => record.key);
  };
  const search = element("input");
  search.type = "search";
  search.placeholder = "Search (/)";
  search.setAttribute("aria-label", "Search in texts of steps and names");
  const hits = element("span");
  let turn = -1;
  const seek = (text) => {
    const keys = find(text);
    found = new Set(keys);
    turn = -1;
    hits.textContent = text.trim() ? (keys.length === 1 ? "1 found" : keys.length + " found") : "";
    light();
  };
  search.addEventListener("input", () => seek(search.value));
  search.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Escape") { search.value = ""; seek(""); picture.focus(); }
    if (event.key !== "Enter" || !found.size) return;
    const keys = [...found];
    turn = (turn + (event.shiftKey ? keys.length - 1 : 1)) % keys.length;
    hits.textContent = turn + 1 + " of " + keys.length;
    point(keys[turn]);
  });

  // ---- title, legend, table
  const icon = (draw) => {
    const made = element("canvas");
    made.width = made.height = 36;
    made.setAttribute("aria-hidden", "true");
    const context = made.getContext("2d");
    context.scale(2, 2);
    draw(context);
    return made;
  };
  const line = (colour, dashes, width) => icon((context) => {
    context.strokeStyle = css(colour);
    context.lineWidth = width || 2;
    context.setLineDash(dashes ? [4, 3] : []);
    context.beginPath();
    context.moveTo(0, 9);
    context.lineTo(18, 9);
    context.stroke();
  });
  const toggle = (kind, button) => {
    if (!hidden.delete(kind)) hidden.add(kind);
    button.setAttribute("aria-pressed", String(!hidden.has(kind)));
    nodes.update([...records.values()].filter((record) => (record.mark || record.kind) === kind)
      .map((record) => ({ id: record.number, hidden: hidden.has(kind) })));
  };
  const legendRow = (word, items) => {
    if (!items.length) return;
    const row = element("div");
    row.append(element("b", word), ...items);
    legend.append(row);
  };
  const shownWord = (picture_, text, kind) => {
    if (kind === undefined) {
      const item = element("span");
      item.append(picture_, element("span", text));
      return item;
    }
    const button = pressable(undefined, "", () => toggle(kind, button));
    button.append(picture_, element("span", text));
    button.title = "Hide or show";
    button.setAttribute("aria-pressed", String(!hidden.has(kind)));
    return button;
  };
  const writeLegend = () => {
    legend.replaceChildren();
    const told = rest.legend;
    legendRow("A step", told.marks.map((one) => shownWord(
      icon((context) => paintMark(context, one.mark, "unknown", 9, 9, 6)), one.text, one.mark)));
    legendRow("Its result", told.tones.map((one) => shownWord(
      icon((context) => paintMark(context, "look", one.tone, 9, 9, 6.5)), one.text)));
    const marks = [];
    if (lanes.size || [...records.values()].some((record) => record.kind === "Run")) {
      marks.push(shownWord(icon((context) => { context.scale(0.6, 0.6); paintRun(context, 15, 15); }), "a run begins"));
    }
    if (rest.bands.some((band) => band.risk.length)) {
      marks.push(shownWord(icon((context) => { context.fillStyle = css("risk"); [4, 8, 13].forEach((h, i) => context.fillRect(1 + i * 6, 16 - h, 5, h)); }), "risk that the run is lost"));
    }
    if (told.flags.includes("alarm")) marks.push(shownWord(element("b", "alarm"), "raised here"));
    if (told.flags.includes("fork-point")) marks.push(shownWord(element("b", "fork"), "another run parts here"));
    for (const link of told.links) marks.push(shownWord(line(LINK[link.kind] || "relation", link.dashes), link.text));
    legendRow("Lines", marks);
    legendRow("Named", told.entities.map((one) => shownWord(icon((context) => {
      context.fillStyle = mix(one.line, css("paper"), 0.3);
      context.strokeStyle = root.dataset.theme === "dark" ? mix(one.line, "#ffffff", 0.55) : one.line;
      context.lineWidth = 1.6;
      context.beginPath();
      context.roundRect(1, 4, 16, 10, 3);
      context.fill();
      context.stroke();
    }), one.text, one.kind)));
  };
  const writeTable = () => {
    const COLUMNS = ["kind", "run", "step", "did", "result", "marked", "name"];
    const sheet = element("table");
    const top = element("tr");
    COLUMNS.forEach((name) => top.append(element("th", name)));
    sheet.append(top);
    for (const record of records.values()) {
      const { run, step: number, steps, did, result, action, entity, event } = record.detail;
      const row = element("tr");
      const cells = [record.kind, run, number || steps, did, result, record.flags.join(", "), entity || (action || "").slice(0, 200) || event || record.caption];
      cells.forEach((text) => row.append(element("td", text === undefined ? "" : text)));
      sheet.append(row);
    }
    return sheet;
  };
  const holder = element("div");
  const summary = element("summary", "The same as a table");
  table.append(summary, holder);
  const fillTable = () => holder.replaceChildren(...(table.open ? [writeTable()] : []));
  table.addEventListener("toggle", fillTable);
  const writeAround = () => {
    title.textContent = plain(rest.title);
    notes.textContent = plain(rest.notes.join(" \u00b7 "));
    picture.setAttribute("aria-label", plain("Graph of " + (rest.title || "runs")) + ". Arrow keys walk along the steps, Enter keeps one, slash searches.");
    writeLegend();
    fillTable();
  };
  tools.append(
    pressable("Whole picture", "", () => show(true)), pressable("+", "Closer", () => closer(1.3)),
    pressable("\u2212", "Farther", () => closer(1 / 1.3)), search, hits,
  );

  // ---- changes
  const replace = (whole) => {
    const turned = whole.layout !== rest.layout;
    load(whole);
    network.setOptions({ interaction: { dragNodes: Boolean(whole.options.interaction.dragNodes) } });
    if (kept !== null && !records.has(kept)) choose(null);
    [focused, pointed] = [records.has(focused) ? focused : null, null];
    seek(search.value);
    if (kept !== null) inspect(kept); else welcome();
    writeAround();
    if (turned) show(false);
  };
  const merge = (columns) => {
    const made = [];
    (columns.keys || []).forEach((key, i) => {
      const old = records.get(key);
      const record = readNode(columns, i, old ? old.number : ++counter);
      records.set(key, record);
      byNumber.set(record.number, record);
      made.push(record);
    });
    return made;
  };
  const patch = (told) => {
    const turned = told.layout !== undefined && told.layout !== rest.layout;
    for (const name of ["bands", "legend", "notes", "title", "layout"]) {
      if (told[name] !== undefined && told[name] !== null) rest[name] = told[name];
    }
    if (told.options) network.setOptions({ interaction: { dragNodes: Boolean(told.options.interaction.dragNodes) } });
    for (const key of told.remove || []) {
      const record = records.get(key);
      if (!record) continue;
      records.delete(key);
      byNumber.delete(record.number);
      nodes.remove(record.number);
    }
    const cut = new Set((told.edges && told.edges.remove || []).map(([source, target, kind]) => linkKey(source, target, kind)));
    for (const [name, link] of links) {
      if (!cut.has(name) && records.has(link.source) && records.has(link.target)) continue;
      links.delete(name);
      edges.remove(link.number);
    }
    nodes.update([...merge(told.add || {}), ...merge(told.change || {})].map(forVis));
    const fresh = [];
    for (const { source, target, kind, label, looks } of told.edges && told.edges.add || []) {
      if (!records.has(source) || !records.has(target)) continue;
      const link = { number: ++counter, source, target, kind, label, looks };
      links.set(linkKey(source, target, kind), link);
      if (drawnAlways(link)) fresh.push(edgeForVis(link));
    }
    edges.add(fresh);
    relate();
    if (kept !== null && !records.has(kept)) choose(null);
    if (focused !== null && !records.has(focused)) focused = null;
    if (pointed !== null && !records.has(pointed)) pointed = null;
    if (search.value) seek(search.value);
    if (kept !== null) inspect(kept);
    writeAround();
    light();
    again();
    if (turned) show(false);
  };

  // ---- begin
  writeAround();
  welcome();
  let painted = false;
  network.on("afterDrawing", () => {
    if (painted || !shown) return;
    painted = true;
    requestAnimationFrame(() => {
      root.dataset.painted = String(Math.round(performance.now()));
      root.dispatchEvent(new CustomEvent("sag-painted"));
    });
  });
  let wideBefore = 0;
  const fitWidth = new ResizeObserver(() => {
    root.classList.toggle("sag-narrow", root.clientWidth < 1150);
    if (Math.abs(canvas.clientWidth - wideBefore) < 2) return;
    wideBefore = canvas.clientWidth;
    network.setSize("100%", "100%");
    show(false);
  });
  fitWidth.observe(root);
  fitWidth.observe(canvas);

  return {
    network, choose: (key) => { choose(key, true); if (kept !== null && shown) bring(kept); }, selected: () => kept, onChoose: (told) => listeners.push(told),
    find, fit: () => show(true), closer, patch, replace, setTheme,
    keys: () => [...records.keys()],
    at: (key) => network.canvasToDOM(network.getPosition(records.get(key).number)),
    links: () => [...links.values()].map(({ source, target, kind, label, looks }) => ({ source, target, kind, label, hidden: Boolean(looks.hidden) })),
    destroy: () => {
      gone = true;
      scheme.removeEventListener("change", dress);
      labTheme.disconnect();
      fitWidth.disconnect();
      network.destroy();
      root.classList.remove("sag", "sag-narrow");
      delete root.dataset.theme;
      delete root.dataset.painted;
      root.replaceChildren();
    },
  };
}
