"""Draws docs/subpackages.svg, who imports whom, from the contract in pyproject.toml and from the code: `python tools/subpackage_diagram.py`.

Subpackages stand in the order of the contract, the most basic at the bottom; an arc leads from a subpackage down to one that it imports from.
`errors`, `_files`, `_outputs`, `_arrays` and `_validation` have boxes and no arcs: nearly every subpackage imports them.
"""  # noqa: E501

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "subpackages.svg"
BASIC = {"errors", "_files", "_outputs", "_arrays", "_validation"}
WORDS = {
    "cli": "parse, call one function, print",
    "explore": "the page with sliders",
    "report": "figures and HTML, from an Evaluation alone",
    "evaluate": "Predictions + calibrators → Evaluation",
    "export": "ONNX, exported programs",
    "nn": "torch: losses, layer, collect_logits",
    "io": "files, blocks, Dask, stores",
    "decide": "probabilities + costs → actions",
    "decomposition": "how much of a loss is miscalibration",
    "forensics": "the loss a network was trained with",
    "segments": "features + rows → where probabilities are off",
    "detection": "boxes: matching, calibration, errors",
    "calibrators": "logits → probabilities; JSON",
    "fitting": "objectives, Newton, grid, line",
    "engine": "data in blocks; passes in C, Triton, array functions",
    "shift": "new class shares, updates, no labels",
    "monitor": "calibration in production, an alarm",
    "metrics": "scores, errors, histograms, intervals",
    "theory": "what the paper proves",
    "losses": "per-sample losses",
    "maps": "softmax, focal map, inverse",
    "rows": "the gate: scores, labels, names → Predictions",
    "_validation": "every other check of what users pass in",
    "_arrays": "the one door to array libraries",
    "_json": "JSON of files that may be hostile",
    "_limits": "how much memory may be used",
    "_outputs": "what may be written over",
    "_files": "whole or not at all",
    "errors": "every exception",
}
ROW, TOP, LEFT, WIDTH = 44, 16, 14, 410


def contract() -> dict[str, list[str]]:
    """The contract of the layers, as pyproject.toml has it."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return next(found for found in contracts if found["type"] == "layers")


def layers() -> list[list[str]]:
    """The subpackages of the contract, from the top layer to the bottom one."""
    return [[each.strip().removeprefix("refocal.") for each in layer.split("|")] for layer in contract()["layers"]]


def imports() -> set[tuple[str, str]]:
    """The pairs of subpackages (who, whom) that the code has, at the top of a file or inside a function.

    The command line imports refocal alone, as users do, and names a subpackage where it needs it: `refocal.io.read`.
    """
    graph = grimp.build_graph("refocal")
    subpackages = {each for layer in layers() for each in layer}
    pairs = {
        (importer.split(".")[1], imported.split(".")[1])
        for imported in graph.modules
        for importer in graph.find_modules_that_directly_import(imported)
        if importer.count(".") and imported.count(".")
    }
    for file in (ROOT / "src" / "refocal" / "cli").glob("*.py"):
        pairs |= {("cli", whom) for whom in re.findall(r"\brefocal\.(\w+)", file.read_text(encoding="utf-8"))}
    return {(who, whom) for who, whom in pairs if who != whom and {who, whom} <= subpackages}


def drawing() -> str:
    """The picture as SVG."""
    order = [each for layer in layers() for each in layer]
    middle = {each: TOP + ROW * i + 16 for i, each in enumerate(order)}
    arcs = sorted((who, whom) for who, whom in imports() if not {who, whom} & BASIC)
    reach = max((abs(middle[a] - middle[b]) for a, b in arcs), default=0)
    wide, high = LEFT + WIDTH + int(0.42 * reach) + 20, TOP + ROW * len(order)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" '
        'font-family="system-ui, sans-serif" font-size="13">',
        "<title>The subpackages of refocal, and who imports whom</title>",
        f'<rect width="{wide}" height="{high}" fill="#fff"/>',
    ]
    for who, whom in arcs:
        start, end, x = middle[who], middle[whom], LEFT + WIDTH
        bend = x + 0.56 * abs(end - start)
        upward = ' stroke-dasharray="4 3"' if start > end else ""
        color = f"hsl({360 * order.index(who) // len(order)} 55% 45%)"
        parts.append(
            f'<path d="M{x} {start}C{bend:.0f} {start} {bend:.0f} {end} {x + 6} {end}" fill="none" '
            f'stroke="{color}" stroke-width="1.4" opacity="0.75"{upward}><title>{who} → {whom}</title></path>'
            f'<path d="M{x + 7} {end - 3}l-6 3 6 3z" fill="{color}"/>'
        )
    for each in order:
        y = middle[each]
        parts.append(
            f'<rect x="{LEFT}" y="{y - 15}" width="{WIDTH}" height="30" rx="5" fill="#eef4f3" stroke="#00695c"/>'
            f'<text x="{LEFT + 10}" y="{y + 5}" font-weight="600" fill="#00463d">{each}</text>'
            f'<text x="{LEFT + 128}" y="{y + 5}" font-size="10.5" fill="#33413f">{WORDS[each]}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(drawing(), encoding="utf-8")
    print(f"Wrote {PICTURE}.")
