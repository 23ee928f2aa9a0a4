"use strict";
// The numbers of a mark, which its title holds: by pointing, by touch, by arrow keys on the chart. Without scripts a
// browser shows the title itself.

const tips = (() => {
  const tip = document.createElement("div");
  Object.assign(tip, { id: "tip", hidden: true });
  tip.setAttribute("aria-hidden", "true");
  document.body.append(tip);
  let shown = null;

  function textOf(mark) { // taken out of the mark, since the browser's own tip would come as well
    const title = mark.querySelector("title");
    if (title) { mark.dataset.tip = title.textContent; title.remove(); }
    return mark.dataset.tip;
  }
  const hide = () => { shown?.classList.remove("on"); shown = null; tip.hidden = true; };
  function show(mark) {
    hide();
    shown = mark;
    tip.textContent = textOf(mark);
    mark.classList.add("on");
    tip.hidden = false;
    const at = mark.getBoundingClientRect(), width = tip.offsetWidth;
    const left = Math.min(Math.max(at.left + at.width / 2 - width / 2, 4), document.documentElement.clientWidth - width - 4);
    const above = at.top - tip.offsetHeight - 8;
    tip.style.left = `${left + scrollX}px`;
    tip.style.top = `${(above < 4 ? at.bottom + 8 : above) + scrollY}px`;
  }
  for (const kind of ["pointerover", "click"]) document.addEventListener(kind, (event) => {
    const mark = event.target.closest?.(".mark");
    if (mark) show(mark); else if (shown && document.activeElement !== shown.ownerSVGElement) hide();
  });

  // Lets keys read the marks of a chart; `say` tells what they say to those who listen.
  function attach(svg, say) {
    const marks = () => [...svg.querySelectorAll(".mark")];
    marks().forEach(textOf);
    svg.tabIndex = 0;
    svg.setAttribute("aria-description", "Arrow keys read its points.");
    svg.addEventListener("keydown", (event) => {
      const all = marks(), at = all.indexOf(shown), last = all.length - 1;
      const to = { ArrowRight: Math.min(at + 1, last), ArrowLeft: Math.max(at - 1, 0), Home: 0, End: last }[event.key];
      if (event.key === "Escape") hide();
      if (to === undefined || last < 0) return;
      event.preventDefault();
      show(all[to]);
      say(textOf(all[to]));
    });
    svg.addEventListener("blur", hide);
  }
  return { attach };
})();
