"""What the site needs beyond docs/: the paper's pages, other files of the repository, the examples, the live report.

A link in docs/ is written as it stands in the repository (`../benchmarks/results/real_logits.md`), so that it works
where the files are read as they are. Here the linked files join the site and the links are turned to where they lie
in it.
"""

from __future__ import annotations

import posixpath
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
import example_pages

ROOT = Path(__file__).parents[1]
ELSEWHERE = (
    "*.md",
    "LICENSE",
    "CITATION.cff",
    "benchmarks/**/*",
    "examples/*",
    "paper/docs/**/*",
    "paper/results/**/*",
)
RESULTS = ("benchmarks/", "paper/results/")
EXPLANATIONS = ("concepts/", "glossary.md", "guide/", "methods.md", "start.md")
READABLE = {".md", ".json", ".txt", ".tex", ".py", ".cff", ".svg", ""}
LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
CELL = re.compile(r"<t[hd][ >].*?</t[hd]>", re.DOTALL)
CODE = re.compile(r"(<code>(?:<a [^>]*>)?)([^<]+)(<)")
# Between the words of AutoCalibration, after _ ( = and /, and before the ( and the . of a call.
WORD_ENDS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[_(=/])(?=[A-Za-z'])|(?<=[a-z])(?=\()|(?<=\))(?=\.)")
LATER = "Guide"
BACK = '<a href="live/explorer.html">refocal</a>'
SAMPLE, REPORT = "cifar100-focal7", "demo-report.html"


def on_config(config: Any) -> Any:
    """Give every page of docs/ a place: those that the navigation does not name go to the end of its section LATER."""
    named = set(re.findall(r"[\w/-]+\.md", str(config.nav)))
    others = sorted(page.name for page in (ROOT / "docs").glob("*.md") if page.name not in named)
    next(part[LATER] for part in config.nav if isinstance(part, dict) and LATER in part).extend(others)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    address = project.get("urls", {}).get("Repository")
    # In the foot of each page. The theme's own link to a repository would ask its server for the number of stars.
    link = f' · <a href="{address}">repository</a>' if address else ""
    config.copyright = f"refocal {project['version']} · MIT licence{link}"
    return config


def on_post_build(config: Any) -> None:
    """Link the explorer, which is a page of its own, back to the site."""
    page = Path(config.site_dir) / "explore.html"
    text = page.read_text(encoding="utf-8")
    start = '<nav class="pages" aria-label="Pages">'
    if start not in text:
        raise ValueError(f"{page} has no place for the link back")
    page.write_text(text.replace(start, start + BACK, 1), encoding="utf-8")


def on_files(files: Files, config: Any) -> Files:
    """Add the files that pages link to, and the report of the embedded network, drawn now."""
    for pattern in ELSEWHERE:
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file() and path.suffix in READABLE and path.name != "README.md":
                files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    for script in sorted((ROOT / "examples").glob("*.py")):
        made = {".md": example_pages.page(script), ".ipynb": example_pages.notebook(script)}
        for ending, content in made.items():
            files.append(File.generated(config, f"examples/{script.stem}{ending}", content=content))
    files.append(File.generated(config, REPORT, content=_report()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn links to where pages lie in the site, and put explanations before results in what a search finds."""
    here = page.file.src_uri
    if here.startswith(RESULTS):
        page.meta["search"] = {"boost": 0.01}  # below the pages that explain what was measured
    elif here.startswith(EXPLANATIONS):
        page.meta["search"] = {"boost": 3}
    home = f"docs/{here}" if (ROOT / "docs" / here).exists() else here

    def turned(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(home), match[2]))
        return match[1] + posixpath.relpath(_in_site(target), posixpath.dirname(here) or ".") + match[3]

    return LINK.sub(turned, markdown)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Let names in tables break between their words, on screens that have no room for them."""

    def with_breaks(cell: re.Match[str]) -> str:
        return CODE.sub(lambda code: code[1] + WORD_ENDS.sub("<wbr>", code[2]) + code[3], cell[0])

    return CELL.sub(with_breaks, output)


def _in_site(path: str) -> str:
    if path == "README.md":
        return "index.md"
    if path.startswith("examples/"):
        return re.sub(r"\.py$", ".md", path)
    return path.removeprefix("docs/")


def _report() -> str:
    from refocal._methods import DEMO
    from refocal.evaluate import compare
    from refocal.io import SAMPLES, load_sample
    from refocal.report import render

    validation, test = load_sample(SAMPLE)
    return render(compare(validation, test, DEMO, title=SAMPLES[SAMPLE], n_resamples=200))
