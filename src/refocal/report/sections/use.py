"""How to use the calibrator: code, and the files to take along."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import shlex

from refocal.calibrators import GroupCalibration, MultiLabelCalibration
from refocal.calibrators.registry import NAMED
from refocal.evaluate import Evaluation, Measured
from refocal.evaluate.multilabel import PER_LABEL
from refocal.evaluate.summary import ranked
from refocal.report.section import Section, fill
from refocal.report.sentences import about_map, facts_of

LONGEST_SNIPPET = 20_000
# Bytes of a calibrator that a page carries along.
LARGEST_DOWNLOAD = 500_000


def use(evaluation: Evaluation) -> Section:
    """The code to use the calibrator with, the calibrator where it is small enough, and all metrics as CSV."""
    after, facts, files, text = evaluation.after, [about_map(facts_of(evaluation))], {}, ""
    if after.calibrator is not None and "chain" in after.calibrator:
        data = {name: value for name, value in after.calibrator.items() if name != "fitted"}
        text = json.dumps(data, indent=2)
        text = text if len(text) < LONGEST_SNIPPET else json.dumps(data)
        if len(text) < LONGEST_SNIPPET:
            files["calibrator.json"] = ("application/json", text.encode())
        elif len(text) <= LARGEST_DOWNLOAD:
            files["calibrator.json.gz"] = ("application/gzip", gzip.compress(text.encode(), mtime=0))
    if after.calibrator is not None and not files:
        facts.append("It is too large for this page; refocal fit writes it.")
    metrics = io.StringIO()
    table = csv.writer(metrics, lineterminator="\n")
    table.writerow(["method", "measure", "value", "low", "high"])
    for method in ranked(evaluation):
        measured = method.measures.items()
        table.writerows([method.name, name, found.value, found.low, found.high] for name, found in measured)
        table.writerows([method.name, name, value, "", ""] for name, value in method.values.items())
    files["metrics.csv"] = ("text/csv", metrics.getvalue().encode())
    html = fill(
        "use.html",
        kind=None if after.calibrator is None else after.calibrator["parameters"]["input"],
        point=after.point,
        options="" if after.calibrator is None else _options(after),
        groups=after.calibrator is not None and after.calibrator["method"] == GroupCalibration.__name__,
        json=text if len(text) < LONGEST_SNIPPET else "",  # thousands of numbers are of no use on a page
        downloads={
            name: f"data:{kind};base64,{base64.b64encode(data).decode()}" for name, (kind, data) in files.items()
        },
    )
    return Section("use", "Use it", facts, html)


def _options(method: Measured) -> str:
    """The options by which `refocal fit` makes the calibrator."""
    found = method.calibrator or {}
    options = [f"--method {method.name}"] if method.name in NAMED else []
    if found["method"] == MultiLabelCalibration.__name__:
        own = PER_LABEL if found["parameters"]["per_label"] else ""
        options = [f"--method {found['parameters']['method']}{own} --multi-label"]
    options += [f"--groups {shlex.quote(column)}" for column in found.get("groups", ())]
    options += ["--probabilities"] if found["parameters"]["input"] == "probabilities" else []
    return "".join(f" {option}" for option in options)
