// A tree as a live widget: what is chosen goes to Python, what is missing comes from there.
function sagConnect(model, root) {
  const { kind, data, options } = model.get("_start");
  const save = (values) => {
    for (const [name, value] of Object.entries(values)) model.set(name, value);
    model.save_changes();
  };
  const shared = { ...options, view: model.get("view"), height: model.get("height") };
  if (kind === "lineage") {
    const view = sagLineageTree(root, data, {
      ...shared,
      chosen: model.get("_row"),
      onChoose: (row) => save({ _row: row }),
      onSetting: (name, value) => save({ [name]: value }),
    });
    return [view, { _row: (row) => view.choose(row), view: (value) => view.set("view", value) }];
  }
  const view = sagPrefixExplorer(root, data, {
    ...shared,
    min: model.get("min_runs"),
    depth: model.get("depth"),
    ask: (path) => model.send({ ask: path }),
    // the stop first: a path that changes without one is a beginning that was chosen
    onChoose: (path) => save({ _stop: [], _path: path }),
    onStop: (step, token, path) => save({ _stop: [step, token], _path: path }),
    onRun: (run) => save({ _run: run }),
    onSetting: (name, value) => save({ [name === "min" ? "min_runs" : name]: value }),
  });
  if (model.get("_path").length) view.choose(model.get("_path"));
  return [view, {
    _path: (path) => { if (!model.get("_stop").length) view.choose(path); },
    min_runs: (value) => view.set("min", value),
    depth: (value) => view.set("depth", value),
    view: (value) => view.set("view", value),
  }];
}

function render({ model, el }) {
  const root = document.createElement("div");
  el.append(root);
  const [view, follow] = sagConnect(model, root);
  const listeners = Object.entries(follow).map(([name, act]) => [`change:${name}`, () => act(model.get(name))]);
  listeners.push(["msg:custom", (message) => { if (message.data) view.replace(message.data); }]);
  for (const [name, act] of listeners) model.on(name, act);
  return () => {
    for (const [name, act] of listeners) model.off(name, act);
    view.destroy();
  };
}

export default { render };
