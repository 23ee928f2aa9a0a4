"""Rows that are gone through in blocks, here or by a cluster: how commands open them and show how far they are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refocal.cli.options import BlockOptions, check_output
from refocal.cli.printing import result, say
from refocal.cli.run import FileProblem, Stopped, UsageError, explained
from refocal.errors import FormatError, InputWarning, RefocalError, Remedy

if TYPE_CHECKING:
    from refocal.calibrators import Calibrator
    from refocal.engine import BlockedDataset

Update = Callable[[float, int, str], None]

# What files that are read whole alone can do.
ONLY_WHOLE = ("positive_label", "renormalise", "multi_label")


def is_large(
    place: str, blocks: BlockOptions | None = None, reading: Mapping[str, Any] = {}, *, suits: bool = True
) -> bool:
    """Whether rows are gone through in blocks rather than read: asked for, a data set, or a large file.

    Large text is read whole where blocks do not suit what is to be done, or how it is to be read.
    """
    from refocal.io.files import is_large as by_itself

    if blocks is not None and (blocks.scheduler is not None or blocks.skip_bad_rows):
        return True
    return by_itself(place) and not (is_text(place) and (not suits or any(name in reading for name in ONLY_WHOLE)))


def is_text(place: str) -> bool:
    """Whether a path is that of one file of text, which can be read whole as well."""
    from refocal.io.tables import TEXT

    return Path(place).is_file() and Path(place).suffix.lower() in TEXT


def check_written(place: str, output: Path) -> None:
    """Complain about where `apply` is to write before anything is computed: a file, or a folder of Parquet files."""
    from refocal.io.tables import TABLES

    if output.is_dir() or not (output.suffix or str(output) == "-"):  # nothing is written to standard output
        if output.is_file():
            raise UsageError(f"{output}: is a file; name a folder, or a file with an ending, with -o.")
        return
    if is_large(place) and not is_text(place) and output.suffix.lower() not in TABLES:
        raise UsageError(f"{output}: the probabilities of a data set are a folder of Parquet files or one table "
                         f"({', '.join(TABLES)}); name a folder or such a file with -o.")  # fmt: skip
    check_output(output, (".npz", ".npy", *TABLES))


@contextmanager
def open_rows(
    place: str, words: str, update: Update, blocks: BlockOptions, reading: Mapping[str, Any]
) -> Iterator[BlockedDataset]:
    """Rows in blocks, which tell the bar how far a pass is."""
    from refocal.io import open_rows as open_blocks

    for name in ONLY_WHOLE:
        if name in reading:
            raise UsageError(f"--{name.replace('_', '-')} is for a file that is read whole; {place} is read in blocks.")
    with _client(blocks) as client:
        rows = open_blocks(place, client=client, **reading, **vars(blocks))
        rows.watch = Watch(update, words)
        yield rows


def _client(blocks: BlockOptions) -> AbstractContextManager[Any]:
    """The cluster that does the work; None for this process."""
    from refocal.io import connect

    return nullcontext() if blocks.scheduler is None else closing(connect(blocks.scheduler))


class Watch:
    """A bar for each pass, with rows a second and the time that is left of it."""

    def __init__(self, update: Update, words: str) -> None:
        self.update, self.words = update, words
        self.passes, self.done, self.start = 0, 0, 0.0

    def __call__(self, done: int, total: int | None) -> None:
        """Show a pass that has `done` of `total` rows behind it."""
        now = time.monotonic()
        if self.passes == 0 or done < self.done:
            self.passes, self.start, self.first = self.passes + 1, now, done
        self.done = done
        rate = (done - self.first) / (now - self.start) if now > self.start else 0.0
        speed = f", {rate / 1e6:.2f} million rows/s" if rate > 0 else ""
        left = f", {(total - done) / rate:.0f} s left of it" if rate > 0 and total is not None else ""
        self.update(done, total or 0, f"{self.words}: pass {self.passes}{speed}{left}")


def apply(
    calibrator: Calibrator,
    place: str,
    output: Path,
    update: Update,
    blocks: BlockOptions,
    reading: Mapping[str, Any],
) -> None:
    """`refocal apply`, block by block."""
    from refocal.calibrators._answers import further_names, what_is_written
    from refocal.io import apply as apply_blocks

    start, files = time.monotonic(), 0

    def tell(done: int, total: int, n_rows: int) -> None:
        nonlocal files
        files = done
        rate = n_rows / max(time.monotonic() - start, 1e-9)
        update(done, total, f"applying: {n_rows:,} rows, {rate / 1e6:.2f} million rows/s")

    try:
        with _client(blocks) as client:
            options = {**reading, **vars(blocks)}
            written = apply_blocks(calibrator, place, output, client=client, progress=tell, **options)
    except InputWarning as error:
        wanted = "look like probabilities, but this calibrator takes logits; fit one with --probabilities"
        raise FileProblem(f"{place}: the rows {wanted}.") from error
    except (KeyboardInterrupt, RefocalError, OSError) as error:
        if isinstance(error, FormatError) and error.remedy in (Remedy.READ_LOGITS, Remedy.READ_PROBABILITIES):
            raise FileProblem(f"{place}: holds no {calibrator.input}, which this calibrator takes.") from error
        if files == 0 or not output.is_dir():
            raise
        so_far = f"{files:,} files are in {output}, and the same command continues with the others."
        if isinstance(error, KeyboardInterrupt):
            raise Stopped(f"stopped; {so_far}") from error
        raise FileProblem(f"{explained(error)} {so_far}") from error
    problems = [each.problem for each in written if each.problem is not None]
    said = {
        "output": str(output),
        "rows": sum(each.n_rows for each in written),
        "classes": calibrator.n_features_in_,
        "rows_skipped": sum(each.n_skipped for each in written),
        "files": len(written) - len(problems),
        "files_skipped": len(problems),
        "files_there_before": sum(each.was_there for each in written),
    }
    there = f", {said['files_there_before']} of them there before" if said["files_there_before"] else ""
    parts = "" if output.is_file() else f" in {said['files']:,} {'file' if said['files'] == 1 else 'files'}{there}"
    unused = (
        f" Rows that cannot be used, with NaN or left out: {said['rows_skipped']:,}." if said["rows_skipped"] else ""
    )
    what = what_is_written([] if output.suffix.lower() == ".npy" else further_names(calibrator))
    result(said)
    say(f"Wrote {output}: {what} of {said['rows']:,} rows and {said['classes']:,} classes{parts}.{unused}")
    if problems:
        say(f"Left out {len(problems):,} files: {' '.join(problems[:3])}{' …' if len(problems) > 3 else ''}")
