"use strict";
// The slider of thresholds: what each decides, before and after. Without it there are a chart and a table.
(() => {
  const byId = (id) => document.getElementById(id);
  const { two, tables } = JSON.parse(byId("decide-data").textContent);
  const slider = byId("decide-at"), percent = (share) => (100 * share).toFixed(2);
  const thresholds = tables[0].threshold;
  const three = (value) => String(Number(value.toPrecision(3)));
  const show = () => {
    const i = Number(slider.value), t = thresholds[i];
    byId("decide-t").textContent = String(t);
    const price = two ? (t === 0 ? "any number of false alarms" : `${three((1 - t) / t)} false alarms`) : `${three(1 - t)} mistakes`;
    byId("decide-price").textContent = price;
    slider.setAttribute("aria-valuetext", `${t}, ${price}`);
    for (const table of tables) {
      const decided = table.decided[i], right = table.right[i], wrong = decided - right;
      const cost = two ? t * wrong + (1 - t) * (table.right[0] - right) : wrong + (1 - t) * (1 - decided);
      const cells = [percent(decided), decided ? percent(wrong / decided) : "–", (1000 * cost).toFixed(1), percent(right), percent(table.promised[i])];
      const row = document.querySelector(`#decide-table tr[data-name="${table.name}"]`);
      cells.forEach((text, k) => { row.cells[k + 1].textContent = text; });
    }
  };
  slider.max = thresholds.length - 1;
  slider.value = slider.defaultValue;
  slider.addEventListener("input", show);
  byId("decide").hidden = false;
  show();
})();
