"use strict";
// What the page does beyond standing there: tabs, sorting, search, the numbers of a mark, a class in detail, downloads.
// Without it all that is here to read can be read.

(() => {
  const byId = (id) => document.getElementById(id);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const say = (text) => { byId("status").textContent = text; };
  const escape = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
  const percent = (share) => `${(100 * share).toFixed(2)} %`;
  const button = (text, action, kind = "") => {
    const made = document.createElement("button");
    Object.assign(made, { type: "button", textContent: text, className: kind });
    made.addEventListener("click", action);
    return made;
  };

  // Tabs: one panel is shown, the others wait.
  for (const list of all('[role="tablist"]')) {
    const tabs = all('[role="tab"]', list);
    const select = (tab) => {
      for (const other of tabs) {
        const on = other === tab;
        other.setAttribute("aria-selected", on);
        other.tabIndex = on ? 0 : -1;
        byId(other.getAttribute("aria-controls")).hidden = !on;
      }
    };
    list.hidden = false;
    select(tabs.find((tab) => tab.getAttribute("aria-selected") === "true") ?? tabs[0]);
    list.addEventListener("click", (event) => { const tab = event.target.closest('[role="tab"]'); if (tab) select(tab); });
    list.addEventListener("keydown", (event) => {
      const at = tabs.indexOf(document.activeElement), last = tabs.length - 1;
      const to = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at === 0 ? last : at - 1, Home: 0, End: last }[event.key];
      if (to === undefined || at < 0) return;
      event.preventDefault(); tabs[to].focus(); select(tabs[to]);
    });
  }

  // Tables that sort by the column whose heading is pressed, and are searched by their first column.
  for (const table of all("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    const value = (row, column) => row.cells[column].dataset.value ?? row.cells[column].textContent.replaceAll(",", "");
    heads.forEach((head, column) => {
      const sort = () => {
        const text = column === 0, now = head.getAttribute("aria-sort");
        const up = now === "none" ? text : now === "descending";
        for (const other of heads) other.setAttribute("aria-sort", "none");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const order = text
          ? (a, b) => value(a, column).localeCompare(value(b, column), "en", { numeric: true })
          : (a, b) => value(a, column) - value(b, column);
        const rows = [...body.rows].sort(order);
        if (!up) rows.reverse();
        rows.forEach((row, i) => row.classList.toggle("beyond", i >= 15));
        body.append(...rows);
      };
      head.replaceChildren(button(head.textContent, sort));
    });
    if (body.rows.length < 8) continue;
    const box = document.createElement("p");
    box.className = "search";
    box.innerHTML = '<label>Search <input type="search" autocomplete="off"></label><span class="quiet"></span>';
    const [input, count] = [box.querySelector("input"), box.querySelector("span")];
    input.addEventListener("input", () => {
      const wanted = input.value.trim().toLowerCase();
      let shown = 0;
      for (const row of body.rows) shown += !(row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted));
      count.textContent = wanted ? `${shown} of ${body.rows.length}` : "";
    });
    table.parentElement.before(box);
  }

  // Files made here.
  const download = (name, address) => { const link = document.createElement("a"); Object.assign(link, { download: name, href: address }); link.click(); };
  for (const link of all('a[download$=".gz"]')) link.addEventListener("click", async (event) => { // unpacked here
    event.preventDefault();
    const packed = Uint8Array.from(atob(link.href.split(",")[1]), (c) => c.charCodeAt(0));
    const blob = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).blob();
    download(link.download.replace(/\.gz$/, ""), URL.createObjectURL(blob));
  });
  const svgText = (svg) => {
    const copy = svg.cloneNode(true), box = svg.viewBox.baseVal;
    copy.setAttribute("width", box.width);
    copy.setAttribute("height", box.height);
    for (const mark of all(".mark", copy)) mark.removeAttribute("data-tip");
    return new XMLSerializer().serializeToString(copy).replace(/var\(--[\w-]+,([^)]*)\)/g, "$1");
  };
  const inData = (svg) => `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgText(svg))}`;
  const savePng = (svg, name) => {
    const image = new Image(), canvas = document.createElement("canvas"), box = svg.viewBox.baseVal;
    image.onload = () => {
      Object.assign(canvas, { width: 3 * box.width, height: 3 * box.height });
      const pen = canvas.getContext("2d");
      pen.fillStyle = "#fff";
      pen.fillRect(0, 0, canvas.width, canvas.height);
      pen.drawImage(image, 0, 0, canvas.width, canvas.height);
      download(`${name}.png`, canvas.toDataURL("image/png"));
    };
    image.src = inData(svg);
  };
  const addDownloads = (svg) => {
    const name = svg.getAttribute("aria-labelledby").replace(/-title$/, "");
    const box = document.createElement("p");
    box.className = "tools figure-tools";
    box.append(button("SVG", () => download(`${name}.svg`, inData(svg))), button("PNG", () => savePng(svg, name)));
    for (const each of box.children) each.setAttribute("aria-label", `Download ${name} as ${each.textContent}`);
    svg.after(box);
  };
  const equip = (svg) => { tips.attach(svg, say); addDownloads(svg); };
  all("svg.figure").forEach(equip);

  for (const code of all(".code")) code.append(button("Copy", async (event) => {
    const text = code.querySelector("code"), pressed = event.target;
    let done = false;
    try { await navigator.clipboard.writeText(text.textContent); done = true; } catch {
      const range = document.createRange(); range.selectNodeContents(text);
      const selection = getSelection(); selection.removeAllRanges(); selection.addRange(range);
      done = document.execCommand("copy");
    }
    pressed.textContent = done ? "Copied" : "Selected: press Ctrl+C";
    say(pressed.textContent);
    setTimeout(() => { pressed.textContent = "Copy"; }, 2000);
  }, "copy"));

  // A class in detail: its curve, what it is confused with, rows to look at.
  const detail = byId("class-detail");
  if (!detail) return;
  const { names, sides, curves, others } = JSON.parse(byId("class-data").textContent);
  const chart = (label) => {
    const muted = "var(--muted,#5c6570)", plot = plots.axes({ xLabel: "probability of the class", yLabel: "how often it occurs" });
    plot.line([[0, 0], [1, 1]], { stroke: muted, "stroke-dasharray": "4 3" });
    const keys = sides.map((side, i) => {
      const [count, p, share] = curves[label][i], color = i === sides.length - 1 ? "var(--first,#0b62b8)" : muted;
      plot.line(p.map((v, k) => [v, share[k]]), { stroke: color, "stroke-width": 1.8 });
      p.forEach((v, k) => plot.dot(v, share[k], { fill: color }, `${side}: ${count[k].toLocaleString("en")} rows, probability ${percent(v)}, occurs in ${percent(share[k])}`));
      return `<text x="68" y="${26 + 18 * i}" fill="${color}">${side}</text>`;
    });
    const title = `<title id="class-${label}-title">How often ${escape(names[label])} occurs against its probability.</title>`;
    return `<svg class="figure" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 320" role="img" aria-labelledby="class-${label}-title" fill="var(--ink,#1b1f24)" style="font:12px var(--sans,system-ui,sans-serif)">${title}${plot.text()}${sides.length > 1 ? keys.join("") : ""}</svg>`;
  };
  const listed = (pairs) => pairs.map(([label, count]) => `${escape(names[label])} (${count.toLocaleString("en")})`).join(", ") || "none";
  const open = (label) => {
    const [predictedAs, takenForIt, examples] = others[label];
    detail.innerHTML = `<h3 tabindex="-1">${escape(names[label])}</h3><div class="pair"><figure id="fig-class">${chart(label)}</figure><dl class="run">`
      + `<dt>its rows are predicted as</dt><dd>${listed(predictedAs)}</dd><dt>rows of others taken for it</dt><dd>${listed(takenForIt)}</dd>`
      + `<dt>rows to look at</dt><dd>${examples.join(", ") || "none"}<br><span class="quiet">test rows of this class, counted from 0, that are wrong with most confidence</span></dd></dl></div>`;
    equip(detail.querySelector("svg"));
    detail.querySelector("h3").focus();
  };
  for (const row of all("#classes-table tbody tr")) {
    const cell = row.cells[0];
    cell.replaceChildren(button(cell.textContent, () => open(Number(row.dataset.label)), "link"));
  }
})();
