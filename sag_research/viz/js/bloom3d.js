// A scene in space, drawn by 3d-force-graph; by draw.js where there is no WebGL. Every text goes
// to the page by textContent: the library's own labels, which read markup, are switched off.

const unpack = async (packed) => {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
};

// A UMD script finds `exports` and takes it; under a page's `define` it would wait for ever.
const umd = (source) => {
  const made = { exports: {} };
  new Function("exports", "module", "define", source)(made.exports, made, undefined);
  return made.exports;
};
const shared = (model, name) => model.widget_manager.get_model(model.get(name).replace("IPY_MODEL_", ""));
const loadSpace = async (model) => {
  const lib = await shared(model, "_lib");
  lib.sagSpace ??= unpack(lib.get("source")).then(umd);
  return lib.sagSpace;
};
const loadFlat = async (model) => {
  const lib = await shared(model, "_flat");
  lib.sagLoaded ??= (async () => {
    const [source, draw, css] = await Promise.all(["vis", "draw", "css"].map((name) => unpack(lib.get(name))));
    return { vis: umd(source), sagDraw: new Function(draw + "\nreturn sagDraw;")(), css };
  })();
  return lib.sagLoaded;
};

const hasWebGL = () => {
  const context = document.createElement("canvas").getContext("webgl2");
  context?.getExtension("WEBGL_lose_context")?.loseContext();
  return context !== null;
};

const themeOf = (model) => {
  const [wish, light] = [model.get("theme"), document.body.dataset.jpThemeLight];
  if (wish !== "auto") return wish;
  if (light !== undefined) return light === "true" ? "light" : "dark";
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
};

