// Draws the formulas of a page: pymdownx.arithmatex leaves them as \(…\) and \[…\] in elements of this class.
for (const formula of document.querySelectorAll(".arithmatex")) {
  const tex = formula.textContent.trim();
  katex.render(tex.slice(2, -2), formula, { displayMode: tex.startsWith("\\["), throwOnError: false });
}
