
// Data and what draws it are packed: a notebook that holds some drawings stays small.
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
  const data = JSON.parse(await unpack("data"));
  const root = document.getElementById("bloom");
  root.addEventListener("sag-painted", () => { document.documentElement.dataset.painted = root.dataset.painted; });
  // inside a notebook the wheel scrolls the notebook
  window.bloom = sagDraw(vis, root, data, { inspector: true, legend: true, wheel: window.self === window.top });
})();
