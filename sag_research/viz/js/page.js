"use strict";
// Draws the data block with vis-network. Every text goes to the page by textContent or to the
// canvas by fillText: nothing here parses markup.
const draw = (data) => {
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const FACE = "system-ui, 'DejaVu Sans', sans-serif";

  // Characters that reorder or hide text are made visible, so that nothing reads as what it is not.
  const HIDDEN = /[\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;
  const code = (c) => "\u27e8U+" + c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0") + "\u27e9";
  const plain = (text) => String(text).replace(HIDDEN, code);

  const element = (tag, text, className) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = plain(text);
    if (className) made.className = className;
    return made;
  };

  // ---- the picture
  const isBox = (node) => node.shape === "box";
  const nodes = new vis.DataSet(data.nodes.map((node) => {
    const label = plain(data.texts[node.id][0]);
    return { ...node, label: label || undefined };
  }));
  const edges = new vis.DataSet(data.edges);
  const framed = window.self !== window.top;
  const options = { ...data.options };
  // inside a notebook the wheel scrolls the notebook
  options.interaction = { ...options.interaction, zoomView: !framed };
  const network = new vis.Network(document.getElementById("canvas"), { nodes, edges }, options);

  const bounds = () => {
    let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
    const grow = (x0, y0, x1, y1) => {
      left = Math.min(left, x0); top = Math.min(top, y0);
      right = Math.max(right, x1); bottom = Math.max(bottom, y1);
    };
    for (const node of data.nodes) {
      const half = isBox(node) ? node.widthConstraint.minimum / 2 + 6 : 14;
      grow(node.x - half, node.y - 14, node.x + half, node.y + 14);
    }
    for (const [, x, y, width, height] of data.bands) grow(x, y, x + width, y + height);
    return left > right ? [0, 0, 1, 1] : [left, top, right, bottom];
  };
  const LEGIBLE = 0.62;
  const ENOUGH = 0.4;
  const show = (whole) => {
    const [left, top, right, bottom] = bounds();
    const room = document.getElementById("canvas");
    const margin = 14;
    const fit = Math.min((room.clientWidth - 2 * margin) / (right - left), (room.clientHeight - 2 * margin) / (bottom - top), 1.6);
    const scale = whole || fit > ENOUGH || data.layout === "force" ? fit : LEGIBLE;
    // a picture too large for legible text opens at its beginning
    const x = scale > fit ? Math.min((left + right) / 2, left - margin / scale + room.clientWidth / scale / 2) : (left + right) / 2;
    const y = scale > fit ? Math.min((top + bottom) / 2, top - margin / scale + room.clientHeight / scale / 2) : (top + bottom) / 2;
    network.moveTo({ position: { x, y }, scale: Math.max(scale, 0.02), animation: false });
  };
  const zoom = (factor) => network.moveTo({ scale: Math.min(Math.max(network.getScale() * factor, 0.02), 8), animation: false });

  network.on("beforeDrawing", (context) => {
    context.save();
    context.textBaseline = "alphabetic";
    for (const [label, x, y, width, height] of data.bands) {
      context.fillStyle = css("--band");
      context.strokeStyle = css("--band-line");
      context.lineWidth = 1;
      context.beginPath();
      context.roundRect(x, y, width, height, 8);
      context.fill();
      context.stroke();
    }
    context.restore();
  });
  network.on("afterDrawing", (context) => {
    context.save();
    context.font = "600 12px " + FACE;
    context.lineJoin = "round";
    for (const [label, x, y] of data.bands) {
      // the halo keeps a title legible where lines cross it
      context.strokeStyle = css("--band");
      context.lineWidth = 5;
      context.strokeText(plain(label), x + 10, y + 16);
      context.fillStyle = css("--ink");
      context.fillText(plain(label), x + 10, y + 16);
    }
    context.restore();
    if (!captions) return;
    context.save();
    context.fillStyle = css("--faint");
    context.font = "11px " + FACE;
    for (const node of data.nodes) {
      const caption = data.texts[node.id][1];
      if (!caption || hidden.has(data.kinds[node.id])) continue;
      const place = network.getPosition(node.id);
      context.save();
      context.translate(place.x - 2, place.y + 22);
      context.rotate(0.87);
      context.fillText(plain(caption), 0, 0);
      context.restore();
    }
    context.restore();
  });
  const lanes = data.bands.filter(([, , y]) => y >= -40);
  const captions = lanes.length > 0 && lanes[0][4] > 80;

  // ---- the inspector
  const inspector = document.getElementById("inspector");
  const LONG = new Set(["thought", "action", "observation", "body", "goal"]);
  const nameOf = (id) => {
    const [label, caption, detail] = data.texts[id];
    if (detail.run !== undefined && detail.step === undefined && detail.event === undefined) return "run " + detail.run;
    if (detail.step !== undefined) return "step " + detail.step;
    return detail.event || detail.entity || label || caption;
  };
  const many = data.kinds.filter((kind) => kind === "Run").length > 1;
  const placeOf = (id) => {
    const { run, step, event } = data.texts[id][2];
    return nameOf(id) + (many && (step !== undefined || event !== undefined) ? " \u00b7 " + run : "");
  };
  const SAY = {
    PROCESSED: ["names", "named in"], MUTATED: ["changes", "changed in"],
    NEXT: ["next", "before"], CONTAINS: ["begins with", "begins"], CAUSED_BY: ["caused by", "causes"],
    FORKED_FROM: ["forked from", "forked to"],
  };
  const neighbours = (id) => {
    const groups = new Map();
    for (const edge of data.edges) {
      for (const [end, other, side] of [[edge.from, edge.to, 0], [edge.to, edge.from, 1]]) {
        if (end !== id) continue;
        const [kind, label] = data.links[edge.id];
        const say = SAY[kind] ? SAY[kind][side] : side === 0 ? kind + " \u2192" : "\u2190 " + kind;
        if (!groups.has(say)) groups.set(say, []);
        groups.get(say).push([other, label]);
      }
    }
    return groups;
  };
  const inspect = (id) => {
    const detail = data.texts[id][2];
    const parts = [element("h2", nameOf(id))];
    const list = element("dl");
    for (const [name, text] of Object.entries(detail)) {
      if (LONG.has(name)) continue;
      list.append(element("dt", name), element("dd", text));
    }
    parts.push(list);
    for (const [name, text] of Object.entries(detail)) {
      if (LONG.has(name)) parts.push(element("h3", name), element("pre", text));
    }
    for (const [say, others] of neighbours(id)) {
      const near = element("div", undefined, "near");
      for (const [other, label] of others.slice(0, 60)) {
        const button = element("button", placeOf(other) + (label ? " (" + label + ")" : ""));
        button.type = "button";
        button.addEventListener("click", () => choose(other));
        near.append(button);
      }
      if (others.length > 60) near.append(element("span", "and " + (others.length - 60) + " more"));
      parts.push(element("h3", say), near);
    }
    inspector.replaceChildren(...parts);
    inspector.scrollTop = 0;
  };
  const welcome = () => inspector.replaceChildren(
    element("h2", data.layout === "timeline" ? "How to read this" : "Bloomed graph"),
    ...(data.layout === "timeline" ? [
      "Each lane is one run of an agent, read from left to right; a number is a step. A fork is a lane below its parent.",
      "The boxes above are what the steps name: files, errors, tests. A line ties each step to what it names; orange means it changed it.",
    ] : [
      "Circles are steps, boxes are what they name: files, errors, tests. Things named together lie together.",
    ]).concat("Point at anything to read it, click to keep it. Click a word in the legend to hide or show its kind. Drag to move.").map((text) => element("p", text)),
  );
  let kept = null;
  const isBridge = (edge) => ["PROCESSED", "MUTATED"].includes(data.links[edge.id][0]);
  const choose = (id) => {
    kept = id;
    network.selectNodes([id]);
    const lit = new Set([id, ...network.getConnectedNodes(id)]);
    nodes.update(data.nodes.map((node) => ({ id: node.id, opacity: lit.has(node.id) ? 1 : 0.25 })));
    edges.update(data.edges.filter(isBridge).map((edge) => ({ id: edge.id, hidden: edge.from !== id && edge.to !== id })));
    inspect(id);
  };
  const release = () => {
    if (kept !== null) {
      nodes.update(data.nodes.map((node) => ({ id: node.id, opacity: 1 })));
      edges.update(data.edges.filter(isBridge).map((edge) => ({ id: edge.id, hidden: Boolean(edge.hidden) })));
    }
    kept = null;
    network.unselectAll();
    welcome();
  };
  network.on("click", (event) => {
    if (event.nodes.length) choose(event.nodes[0]);
    else release();
  });
  network.on("hoverNode", (event) => { if (kept === null) inspect(event.node); });

  // ---- title and legend
  const hidden = new Set();
  const toggle = (kind, button) => {
    if (!hidden.delete(kind)) hidden.add(kind);
    button.classList.toggle("off", hidden.has(kind));
    nodes.update(data.nodes.filter((node) => data.kinds[node.id] === kind).map((node) => ({ id: node.id, hidden: hidden.has(kind) })));
  };
  const legend = document.getElementById("legend");
  const row = (word) => {
    const made = element("div");
    made.append(element("b", word));
    legend.append(made);
    return made;
  };
  const below = row("Runs");
  const above = data.legend.entities.length ? row("Entities") : below;
  for (const mark of [...data.legend.marks, ...data.legend.entities]) {
    const button = element("button");
    button.type = "button";
    const dot = element("span", undefined, "dot " + (mark.shape || "box"));
    dot.style.background = mark.fill;
    dot.style.borderColor = mark.line;
    button.append(dot, element("span", mark.text));
    button.addEventListener("click", () => toggle(mark.kind, button));
    (mark.shape ? below : above).append(button);
  }
  for (const link of data.legend.links) {
    const item = element("span");
    const stroke = element("span", undefined, "stroke" + (link.dashes ? " dashes" : ""));
    stroke.style.borderTopColor = link.line;
    item.append(stroke, element("span", link.text));
    below.append(item);
  }
  document.getElementById("title").textContent = plain(data.title);
  document.getElementById("notes").textContent = plain(data.notes.join(" \u00b7 "));
  document.getElementById("whole").addEventListener("click", () => show(true));
  document.getElementById("closer").addEventListener("click", () => zoom(1.3));
  document.getElementById("farther").addEventListener("click", () => zoom(1 / 1.3));

  welcome();
  network.once("afterDrawing", () => {
    requestAnimationFrame(() => { document.documentElement.dataset.painted = String(Math.round(performance.now())); });
  });
  show(false);
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    show(false);
  });
  window.bloom = { network, choose, release, data };
};

// Data and library are packed: a notebook that holds some drawings stays small.
const unpack = async (id) => {
  const packed = atob(document.getElementById(id).textContent);
  const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
};

(async () => {
  const script = document.createElement("script");
  script.textContent = await unpack("library");
  document.head.append(script);
  draw(JSON.parse(await unpack("data")));
})();
