"""The rows of a file or a data set: read whole, or gone through in blocks, here or by a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import refocal
from refocal.cli.options import BlockOptions
from refocal.cli.run import FileProblem, UsageError, explained
from refocal.errors import InputError, InputWarning, ParameterError

Update = Callable[[float, int, str], None]

# What files that are read whole alone can do.
ONLY_WHOLE = ("positive_label", "renormalise", "multi_label")
# Options about what was read; the others say what is.
OF_CHECKS = ("first_label", "positive_label", "ignore_index", "renormalise")


@contextmanager
def about(file: Path | str) -> Iterator[None]:
    """Name the file in errors about what is in it; those about settings stay as they are."""
    try:
        yield
    except ParameterError:
        raise
    except (InputError, InputWarning) as error:
        raise FileProblem(f"{file}: {explained(error)}") from error


def read_file(
    file: Path | str, *, multi_label: bool = False, **reading: Any
) -> refocal.io.Predictions | refocal.io.MultiLabelPredictions:
    """Predictions of a file, as the options say: of several labels with --multi-label."""
    with about(file):
        if not multi_label:
            return refocal.io.read(file, **reading)
        for name in reading.keys() - {"input", "values", "labels", "weight", "ignore_index"}:
            raise UsageError(f"--{name.replace('_', '-')} cannot be combined with --multi-label.")
        return refocal.io.read_multilabel(file, **reading | {"input": reading["input"].replace("logits", "log-odds")})


def read_unchecked(file: Path, reading: Mapping[str, Any], *, keeping: bool = False) -> refocal.io.readers.Values:
    """The contents of a file, with or without labels and rows; with `keeping` also the other columns of a table."""
    where = {name: value for name, value in reading.items() if name not in OF_CHECKS}
    return refocal.io.readers.read_source(file, refocal.io.columns.Query(**where, keeping=keeping))


def checked(found: refocal.io.readers.Values, reading: Mapping[str, Any]) -> refocal.io.Predictions:
    """Predictions of what a file holds; without labels all are 0."""
    return found.checked(**{name: reading[name] for name in OF_CHECKS if name in reading})


def probabilities_of(rows: refocal.io.Predictions, calibrator: refocal.calibrators.Calibrator | None = None) -> Any:
    """Probabilities of a calibrator, or as the predictions have them, in rows that sum to 1."""
    import numpy as np

    from refocal.evaluate._in_memory import log_proba

    p = np.exp(log_proba(rows, calibrator).astype(np.float64))
    return p / p.sum(axis=1, keepdims=True)


def is_text_file(place: Path | str) -> bool:
    """Whether a path is that of one file of text, which can be read whole as well."""
    return Path(place).is_file() and Path(place).suffix.lower() in refocal.io.files.TEXT


@contextmanager
def read_or_open(
    place: str, words: str, update: Update, blocks: BlockOptions, reading: dict[str, Any], in_memory: str
) -> Iterator[tuple[Any, bool]]:
    """The rows of a place, and whether they are in blocks, which tell the bar how far a pass is.

    They are where that is asked for, in a data set and in a large file. Rows of several labels are read whole, and so
    is large text where the option `in_memory`, or one about reading, needs all rows in memory.
    """
    whole = [f"--{name.replace('_', '-')}" for name in ONLY_WHOLE if name in reading]
    asked = "--scheduler" if blocks.scheduler is not None else "--skip-bad-rows" if blocks.skip_bad_rows else ""
    is_whole = "multi_label" in reading or (is_text_file(place) and (whole or in_memory))
    with about(place):
        if not asked and (is_whole or not refocal.io.files.is_large(place)):
            yield read_file(place, **reading), False
            return
        if whole or (asked and in_memory):
            option, why = next(iter(whole), in_memory), f" because of {asked}" if asked else ""
            raise UsageError(f"{option} is for a file that is read whole; {place} is read in blocks{why}.")
        with cluster(blocks) as client:
            rows = refocal.io.open_rows(place, client=client, **reading, **vars(blocks))
            rows.watch = Watch(update, words)
            yield rows, True


def cluster(blocks: BlockOptions) -> AbstractContextManager[Any]:
    """The cluster that does the work; None for this process."""
    return nullcontext() if blocks.scheduler is None else closing(refocal.io.connect(blocks.scheduler))


class Watch:
    """A bar for each pass, with rows a second and the time that is left of it."""

    def __init__(self, update: Update, words: str) -> None:
        self.update, self.words = update, words
        self.passes, self.done, self.start = 0, 0, 0.0

    def __call__(self, done: int, total: int | None) -> None:
        """Show a pass that is done with `done` of `total` rows."""
        now = time.monotonic()
        if self.passes == 0 or done < self.done:
            self.passes, self.start, self.first = self.passes + 1, now, done
        self.done = done
        rate = (done - self.first) / (now - self.start) if now > self.start else 0.0
        speed = f", {rate / 1e6:.2f} million rows/s" if rate > 0 else ""
        left = f", {(total - done) / rate:.0f} s left of it" if rate > 0 and total is not None else ""
        self.update(done, total or 0, f"{self.words}: pass {self.passes}{speed}{left}")
