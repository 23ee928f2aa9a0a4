"""Rows that are gone through in blocks, here or by a cluster: how commands open them and show how far they are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refocal.cli.printing import out, print_json
from refocal.cli.run import UsageError

if TYPE_CHECKING:
    from refocal.calibrators import Calibrator
    from refocal.engine import BlockedDataset

Update = Callable[[float, int, str], None]

Scheduler = Annotated[
    str | None,
    typer.Option("--scheduler", metavar="ADDRESS", help="Let the Dask cluster at tcp://host:8786 do the work."),
]
SkipBadRows = Annotated[
    bool, typer.Option("--skip-bad-rows", help="Leave out rows that cannot be used, and count them.")
]


def is_large(place: str, scheduler: str | None, skip_bad_rows: bool) -> bool:
    """Whether rows are gone through in blocks rather than read: asked for, a data set, or a large file."""
    from refocal.scale.opening import is_large as by_itself

    return scheduler is not None or skip_bad_rows or by_itself(place)


@contextmanager
def open_rows(
    place: str, words: str, update: Update, *, scheduler: str | None, **options: Any
) -> Iterator[BlockedDataset]:
    """Rows in blocks, which tell the bar how far a pass is."""
    from refocal import scale

    for name in ("positive_label", "renormalise"):
        if name in options:
            raise UsageError(f"--{name.replace('_', '-')} is for a file that is read whole; {place} is read in blocks.")
    client = None if scheduler is None else scale.connect(scheduler)
    try:
        rows = scale.open_rows(place, client=client, **options)
        rows.watch = Watch(update, words)
        yield rows
    finally:
        if client is not None:
            client.close()


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


def apply_to_data_set(
    calibrator: Calibrator,
    place: str,
    output: Path,
    update: Update,
    *,
    json: bool,
    scheduler: str | None,
    **options: Any,
) -> None:
    """`refocal apply` for a data set: a folder of Parquet files."""
    from refocal import scale

    if output.suffix or output.is_file():
        raise UsageError(f"{output}: the probabilities of a data set are a folder of files; name a folder with -o.")
    start = time.monotonic()

    def tell(done: int, total: int, n_rows: int) -> None:
        rate = n_rows / max(time.monotonic() - start, 1e-9)
        update(done, total, f"applying: {n_rows:,} rows, {rate / 1e6:.2f} million rows/s")

    client = None if scheduler is None else scale.connect(scheduler)
    try:
        written = scale.apply(calibrator, place, output, client=client, progress=tell, **options)
    finally:
        if client is not None:
            client.close()
    report = {
        "output": str(output),
        "rows": sum(each.n_rows for each in written),
        "rows_skipped": sum(each.n_skipped for each in written),
        "files": len(written),
        "files_there_before": sum(each.was_there for each in written),
    }
    if json:
        print_json(report)
        return
    there = f", {report['files_there_before']} of them there before" if report["files_there_before"] else ""
    bad = f" {report['rows_skipped']:,} bad rows have NaN." if report["rows_skipped"] else ""
    out().print(f"Wrote {output}: probabilities of {report['rows']:,} rows in {report['files']:,} files{there}.{bad}")
