"""The page about mutants, benchmarks/results/mutants.md, from what mutmut left in mutants/.

`make mutants` calls `python tools/mutants.py PATTERN COMMIT`: the names of the mutants that it had mutmut try, and
where.

Mutants that survived are killed by a better test or explained in tools/mutants.toml, from where the page takes its
reasons; one without a reason is an error.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from mutmut.stats import status_by_exit_code

ROOT = Path(__file__).resolve().parents[1]
MUTANTS = ROOT / "mutants" / "src" / "refocal"
EXPLAINED = ROOT / "tools" / "mutants.toml"
PAGE = ROOT / "benchmarks" / "results" / "mutants.md"

HEAD = """# Mutants: do the tests notice?

A mutant is refocal with one small fault: a `<` for a `<=`, a `+` for a `-`, another constant, an argument left out.
Tests that prove something fail on it. [mutmut](https://mutmut.readthedocs.io) makes such faults in maps, losses,
metrics, engine and fitting and runs the quick tests marked `numerics` that call the function. Written by
`make mutants MUTANTS='{pattern}'` at {commit}, which tries the mutants of such names: a number says which mutant of
each function, so that functions with many mutants alone have a high one. Without `MUTANTS` it is the seventh.

**{tried} of {possible} mutants: {killed} killed, {survived} survived, {explained} of those explained below; {untested}
are in functions that no quick test calls.** Modules of which none was tried are not listed.

Left out: `engine/triton_*.py`, the passes of the GPU, which a CPU only interprets
(`tests/engine/test_triton_engine.py` compares them with the CPU's), `engine/kernel.c`, which
`tests/engine/test_c_engine.py` compares with the maps, and constants of modules. A mutant that hangs counts as killed.
Tests marked `slow` are not asked: a survivor may still fall to the whole suite.
"""


@dataclass
class Module:
    """The mutants of one module by what became of them."""

    name: str
    possible: int
    killed: int = 0
    survivors: list[str] = field(default_factory=list)
    untested: list[str] = field(default_factory=list)

    @property
    def tried(self) -> int:
        """How many mutants were tried."""
        return self.killed + len(self.survivors) + len(self.untested)


def read_module(path: Path) -> Module:
    """What mutmut notes beside each module that it changed."""
    exit_codes = json.loads(path.read_text())["exit_code_by_key"]
    module = Module(str(path.relative_to(MUTANTS)).removesuffix(".meta"), len(exit_codes))
    for mutant, exit_code in exit_codes.items():
        status = status_by_exit_code[exit_code]
        if status == "survived":
            module.survivors.append(mutant)
        elif status == "no tests":
            module.untested.append(mutant)
        elif status != "not checked":
            module.killed += 1
    return module


def change_of(mutant: str) -> tuple[str, str]:
    """The lines that a mutant changes, before and after."""
    command = [sys.executable, "-m", "mutmut", "show", mutant]
    diff = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()  # noqa: S603
    removed = [line[1:].strip() for line in diff if line.startswith("-") and not line.startswith("---")]
    added = [line[1:].strip() for line in diff if line.startswith("+") and not line.startswith("+++")]
    return " ".join(removed), " ".join(added)


def page(modules: list[Module], pattern: str, commit: str) -> tuple[str, int]:
    """The page about the mutants of which names were tried, and how many survivors have no reason."""
    reasons = {(each["before"], each["after"]): each["why"] for each in tomllib.loads(EXPLAINED.read_text())["mutant"]}
    table = ["| module | mutants | tried | killed | survived | no quick test |", "|---|---:|---:|---:|---:|---:|"]
    survivors = ["| module | before | after | why |", "|---|---|---|---|"]
    n_unexplained = 0
    for module in modules:
        if not module.tried:
            continue
        counts = [module.possible, module.tried, module.killed, len(module.survivors), len(module.untested)]
        table.append(" | ".join([f"| `{module.name}`", *map(str, counts)]) + " |")
        for mutant in module.survivors:
            before, after = change_of(mutant)
            why = reasons.get((before, after))
            n_unexplained += why is None
            cells = [f"`{text}`".replace("|", "\\|") for text in (module.name, before, after)]
            survivors.append(f"| {' | '.join(cells)} | {why or '**not explained**'} |")
    n_survivors = sum(len(module.survivors) for module in modules)
    head = HEAD.format(
        pattern=pattern,
        commit=commit,
        tried=sum(module.tried for module in modules),
        possible=sum(module.possible for module in modules),
        killed=sum(module.killed for module in modules),
        survived=n_survivors,
        explained=n_survivors - n_unexplained,
        untested=sum(len(module.untested) for module in modules),
    )
    return "\n".join([head, *table, "\n## What survived, and why\n", *survivors, ""]), n_unexplained


def main() -> None:
    """Write the page about all mutants that were tried."""
    modules = [read_module(path) for path in sorted(MUTANTS.rglob("*.meta"))]
    pattern, commit = sys.argv[1:]
    text, n_unexplained = page(modules, pattern, commit)
    PAGE.write_text(text)
    sys.exit(f"{n_unexplained} mutants survive without an explanation" if n_unexplained else 0)


if __name__ == "__main__":
    main()