// Characters that reorder or hide text are made visible, so that nothing reads as what it is not.
const HIDDEN = /[\u061c\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;
const code = (c) => "\u27e8U+" + c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0") + "\u27e9";
const LONGEST = 240;
const plain = (text) => {
  const line = String(text).slice(0, 2 * LONGEST).replace(HIDDEN, code).replace(/\s+/g, " ").trim();
  return line.length > LONGEST ? line.slice(0, LONGEST - 1) + "\u2026" : line;
};
const element = (tag, className, text) => {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = plain(text);
  return made;
};

// ---- what is said of a node
const nameOf = (data, id) => {
  const [label, caption, detail] = data.texts[id];
  if (data.kinds[id] === "Run") return "run " + (detail.run ?? "");
  if (detail.step !== undefined) return "step " + detail.step;
  if (detail.steps !== undefined) return "steps " + detail.steps;
  return detail.event ?? detail.entity ?? (label || caption);
};
const sayOf = (data, id) => {
  const detail = data.texts[id][2];
  const parts = [nameOf(data, id)];
  for (const name of ["kind", "did", "result", "outcome", "mentions"]) {
    if (detail[name] !== undefined) parts.push(name === "mentions" ? detail[name] + " mentions" : detail[name]);
  }
  const flags = data.marks[id][2];
  if (flags.length) parts.push(flags.join(", "));
  if (data.kinds[id] !== "Run" && detail.run !== undefined) parts.push("run " + detail.run);
  const long = detail.action ?? detail.goal ?? detail.thought;
  return parts.join(" \u00b7 ") + (long === undefined ? "" : " \u00b7 " + long);
};

// ---- the camera
const minus = (a, b) => a.map((value, i) => value - b[i]);
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const unit = (a) => { const length = Math.hypot(...a) || 1; return a.map((value) => value / length); };
const FROM = unit([0.18, 0.42, 1]);
const MARGIN = 26;
const NAMES = 80; // pixels for the runs' names

// The nearest place on the line `from` the middle at which all points are in the picture.
const standBack = (points, fov, aspect, share) => {
  const middle = [0, 1, 2].map((i) => {
    const values = points.map((point) => point[i]);
    return (Math.min(...values) + Math.max(...values)) / 2;
  });
  const right = unit(cross([0, 1, 0], FROM));
  const up = cross(FROM, right);
  const tangent = Math.tan((fov * Math.PI) / 360);
  let distance = 60;
  for (const point of points) {
    const away = minus(point, middle);
    const wide = (Math.abs(dot(away, right)) + MARGIN) / (tangent * aspect * share);
    const high = (Math.abs(dot(away, up)) + MARGIN) / tangent;
    distance = Math.max(distance, dot(away, FROM) + Math.max(wide, high));
  }
  const [x, y, z] = middle.map((value, i) => value + FROM[i] * distance);
  return [{ x, y, z }, { x: middle[0], y: middle[1], z: middle[2] }];
};

// ---- the labels: divs over the picture, the most important first, none over another
const MOST_LABELS = 60;
const labelsOver = (stage, data, graph) => {
  const layer = element("div", "sag-space-labels");
  stage.append(layer);
  const made = new Map();
  const rank = (id) => (data.kinds[id] === "Run" ? 0 : data.marks[id][2].length ? 1 : data.texts[id][2].entity !== undefined ? 2 : 9);
  const always = data.keys.map((_, id) => id).filter((id) => rank(id) < 9).sort((a, b) => rank(a) - rank(b) || a - b);
  const labelOf = (id) => {
    if (!made.has(id)) {
      const [label, , detail] = data.texts[id];
      const flags = data.marks[id][2];
      const text = rank(id) === 2 ? label : rank(id) === 1 ? nameOf(data, id) + ": " + flags.join(", ") : nameOf(data, id);
      const div = element("div", "sag-space-label", text || detail.entity || "");
      layer.append(div);
      made.set(id, [div, div.offsetWidth, div.offsetHeight]);
    }
    return made.get(id);
  };
  return {
    draw(nodes, first) {
      const eye = graph.camera().position;
      const to = graph.controls().target;
      const ahead = [to.x - eye.x, to.y - eye.y, to.z - eye.z];
      const taken = [];
      const shown = new Set();
      for (const id of [...first, ...always]) {
        if (shown.size >= MOST_LABELS) break;
        const node = nodes[id];
        if (shown.has(id) || dot([node.x - eye.x, node.y - eye.y, node.z - eye.z], ahead) <= 0) continue;
        const place = graph.graph2ScreenCoords(node.x, node.y, node.z);
        const [div, width, height] = labelOf(id);
        // a run's name stands before its lane, where no steps are; above its beginning if it is long
        const before = place.x - 12 - width;
        const above = rank(id) === 0 && before < 0 && place.x > 0;
        const left = above ? Math.max(0, place.x - width) : rank(id) === 0 ? before : place.x + 9;
        const top = above ? place.y - height - 8 : place.y - height / 2;
        const outside = left < 0 || top < 0 || left + width > layer.clientWidth || top + height > layer.clientHeight;
        const covered = taken.some(([x, y, w, h]) => left < x + w && x < left + width && top < y + h && y < top + height);
        if ((outside || covered) && !first.includes(id)) continue;
        taken.push([left, top, width, height]);
        shown.add(id);
        div.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
        div.classList.toggle("sag-chosen", id === first[0]);
      }
      for (const [id, [div]] of made) div.style.visibility = shown.has(id) ? "visible" : "hidden";
    },
    destroy() { layer.remove(); },
  };
};

// ---- the picture in space
const CHOSEN = "#e69f00";
const COOL = 150;
const REST = 1500;
const PAPER = { light: "#f3f5f7", dark: "#161b20" };

const drawSpace = (ForceGraph3D, root, data, lost) => {
  const { at, colours, radii, links: looks } = data.space;
  const stage = element("div", "sag-space-stage");
  const holder = element("div", "sag-space-gl");
  stage.append(holder);
  const bar = element("div", "sag-space-bar");
  const said = element("div", "sag-space-said");
  said.setAttribute("role", "status");
  root.append(stage, bar);
  const nodes = at.map(([x, y, z], id) => ({ id, x, y, z, fx: x, fy: y, fz: z }));
  const links = data.edges.map((edge, number) => ({ source: edge.from, target: edge.to, number }));
  let [chosen, hovered, heard, loose] = [null, null, () => {}, false];

  const graph = new ForceGraph3D(holder, { controlType: "orbit", rendererConfig: { antialias: true } });
  const touches = (link, id) => id !== null && ((link.source.id ?? link.source) === id || (link.target.id ?? link.target) === id);
  const isDrawn = (link) => looks[link.number][1] || touches(link, chosen) || touches(link, hovered);
  graph.showNavInfo(false).nodeLabel(() => "").linkLabel(() => "").enableNodeDrag(false)
    .nodeRelSize(1).nodeVal((node) => radii[node.id] ** 3).nodeResolution(nodes.length > 500 ? 6 : 10)
    .nodeColor((node) => (node.id === chosen ? CHOSEN : colours[node.id])).nodeOpacity(1)
    .linkColor((link) => (touches(link, chosen) ? CHOSEN : looks[link.number][0])).linkOpacity(0.7).linkWidth(0)
    .linkVisibility(isDrawn).warmupTicks(0).cooldownTicks(0).d3AlphaDecay(0.035)
    .width(stage.clientWidth || 600).height(stage.clientHeight || 400)
    .graphData({ nodes, links });
  const labels = labelsOver(stage, data, graph);
  const canvas = graph.renderer().domElement;
  canvas.addEventListener("webglcontextlost", lost);
  // inside a notebook the wheel scrolls the notebook
  const wheel = (event) => { if (!event.ctrlKey) event.stopImmediatePropagation(); };
  holder.addEventListener("wheel", wheel, { capture: true });

  const repaint = () => {
    graph.nodeColor(graph.nodeColor()).linkColor(graph.linkColor()).linkVisibility(graph.linkVisibility());
    wake();
  };
  const fit = () => {
    // the camera's own aspect is that of the last frame, which may have had another size
    const aspect = (stage.clientWidth || 600) / (stage.clientHeight || 400);
    const points = nodes.map(({ x, y, z }) => [x, y, z]);
    if (nodes.length) graph.cameraPosition(...standBack(points, graph.camera().fov, aspect, share()), 0);
    wake();
  };
  const share = () => Math.max(0.5, 1 - (2 * NAMES) / (stage.clientWidth || 600));

  // The picture is drawn while something moves, and rests when nothing does.
  let [until, running, frames] = [0, false, 0];
  const frame = (now) => {
    if (!running) return;
    labels.draw(nodes, [chosen, hovered].filter((id) => id !== null));
    frames += 1;
    if (frames === 2) {
      fit(); // the library has its own camera until the first frame
      root.dataset.drawn = "space";
      root.dispatchEvent(new CustomEvent("sag-drawn", { bubbles: true }));
    }
    if (frames > 4 && now > until) { running = false; graph.pauseAnimation(); } else requestAnimationFrame(frame);
  };
  function wake(milliseconds = REST) {
    until = Math.max(until, performance.now() + milliseconds);
    if (running) return;
    running = true;
    graph.resumeAnimation();
    requestAnimationFrame(frame);
  }
  for (const name of ["pointerdown", "pointermove", "wheel"]) holder.addEventListener(name, () => wake(), true);
  graph.controls().addEventListener("change", () => wake(300));
  const sized = new ResizeObserver(() => {
    if (!stage.clientWidth || !stage.clientHeight) return;
    graph.width(stage.clientWidth).height(stage.clientHeight);
    fit();
  });
  sized.observe(stage);

  const choose = (key) => {
    const id = key === null ? -1 : data.keys.indexOf(key);
    chosen = id < 0 ? null : id;
    said.textContent = chosen === null ? data.notes.map(plain).join("; ") : plain(sayOf(data, chosen));
    root.dataset.chosen = chosen === null ? "" : data.keys[chosen];
    repaint();
  };
  const chosenBy = (id) => { choose(id === null ? null : data.keys[id]); heard(root.dataset.chosen); };
  // The library knows what is pointed at a frame later; a click may come before, or while it rests.
  const NEAR = 10;
  const nearest = (event) => {
    const box = holder.getBoundingClientRect();
    let [found, least] = [null, NEAR];
    for (const { id, x, y, z } of nodes) {
      const place = graph.graph2ScreenCoords(x, y, z);
      const away = Math.hypot(place.x - (event.clientX - box.left), place.y - (event.clientY - box.top));
      if (away < least) [found, least] = [id, away];
    }
    return found;
  };
  let pressedAt = [0, 0];
  holder.addEventListener("pointerdown", (event) => { pressedAt = [event.clientX, event.clientY]; }, true);
  holder.addEventListener("click", (event) => {
    if (Math.hypot(event.clientX - pressedAt[0], event.clientY - pressedAt[1]) < 5) chosenBy(nearest(event));
  }, true);
  graph.onNodeHover((node) => { hovered = node ? node.id : null; repaint(); });

  const go = (step) => {
    if (nodes.length) chosenBy(chosen === null ? (step > 0 ? 0 : nodes.length - 1) : (chosen + step + nodes.length) % nodes.length);
  };
  const zoom = (factor) => {
    const [eye, to] = [graph.camera().position, graph.controls().target];
    const place = ["x", "y", "z"].map((axis) => to[axis] + (eye[axis] - to[axis]) * factor);
    graph.cameraPosition({ x: place[0], y: place[1], z: place[2] }, { x: to.x, y: to.y, z: to.z }, 0);
    wake();
  };
  const KEYS = {
    ArrowRight: () => go(1), ArrowDown: () => go(1), ArrowLeft: () => go(-1), ArrowUp: () => go(-1),
    Escape: () => chosenBy(null), 0: fit, "+": () => zoom(0.8), "-": () => zoom(1.25),
  };
  const pressed = (event) => {
    if (event.target !== root || !KEYS[event.key]) return;
    event.preventDefault();
    event.stopPropagation(); // the notebook has keys of its own
    KEYS[event.key]();
  };
  root.addEventListener("keydown", pressed);

  const buttons = [["Show all", fit], ["Nearer", () => zoom(0.8)], ["Farther", () => zoom(1.25)]];
  for (const [text, does] of buttons) {
    const button = element("button", "", text);
    button.type = "button";
    button.addEventListener("click", does);
    bar.append(button);
  }
  for (const [colour, text] of data.space.legend) {
    const key = element("span", "sag-space-key");
    const spot = element("i");
    spot.style.background = colour;
    key.append(spot, element("span", "", text));
    bar.append(key);
  }
  bar.append(said);
  choose(null);
  wake();

  return {
    choose,
    onChoose(callback) { heard = callback; },
    setTheme(theme) { graph.backgroundColor(PAPER[theme]); wake(); },
    setForce(on) {
      if (on === loose) return;
      loose = on;
      nodes.forEach((node, id) => {
        const [x, y, z] = on ? [undefined, undefined, undefined] : at[id];
        Object.assign(node, { fx: x, fy: y, fz: z });
        if (!on) Object.assign(node, { x, y, z, vx: 0, vy: 0, vz: 0 });
      });
      root.dataset.force = on ? "moving" : "";
      graph.cooldownTicks(on ? COOL : 0).onEngineStop(() => {
        if (!loose || root.dataset.force !== "moving") return;
        root.dataset.force = "cooled";
        fit();
      });
      graph.d3ReheatSimulation();
      wake(on ? 60000 : REST);
      if (!on) fit();
    },
    find: (wanted) => data.keys.find((_, id) => wanted(data.kinds[id])),
    placeOf(key) {
      const { x, y, z } = nodes[data.keys.indexOf(key)];
      return graph.graph2ScreenCoords(x, y, z);
    },
    destroy() {
      running = false;
      sized.disconnect();
      root.removeEventListener("keydown", pressed);
      canvas.removeEventListener("webglcontextlost", lost);
      labels.destroy();
      graph._destructor();
      graph.renderer().dispose();
      graph.renderer().forceContextLoss();
    },
  };
};

// ---- the picture without WebGL
const drawFlat = async (model, root, data) => {
  const { vis, sagDraw, css } = await loadFlat(model);
  const style = document.createElement("style");
  style.textContent = css;
  const note = element("div", "sag-space-note", "Drawn flat: this browser offers no WebGL, which a view in space needs.");
  note.setAttribute("role", "status");
  const [stage, bar] = [element("div", "sag-space-stage"), element("div", "sag-space-bar")];
  const said = element("div", "sag-space-said");
  said.setAttribute("role", "status");
  bar.append(said);
  root.append(style, note, stage, bar);
  const wish = { inspector: false, wheel: false, legend: true, table: false };
  const picture = sagDraw(vis, stage, structuredClone(data), wish);
  const say = (key) => {
    const id = data.keys.indexOf(key ?? "");
    said.textContent = id < 0 ? "" : plain(sayOf(data, id));
    root.dataset.chosen = id < 0 ? "" : key;
  };
  root.dataset.drawn = "flat";
  root.dispatchEvent(new CustomEvent("sag-drawn", { bubbles: true }));
  return {
    choose: (key) => { picture.choose(key); say(key); },
    onChoose: (heard) => picture.onChoose((key) => { say(key); heard(key); }),
    setTheme: (theme) => picture.setTheme(theme),
    setForce() {},
    destroy: () => picture.destroy(),
  };
};

const render = async ({ model, el }) => {
  el.classList.add("sag-live");
  const hide = document.createElement("style");
  hide.textContent = ".jp-OutputArea:has(.sag-live) .jp-OutputArea-child:has(.sag-saved) { display: none; }";
  const root = element("div", "sag-space");
  root.tabIndex = 0;
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", "Graph in space; the arrow keys go from node to node");
  el.append(hide, root);
  let picture = null;
  let turn = Promise.resolve();
  let ended = false;

  const look = () => {
    const theme = themeOf(model);
    root.classList.toggle("sag-dark", theme === "dark");
    picture?.setTheme(theme);
  };
  const choose = () => picture?.choose(model.get("selected") || null);
  const show = async (space) => {
    picture?.destroy();
    picture = null;
    root.replaceChildren();
    const data = JSON.parse(await unpack(model.get("_data")));
    const ForceGraph3D = space ? await loadSpace(model) : null;
    if (ended) return;
    const lost = () => { turn = turn.then(() => show(false)); };
    picture = space ? drawSpace(ForceGraph3D, root, data, lost) : await drawFlat(model, root, data);
    root.sagPicture = picture;
    picture.onChoose((key) => {
      if ((key ?? "") === model.get("selected")) return;
      model.set("selected", key ?? "");
      model.save_changes();
    });
    look();
    if (model.get("selected")) choose();
    if (model.get("force")) picture.setForce(true);
  };
  const again = () => { turn = turn.then(() => show(hasWebGL())); };
  const size = () => { root.style.height = model.get("height") + "px"; };
  const relax = () => picture?.setForce(model.get("force"));

  size();
  look();
  again();
  const watcher = new MutationObserver(look);
  watcher.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
  const heard = { "change:_data": again, "change:selected": choose, "change:theme": look,
    "change:height": size, "change:force": relax };
  for (const [name, does] of Object.entries(heard)) model.on(name, does);
  await turn;
  return () => {
    ended = true;
    for (const [name, does] of Object.entries(heard)) model.off(name, does);
    watcher.disconnect();
    picture?.destroy();
  };
};

export default { render };
