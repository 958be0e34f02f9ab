// Code to read and copy; it is only ever the value of a text box.

export default {
  render({ model, el }) {
    el.classList.add("sag-code");
    const box = document.createElement("textarea");
    box.readOnly = true;
    box.spellcheck = false;
    box.setAttribute("aria-label", "Code, ready to run");
    Object.assign(box.style, {
      width: "100%", boxSizing: "border-box", resize: "vertical", padding: "6px 8px",
      font: "12px/1.4 var(--jp-code-font-family, monospace)",
      color: "var(--jp-content-font-color1, inherit)",
      background: "var(--jp-layout-color2, #f2f2f2)",
      border: "1px solid var(--jp-border-color2, #ccc)", borderRadius: "3px",
    });
    const copy = document.createElement("button");
    copy.type = "button";
    copy.className = "jupyter-button widget-button";
    copy.textContent = "Copy";
    copy.addEventListener("click", async () => {
      box.focus();
      box.select();
      try {
        await navigator.clipboard.writeText(box.value);
        copy.textContent = "Copied";
      } catch {
        // not a secure page: the text is selected, a key copies it
        copy.textContent = "Selected: press Ctrl+C";
      }
    });
    const show = () => {
      box.value = model.get("value");
      box.rows = Math.min(Math.max(box.value.split("\n").length, 1), 12);
      box.style.display = copy.style.display = box.value ? "" : "none";
      copy.textContent = "Copy";
    };
    el.append(box, copy);
    model.on("change:value", show);
    show();
    return () => model.off("change:value", show);
  },
};
