"""How to use the calibrator: code, and the files to take along."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import shlex
from typing import NamedTuple

from refocal.calibrators import MultiLabelCalibration
from refocal.calibrators.registry import NAMED
from refocal.evaluate import Evaluation, Measured
from refocal.evaluate.multilabel import PER_LABEL
from refocal.evaluate.summary import ranked
from refocal.report.section import Section, fill
from refocal.report.sentences import about_map, facts_of

FROM_FILE = """import refocal

calibrator = refocal.load("calibrator.json")
calibrated = calibrator.predict_proba({input})  # NumPy, torch or JAX, on its own device"""
IN_TORCH = """import torch
from refocal.maps import focal_temperature

with torch.no_grad():
    logits = model(inputs)
    probabilities = {call}.exp()"""
FROM_NUMBERS = """import numpy as np
from refocal.maps import focal_temperature

probabilities = np.exp({call})"""
IN_SHELL = """refocal fit val.npz{option} -o calibrator.json
refocal apply calibrator.json {input}.npz -o calibrated.npz"""
LONGEST_SNIPPET = 20_000
# Bytes of a calibrator that a page carries along.
LARGEST_DOWNLOAD = 500_000


class Snippet(NamedTuple):
    """A piece of code under a tab."""

    key: str
    label: str
    code: str


def use(evaluation: Evaluation) -> Section:
    """How to use it, and what to download."""
    facts, files = [about_map(facts_of(evaluation))], downloads(evaluation)
    if evaluation.after.calibrator is not None and len(files) == 1:
        facts.append("It is too large for this page; refocal fit writes it.")
    html = fill("use.html", snippets=snippets(evaluation.after), downloads=files)
    return Section("use", "Use it", tuple(facts), html)


def downloads(evaluation: Evaluation) -> dict[str, str]:
    """Files inside the page by their names: the calibrator where it is small enough, packed where it is not small, and
    the metrics of every method as CSV.
    """
    files = {}
    calibrator = (_calibrator_json(evaluation.after) or "").encode()
    if 0 < len(calibrator) < LONGEST_SNIPPET:
        files["calibrator.json"] = ("application/json", calibrator)
    elif LONGEST_SNIPPET <= len(calibrator) <= LARGEST_DOWNLOAD:
        files["calibrator.json.gz"] = ("application/gzip", gzip.compress(calibrator, mtime=0))
    metrics = io.StringIO()
    table = csv.writer(metrics, lineterminator="\n")
    table.writerow(["method", "measure", "value", "low", "high"])
    for method in ranked(evaluation):
        measured = method.measures.items()
        table.writerows([method.name, name, found.value, found.low, found.high] for name, found in measured)
        table.writerows([method.name, name, value, "", ""] for name, value in method.values.items())
    files["metrics.csv"] = ("text/csv", metrics.getvalue().encode())
    return {name: f"data:{kind};base64,{base64.b64encode(content).decode()}" for name, (kind, content) in files.items()}


def _calibrator_json(method: Measured) -> str | None:
    """The file that `refocal.load` reads."""
    if method.calibrator is None or "chain" not in method.calibrator:
        return None
    data = {name: value for name, value in method.calibrator.items() if name != "fitted"}
    text = json.dumps(data, indent=2)
    return text if len(text) < LONGEST_SNIPPET else json.dumps(data)


def snippets(method: Measured) -> list[Snippet]:
    """How to use the calibrator: from its file, from its numbers alone, in torch and on the command line."""
    if method.calibrator is None:
        return []
    found, kind = method.point, method.calibrator["parameters"]["input"]
    name = kind.replace("-", "_")
    groups = ", groups=groups" if method.calibrator["method"] == "GroupCalibration" else ""
    made = [Snippet("file", "Python", FROM_FILE.format(input=name + groups))]
    if found and kind == "logits":
        gamma, temperature = found.get("gamma", 0.0), found.get("temperature", 1.0)
        call = f"focal_temperature(logits, gamma={gamma!r}, temperature={temperature!r})"
        made.append(Snippet("torch", "torch", IN_TORCH.format(call=call)))
        made.append(Snippet("numbers", "the numbers alone", FROM_NUMBERS.format(call=call)))
    option = f" --method {method.name}" if method.name in NAMED else ""
    if method.calibrator["method"] == MultiLabelCalibration.__name__:
        own = PER_LABEL if method.calibrator["parameters"]["per_label"] else ""
        option = f" --method {method.calibrator['parameters']['method']}{own} --multi-label"
    option += "".join(f" --groups {shlex.quote(column)}" for column in method.calibrator.get("groups", ()))
    shell = IN_SHELL.format(
        option=option + (" --probabilities" if kind == "probabilities" else ""), input=kind.replace("-", "_")
    )
    made.append(Snippet("shell", "command line", shell))
    content = _calibrator_json(method)
    if content is not None and len(content) < LONGEST_SNIPPET:  # thousands of numbers are of no use on a page
        made.append(Snippet("json", "calibrator.json", content))
    return made
