"""The stress suite of tests/stress on refocal and its peers: writes benchmarks/results/stress.md.

    OMP_NUM_THREADS=1 python benchmarks/stress.py        what `make stress` runs; exits 1 unless refocal passes all

Each package runs in a process of its own, which is ended and started again if a case takes longer than the limit; a
crash or a hang is a result like any other.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "stress"))
PAGE = ROOT / "benchmarks" / "results" / "stress.md"
LIMIT_SECONDS = 60
# Making a huge input and judging the answer are not the package's work.
PATIENCE = 900
RIGHT, WRONG = ("pass", "refused"), ("fail", "error", "hang", "crash")
MARKS = {**dict.fromkeys(RIGHT, "yes"), **dict.fromkeys(WRONG, "**no**"), "none": "–"}
TASKS = {
    "fit": "Temperature scaling",
    "isotonic": "Isotonic calibration",
    "ece": "Equal-width ECE, 15 bins",
    "gradient": "Focal loss",
    "refuse fit": "Input without an answer: temperature scaling",
    "refuse ece": "Input without an answer: ECE",
}
INTRODUCTION = """# Stress: what each package returns

Written by `make stress` (`benchmarks/stress.py`; the cases are `tests/stress/stress_cases.py`). The same input goes to
refocal and to the peers that are installed, through the call that each documents; the answer is judged by a reference
that belongs to none of them: the least log-loss over all temperatures by a bounded search in float64, the ECE by its
definition, bin after bin. A fit is right if its log-loss is within 0.1 % of the best one, an ECE within 1e-5. Where
there is no answer an error is right. **no** is a wrong answer, or an error where there is an answer; – is nothing on
offer. A case that takes longer than {limit} s is wrong, which alone of all this depends on the machine and its load.
`make test` runs all but the huge cases on refocal.

The cases were chosen by refocal's authors, from what is known to break; they are no ranking of the packages. Each is
good at what it is made for: netcal and probcal take probabilities, so logits on a large scale have lost their tail
before they see them; relplot measures and does not fit.

{cases} cases. The packages: {packages}.
"""


def work(package: str) -> None:
    """Answer the cases named on standard input, one line of JSON each."""
    from stress_cases import CASES

    out, sys.stdout = sys.stdout, sys.stderr  # what packages print is not an answer
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        case = CASES[int(line)]
        inputs = case.make()
        print("ready", file=out, flush=True)
        status, words = run(package, case, inputs, lambda: print("answered", file=out, flush=True))
        print(json.dumps({"status": status, "words": words}), file=out, flush=True)


def run(package, case, inputs, answered=lambda: None) -> tuple[str, str]:
    from stress_packages import NotOffered, answer
    from stress_tasks import judge

    refusal = case.task.startswith("refuse")
    try:
        found = answer(package, case, inputs)
    except NotOffered as error:
        return "none", str(error)
    except Exception as error:  # whatever a package raises is its answer
        first = next(iter(str(error).splitlines()), "")
        return "refused" if refusal else "error", f"{type(error).__name__}: {first[:100]}"
    finally:
        answered()
    verdict = judge(case, inputs, found)
    return ("pass" if verdict.passed else "fail"), verdict.words


class Worker:
    """A process that answers cases for one package."""

    def __init__(self, package: str) -> None:
        command = [sys.executable, __file__, "--worker", package]
        self.process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.put(line)
        for _ in range(3):
            self.lines.put("")

    def ask(self, index: int) -> dict[str, object]:
        """Status and words of one case."""
        with contextlib.suppress(BrokenPipeError):
            print(index, file=self.process.stdin, flush=True)
        try:
            lines = [self.lines.get(timeout=seconds) for seconds in (PATIENCE, LIMIT_SECONDS, PATIENCE)]
        except queue.Empty:
            return {"status": "hang", "words": f"no answer within {LIMIT_SECONDS} s"}
        if "" in lines:
            return {"status": "crash", "words": f"the process ended with code {self.process.wait()}"}
        return json.loads(lines[-1])

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def ask_all(package: str, n_cases: int) -> list[dict[str, object]]:
    worker, found = Worker(package), []
    for index in range(n_cases):
        found.append(worker.ask(index))
        if found[-1]["status"] in ("hang", "crash"):
            worker.end()
            worker = Worker(package)
    worker.end()
    return found


def page(cases, results: dict[str, list[dict[str, object]]]) -> str:
    names = list(results)
    packages = ", ".join(f"{name} {release(name)}" for name in names)
    head = "|---|" + "---|" * len(names)
    lines = [INTRODUCTION.format(cases=len(cases), packages=packages, limit=LIMIT_SECONDS)]
    lines += ["| | " + " | ".join(names) + " |", head]
    for label, group in (("right", RIGHT), ("wrong", WRONG)):
        counts = [sum(row["status"] in group for row in results[name]) for name in names]
        lines.append(f"| {label} | " + " | ".join(map(str, counts)) + " |")
    for task, title in TASKS.items():
        lines += ["", f"## {title}", "", "| case | " + " | ".join(names) + " |", head]
        some = [index for index, case in enumerate(cases) if case.task == task]
        lines += [
            f"| {cases[i].name} | " + " | ".join(MARKS[str(results[n][i]["status"])] for n in names) + " |"
            for i in some
        ]
        lines += ["", "Expected, and received:", ""]
        for i in some:
            lines.append(f"- **{cases[i].name}.** {cases[i].right}")
            lines += [f"  {said}" for said in answers(i, results)]
    return "\n".join(lines) + "\n"


def answers(index: int, results) -> list[str]:
    """Packages that said the same share a line."""
    by_words: dict[tuple[bool, str], list[str]] = {}
    for name, rows in results.items():
        row = rows[index]
        if row["status"] != "none":
            right = row["status"] in RIGHT
            by_words.setdefault((right, str(row["words"])), []).append(name)
    return [
        f"- {', '.join(names)}: {'' if right else '**wrong**, '}`{words.replace('`', chr(39))}`"
        for (right, words), names in by_words.items()
    ]


def release(name: str) -> str:
    with contextlib.suppress(PackageNotFoundError):
        return version(name)
    return "?"


def main() -> None:
    from stress_cases import CASES
    from stress_packages import PACKAGES

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda package: ask_all(package, len(CASES)), PACKAGES)
        results = dict(zip(PACKAGES, found, strict=True))
    for package, rows in results.items():
        print(f"{package}: {sum(row['status'] in WRONG for row in rows)} wrong of {len(rows)}")
    PAGE.write_text(page(CASES, results), encoding="utf-8")
    bad = [c.name for c, r in zip(CASES, results["refocal"], strict=True) if r["status"] not in RIGHT]
    sys.exit(f"refocal fails: {', '.join(bad)}" if bad else None)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        work(sys.argv[2])
    else:
        main()
