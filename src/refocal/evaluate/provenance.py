"""How an evaluation was computed: the surface of a search, the rows of the fit, the run itself."""

from __future__ import annotations

import math
import platform
import re
import time
from collections.abc import Mapping
from enum import StrEnum

import numpy as np

import refocal
from refocal._arrays import row_blocks, to_numpy
from refocal.calibrators import Calibrator
from refocal.calibrators.fitted import HasFocalPoint
from refocal.engine import BlockedDataset
from refocal.errors import FitWarning, warn
from refocal.evaluate.evaluation import SearchSurface
from refocal.fitting.objective import as_objective
from refocal.rows import Predictions
from refocal.rows.predictions import CheckedRows
from refocal.rows.splitting import AT_RANDOM, shared_clusters


class RunNote(StrEnum):
    """What `Evaluation.run` may say of an evaluation, besides versions and settings."""

    READ = "rows read"
    REPEATED_ID = "repeated id"
    UNIT = "unit of intervals"
    """What intervals take to be independent, where that is not rows but clusters."""
    N_CLUSTERS = "clusters"
    WORTH = "test rows by their weights"
    """The number of rows of equal weights that the weighted rows are worth."""
    SAME_ROWS = "validation and test rows"
    DIVIDED = "validation and test rows of one file"
    SHARED_CLUSTERS = "clusters of both parts"
    COLUMN_OF_TIMES = "column of times"
    ROWS_OF_LABELS = "rows of several labels"
    """Of an evaluation of several labels per row, whose `n_test` counts the labels that are known."""
    LABELS_OF_ROWS = "labels of a row"
    ABSENT_CLASSES = "classes without a row of the fit"
    ZEROS = "probabilities of 0 at labels"
    """Rows whose log-loss without calibration would be infinite, and what they add to it instead."""


def as_text(notes: Mapping[str, str]) -> dict[str, str]:
    """Notes for a file, by plain text."""
    return {str(note): text for note, text in notes.items()}


def surface_of(chosen: str, calibrators: Mapping[str, Calibrator], n_classes: int) -> SearchSurface | None:
    """The surface that the chosen method's search evaluated, or else, for more than two classes, another method's."""
    others = ("fts", *calibrators) if n_classes > 2 else ()  # for two classes γ and T say little: they lack an offset
    for name in (chosen, *others):
        calibrator = calibrators.get(name)
        if not isinstance(calibrator, HasFocalPoint) or (path := calibrator.path_) is None:  # as of one from a file
            continue
        if path.value.ndim == 2 and min(path.value.shape) > 1:
            break
    else:
        return None
    parameters = calibrator.get_params(deep=False)
    goal = as_objective(parameters.get("objective", "auto"), int(calibrator.fit_report_["n_samples"]), "evaluate")
    given = parameters.get("nll_tolerance")
    # Six digits are more than a drawing shows, and keep the file small.
    log_loss, value = (
        [[float(f"{entry:.6g}") for entry in row] for row in table] for table in (path.log_loss, path.value)
    )
    return SearchSurface(
        method=name,
        objective=goal.name,
        gammas=path.gamma[:, 0].tolist(),
        temperatures=path.temperature[0].tolist(),
        log_loss=log_loss,
        value=value,
        tolerance=goal.nll_tolerance if given is None else given,
        gamma=calibrator.gamma_,
        temperature=calibrator.temperature_,
    )


def same_rows(validation: CheckedRows, test: CheckedRows) -> dict[str, str]:
    """A note if methods are measured on the rows that they were fitted on; otherwise empty."""
    if not are_same_rows(validation, test):
        return {}
    warn(f"compare: {SAME_ROWS_REMARK}", FitWarning)
    return {RunNote.SAME_ROWS: "the same"}


def are_same_rows(a: CheckedRows, b: CheckedRows) -> bool:
    """Whether scores and labels are the same, row by row."""
    if a.values.shape != b.values.shape or not np.array_equal(a.labels, b.labels):
        return False
    blocks = row_blocks(a.values.shape[0], math.prod(a.values.shape[1:]), entries=1 << 20)
    return all(np.array_equal(to_numpy(a.values[rows]), to_numpy(b.values[rows])) for rows in blocks)


FLATTERED = (
    "The methods are measured on what they were fitted on, which flatters all of them, and the most flexible ones most."
)
SAME_ROWS_REMARK = f"the validation and the test rows are the same. {FLATTERED}"


def division_notes(validation: CheckedRows, test: CheckedRows) -> dict[str, str]:
    """How validation and test rows were divided, and what they may have in common."""
    notes: dict[str, str] = {}
    shared = shared_clusters(validation, test)
    if shared:
        warn(f"compare: {shared}", FitWarning)
        notes[RunNote.SHARED_CLUSTERS] = shared
    divided = test.source.divided
    if not divided or validation.source != test.source:
        return notes
    notes[RunNote.DIVIDED] = f"divided {divided}"
    called_as_times = re.compile(r"(?i:(.*[_ .-])?(date|datetime|day|time|timestamp|week|month|year))")
    times = [name for name in test.source.unused if called_as_times.fullmatch(name)]
    if divided == AT_RANDOM and times:
        notes[RunNote.COLUMN_OF_TIMES] = times[0]
    return notes


AT_RANDOM_REMARKS = {
    RunNote.REPEATED_ID: (
        "Rows were divided at random, so that rows of one {0} are among those of fit and test: methods may look better "
        "than they are on a new {0}."
    ),
    RunNote.COLUMN_OF_TIMES: (
        "Rows were divided at random, although they have {0!r}: if the model is used on later rows than those of the "
        "fit, measure it on later ones (compare --time {0}, or split with time=)."
    ),
}
"""What a division at random may hide, by the note that says what the rows have."""


def unit_notes(cluster_name: str, n_clusters: int | None) -> dict[str, str]:
    """What intervals and tests rest on, where that is not rows."""
    return {} if n_clusters is None else {RunNote.UNIT: cluster_name, RunNote.N_CLUSTERS: str(n_clusters)}


def repeated_id_note(rows: Predictions | BlockedDataset, function: str) -> dict[str, str]:
    """A note, and a warning, if rows were read from a table with ids that repeat, and no clusters were named."""
    source = rows.reader.source if isinstance(rows, BlockedDataset) else rows.source
    if not source.repeated_id:
        return {}
    # The command line says it among the remarks, and takes an InputWarning for an error.
    warn(f"{function}: {REPEATED_ID_REMARK.format(source.repeated_id)}", FitWarning)
    return {RunNote.REPEATED_ID: source.repeated_id}


REPEATED_ID_REMARK = (
    "{0!r} has the same value in several rows. If rows of one {0} are not independent, intervals are too narrow and "
    "tests too sure: name it as clusters."
)


def run_of(notes: Mapping[str, str], calibrators: Mapping[str, Calibrator]) -> dict[str, str]:
    """The versions and settings of the run, and how many classes had no row in the fits, if any."""
    n_absent = max((int(each.fit_report_.get("n_absent_classes", 0)) for each in calibrators.values()), default=0)
    return {
        "refocal": refocal.__version__,
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        "finished": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        **as_text(notes),
        **({str(RunNote.ABSENT_CLASSES): str(n_absent)} if n_absent else {}),
    }
