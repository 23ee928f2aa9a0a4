"use strict";
// What both pages of the explorer need: their settings, figures that say what they show, and sliders.

const shared = (() => {
  const byId = (id) => document.getElementById(id);
  const settings = JSON.parse(byId("settings").textContent);
  const show = (v, digits = 4) => (v === null ? "–" : v.toFixed(digits).replace("-", "−"));
  const write = (texts) => { for (const [id, text] of Object.entries(texts)) byId(id).textContent = text; };
  const put = (id, plot, words) => { byId(id).querySelector("svg").innerHTML = `<title id="${id}-title">${words}</title>${plot.text()}`; };

  // At most once a frame, however fast a slider moves.
  function onceAFrame(draw) {
    let waiting = false;
    return () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => { waiting = false; draw(); });
    };
  }

  // Moves a slider to a value, or as close as its range allows; returns where it is then.
  function move(id, value) {
    const slider = byId(id), kept = Math.min(Number(slider.max), Math.max(Number(slider.min), value));
    slider.value = kept;
    slider.setAttribute("aria-valuetext", show(kept, 2));
    return kept;
  }

  return { byId, settings, show, write, put, onceAFrame, move };
})();
