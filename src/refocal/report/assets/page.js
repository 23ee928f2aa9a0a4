"use strict";
for (const list of document.querySelectorAll('[role="tablist"]')) {
  const tabs = [...list.querySelectorAll('[role="tab"]')];
  const select = (tab) => {
    for (const other of tabs) {
      const on = other === tab;
      other.setAttribute("aria-selected", on);
      other.tabIndex = on ? 0 : -1;
      document.getElementById(other.getAttribute("aria-controls")).hidden = !on;
    }
  };
  list.addEventListener("click", (event) => { const tab = event.target.closest('[role="tab"]'); if (tab) select(tab); });
  list.addEventListener("keydown", (event) => {
    const at = tabs.indexOf(document.activeElement), last = tabs.length - 1;
    const to = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at === 0 ? last : at - 1, Home: 0, End: last }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault(); tabs[to].focus(); select(tabs[to]);
  });
}
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const text = column === 0, now = head.getAttribute("aria-sort");
    const up = now === "none" ? text : now === "descending";
    for (const other of heads) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.replaceAll(",", "");
    const order = text ? (a, b) => key(a).localeCompare(key(b), "en", { numeric: true }) : (a, b) => key(a) - key(b);
    const rows = [...body.rows].sort(order);
    if (!up) rows.reverse();
    body.append(...rows);
  }));
}
for (const button of document.querySelectorAll(".copy")) button.addEventListener("click", async () => {
  const code = button.parentElement.querySelector("code"), status = document.getElementById("status");
  let done = false;
  try { await navigator.clipboard.writeText(code.textContent); done = true; } catch {
    const range = document.createRange(); range.selectNodeContents(code);
    const selection = getSelection(); selection.removeAllRanges(); selection.addRange(range);
    done = document.execCommand("copy");
  }
  button.textContent = status.textContent = done ? "Copied" : "Selected: press Ctrl+C";
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
});
