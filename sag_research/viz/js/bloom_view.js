// A live drawing: takes numbered patches from Python and hands them to all its views.
// The messages are described in _bloom_view.py; all that draws is in draw.js.

const unpack = async (packed) => {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
};

// The shared library is run once a page, however many views there are.
const loaded = async (model) => {
  const lib = await model.widget_manager.get_model(model.get("_lib").replace("IPY_MODEL_", ""));
  lib.sagLoaded ??= (async () => {
    const parts = ["vis", "draw", "css"].map((name) => unpack(lib.get(name)));
    const [source, draw, css] = await Promise.all(parts);
    const made = { exports: {} };
    // a UMD script finds `exports` and takes it; under a page's `define` it would wait for ever
    new Function("exports", "module", "define", source)(made.exports, made, undefined);
    const sagDraw = new Function(draw + "\nreturn sagDraw;")();
    return { vis: made.exports, sagDraw, css };
  })();
  return lib.sagLoaded;
};

// A picture that grows is kept in sight, until its reader moves it.
const followed = (picture) => {
  const LEGIBLE = 0.45;
  let moved = false;
  for (const name of ["zoom", "dragStart", "selectNode"]) picture.network.on(name, () => { moved = true; });
  return (patches) => {
    if (moved) return;
    picture.fit();
    const newest = patches.flatMap((patch) => patch.add?.keys ?? []).pop();
    if (newest === undefined || picture.network.getScale() >= LEGIBLE) return;
    // too large for legible text: its end, at the right
    const { x } = picture.network.DOMtoCanvas(picture.at(newest));
    const { y } = picture.network.getViewPosition();
    const aside = (0.36 * picture.network.body.container.clientWidth) / LEGIBLE;
    picture.network.moveTo({ position: { x: x - aside, y }, scale: LEGIBLE, animation: false });
  };
};

export default () => {
  // of the page's model: a version, and what leads to it. Views come and go.
  let cursor = -1;
  let data = null;
  let patches = [];
  let turn = null;
  const views = new Set();

  const take = async (model, content, buffers) => {
    if (content.type === "fit") {
      for (const view of views) view.fit();
    } else if (content.type === "snapshot" && content.at >= cursor) {
      const whole = JSON.parse(await unpack(buffers[0]));
      const behind = content.at > cursor;
      [cursor, data, patches] = [content.at, whole, []];
      if (behind) for (const view of views) view.replace();
    } else if (content.type === "patches" && content.end > cursor) {
      if (content.start > cursor) {
        model.send({ type: "hello", cursor });
        return;
      }
      const fresh = JSON.parse(await unpack(buffers[0])).slice(cursor - content.start);
      cursor = content.end;
      patches.push(...fresh);
      for (const view of views) view.patch(fresh);
    }
  };

  const initialize = ({ model }) => {
    const start = model.get("_start");
    const first = { type: "snapshot", at: start.cursor };
    turn = take(model, first, [start.scene]);
    const hear = (content, buffers) => {
      turn = turn.then(() => take(model, content, buffers)).catch((error) => console.error(error));
    };
    model.on("msg:custom", hear);
    turn = turn.then(() => model.send({ type: "hello", cursor }));
    return () => model.off("msg:custom", hear);
  };

  const render = async ({ model, el }) => {
    el.classList.add("sag-live");
    const hide = document.createElement("style");
    hide.textContent = ".jp-OutputArea:has(.sag-live) .jp-OutputArea-child:has(.sag-saved) { display: none; }";
    const root = document.createElement("div");
    const size = () => { root.style.height = model.get("height") + "px"; };
    size();
    const style = document.createElement("style");
    el.append(hide, style, root);
    const { vis, sagDraw, css } = await loaded(model);
    style.textContent = css;
    await turn;

    const picture = sagDraw(vis, root, data, { inspector: model.get("details"), wheel: false, legend: true });
    root.bloom = picture; // for whoever looks at the page from outside
    const told = () => {
      root.dataset.cursor = String(cursor);
      root.dispatchEvent(new CustomEvent("sag-drawn", { bubbles: true, detail: cursor }));
    };
    const choose = () => picture.choose(model.get("selected") || null);
    const look = () => picture.setTheme(model.get("theme"));
    const follow = followed(picture);
    const view = {
      patch: (fresh) => {
        for (const patch of fresh) picture.patch(patch);
        if (model.get("follow")) follow(fresh);
        told();
      },
      replace: () => { picture.replace(data); choose(); told(); },
      fit: () => picture.fit(),
    };
    for (const patch of patches) picture.patch(patch);
    views.add(view);
    look();
    if (model.get("selected")) choose();
    picture.onChoose((key) => {
      if ((key ?? "") === model.get("selected")) return;
      model.set("selected", key ?? "");
      model.save_changes();
    });
    told();

    const heard = { "change:selected": choose, "change:theme": look, "change:height": size };
    for (const [name, does] of Object.entries(heard)) model.on(name, does);
    return () => {
      for (const [name, does] of Object.entries(heard)) model.off(name, does);
      views.delete(view);
      picture.destroy();
    };
  };

  return { initialize, render };
};
