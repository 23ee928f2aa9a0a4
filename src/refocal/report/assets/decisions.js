"use strict";
// The slider of thresholds: what each decides, before and after. Without it there are a chart and a table.
(() => {
  const byId = (id) => document.getElementById(id);
  const sides = Object.entries(JSON.parse(byId("decide-data").textContent)), slider = byId("decide-at");
  const show = () => {
    for (const [name, rows] of sides) {
      const [threshold, price, ...shares] = rows[Number(slider.value)];
      byId("decide-t").textContent = threshold;
      byId("decide-price").textContent = price;
      slider.setAttribute("aria-valuetext", `${threshold}, ${price}`);
      const row = document.querySelector(`#decide-table tr[data-name="${name}"]`);
      shares.forEach((text, k) => { row.cells[k + 1].textContent = text; });
    }
  };
  slider.max = sides[0][1].length - 1;
  slider.value = slider.defaultValue;
  slider.addEventListener("input", show);
  byId("decide").hidden = false;
  show();
})();
