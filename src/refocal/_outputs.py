"""What an output may replace: never an input, and what is of another kind only where that is asked for."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable
from fnmatch import fnmatchcase
from glob import glob, has_magic
from pathlib import Path

from refocal._files import is_hidden, remove_left_over
from refocal.errors import ParameterError, Remedy

CALIBRATOR = "refocal-calibrator"
EVALUATION = "refocal-evaluation"
MANY = "refocal-many"

Place = str | os.PathLike[str]


def guard_output(
    output: Place,
    rows: Iterable[Place | None] = (),
    *,
    files: Iterable[Place | None] = (),
    kind: str | None = None,
    is_folder: bool = False,
    overwrite: bool = False,
    function: str,
    argument: str = "output",
) -> None:
    """Refuse an output before anything is computed.

    It may not be, contain or lie inside a place that `rows` are read from (a file, a folder, a pattern), nor be one of
    the other `files` that are read; if it `is_folder`, its tables may not match a pattern either. Of an output of some
    `kind`, a JSON file that exists and is of another one is replaced with `overwrite` only. Symbolic links are
    followed.

    >>> guard_output("rows/probs", ["rows"], function="apply")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    refocal.errors.ParameterError: The 'output' of apply must be ... Got 'rows/probs', which lies inside 'rows' instead.
    """
    # What the JSON files of this package are, by their field `format`.
    kinds = {
        CALIBRATOR: "a calibrator",
        EVALUATION: "an evaluation",
        MANY: "a comparison of many networks",
        "refocal-monitor": "the state of a monitor",
        "refocal-detection-calibrator": "a calibrator of detections",
    }
    target = Path(output).resolve()
    for place in rows:
        if place is not None and (relation := _relation(target, os.fspath(place), is_folder)):
            expected = "a place apart from what is read"
            got = f"{os.fspath(output)!r}, which {relation} {os.fspath(place)!r}"
            raise ParameterError(argument, function, expected=expected, got=got)
    for file in files:
        if file is not None and Path(file).resolve() == target:
            expected = "another file than those that are read"
            raise ParameterError(argument, function, expected=expected, got=repr(os.fspath(output)))
    if kind is None or overwrite or not target.is_file() or target.stat().st_size == 0:
        return
    present = format_of(target)
    if present != kind:
        expected = f"a new file or {kinds[kind]}, which is replaced"
        got = f"{os.fspath(output)!r}, which is {kinds.get(present or '', 'a file of another kind')}"
        raise ParameterError(argument, function, expected=expected, got=got, remedy=Remedy.OVERWRITE)


def guard_folder(
    folder: Path, names: Collection[str], is_foreign: Callable[[Path], bool], *, overwrite: bool, function: str
) -> None:
    """Make a folder that holds no other tables than those that will be written, the `names`.

    Other tables, from sources that are gone or of other programs, would be read with the rest. They are an error, or
    are removed with `overwrite`. `is_foreign` says whether a file with one of the names is of another program.
    """
    folder.mkdir(parents=True, exist_ok=True)
    remove_left_over(folder)
    tables = [file for file in sorted(folder.rglob("*")) if file.suffix.lower() == ".parquet" and file.is_file()]
    expected_files = {folder / name for name in names}
    others = [
        file
        for file in tables
        if not is_hidden(file.relative_to(folder).parts) and (file not in expected_files or is_foreign(file))
    ]
    most_named = 5  # names that an error shows
    if others and not overwrite:
        listed = [repr(str(file.relative_to(folder))) for file in others[:most_named]]
        more = f" and {len(others) - most_named:,} more" if len(others) > most_named else ""
        expected = "a folder without other tables, which would be read together with those of this run"
        got = f"{str(folder)!r} with {', '.join(listed)}{more}"
        raise ParameterError("output", function, expected=expected, got=got, remedy=Remedy.OVERWRITE)
    for file in others:
        file.unlink()


def _relation(target: Path, place: str, is_folder: bool) -> str | None:
    """How an output and a place that is read overlap, as a verb; None if they do not."""
    place = place.removeprefix("file://")
    if "://" in place:
        return None
    source = Path(place)
    if has_magic(place) and not source.exists():
        return _relation_to_pattern(target, place, is_folder)
    source = source.resolve()
    if target == source:
        return "is"
    if target in source.parents:
        return "contains"
    if source in target.parents:
        return "lies inside"
    if source.is_dir() and any(_is_or_contains(target, file) for file in source.rglob("*") if file.is_symlink()):
        return "is linked from"
    return None


def _relation_to_pattern(target: Path, pattern: str, is_folder: bool) -> str | None:
    files = [Path(file) for file in glob(pattern, recursive=True)]
    if any(_is_or_contains(target, file) for file in files):
        return "has a file of"
    # What will be written must not match either: the next run would read it.
    steps = Path(os.path.abspath(pattern)).parts
    names = ["part-000000.parquet", *(f"{file.stem}.parquet" for file in files)]
    written = [target / name for name in names] if is_folder else [target]
    return "matches" if any(_matches(path.parts, steps) for path in written) else None


def _is_or_contains(target: Path, file: Path) -> bool:
    file = file.resolve()
    return target == file or target in file.parents


def _matches(parts: tuple[str, ...], steps: tuple[str, ...]) -> bool:
    """Whether the parts of a path match those of a pattern, of which ** stands for any number of folders."""
    if not steps:
        return not parts
    if steps[0] == "**":
        return any(_matches(parts[i:], steps[1:]) for i in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], steps[0]) and _matches(parts[1:], steps[1:])


def format_of(file: Path) -> str | None:
    """What a JSON file says that it is; None if it says nothing, or cannot be read."""
    try:
        data = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return None
    stated = data.get("format") if isinstance(data, dict) else None
    return stated if isinstance(stated, str) else None
