"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const HIDDEN = /[\u061c\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;
  const plain = (text) => String(text).replace(HIDDEN, (c) => "\u27e8U+" + c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0") + "\u27e9");
  const picture = document.getElementById("picture");
  const slider = document.getElementById("row");
  const told = document.getElementById("told");
  const tell = (number) => {
    const row = data.rows[number];
    if (!row) return;
    slider.value = String(number);
    const head = document.createElement("p");
    head.textContent = plain("Row " + (number + 1) + ": " + row.says);
    const list = document.createElement("ul");
    for (const [run, page] of row.runs) {
      const item = document.createElement("li");
      const name = document.createElement(page ? "a" : "span");
      name.textContent = plain(run);
      if (page) name.href = page;
      item.append(name);
      list.append(item);
    }
    told.replaceChildren(head, list);
  };
  // the picture's rows lie between two shares of its height
  const rowAt = (event) => {
    const box = picture.getBoundingClientRect();
    const share = (event.clientY - box.top) / box.height;
    return Math.floor(((share - data.top) / (data.bottom - data.top)) * data.rows.length);
  };
  picture.addEventListener("mousemove", (event) => tell(rowAt(event)));
  picture.addEventListener("click", (event) => tell(rowAt(event)));
  slider.addEventListener("input", () => tell(Number(slider.value)));
  tell(0);
})();
