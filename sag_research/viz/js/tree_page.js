// A tree on a page of its own, without Python.
(async () => {
  const packed = atob(document.getElementById("data").textContent);
  const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const { kind, data, options } = JSON.parse(await new Response(stream).text());
  const root = document.getElementById("tree");
  const quiet = () => {};
  const draw = kind === "lineage" ? sagLineageTree : sagPrefixExplorer;
  draw(root, data, { ...options, onChoose: quiet, onStop: quiet, onRun: quiet, onSetting: quiet });
  root.style.height = "100%";
  document.documentElement.dataset.painted = "yes";
})();
