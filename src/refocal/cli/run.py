"""Runs commands: every error is printed as one line that says what to do, never as a traceback."""

from __future__ import annotations

import codecs
import io
import os
import sys
import warnings
from enum import IntEnum
from importlib import import_module
from typing import Any

import refocal
from refocal.errors import FitWarning, FormatError, InputError, InputWarning, ParameterError, RefocalError, Remedy, need


class ExitCode(IntEnum):
    """What a command exits with; 0 where all went well."""

    FAILURE = 1
    USAGE = 2
    NEGATIVE = 3
    """The work is done, and the answer is no: a requirement does not hold, there is an alarm, nothing was adapted."""
    STOPPED = 130


# What stands for characters that the encoding of the output lacks, as that of files on Windows; others are escaped.
PLAIN = {"−": "-", "–": "-", "→": "->", "…": "...", "≤": "<=", "≥": ">=", "γ": "gamma"}
REMEDIES = {
    Remedy.FIRST_LABEL: "If they count from 1, add --first-label 1.",
    Remedy.PROBABILITIES: "If they are probabilities, add --probabilities.",
    Remedy.PERCENTAGES: "If they are percentages, divide them by 100 and add --probabilities.",
    Remedy.RENORMALISE: "If they were rounded, add --renormalise.",
    Remedy.READ_PROBABILITIES: "If those are meant, add --probabilities.",
    Remedy.READ_LOGITS: "If those are meant, leave out --probabilities.",
    Remedy.IGNORE_INDEX: "Leave such rows out with --ignore-index.",
    Remedy.LABELS: "Name theirs with --labels, also a .npy file that holds them.",
    Remedy.CLASS_NAMES: "Names of classes are understood if the columns of a table are called by them, "
    "or an array class_names lists them all.",
    Remedy.CLASSES_OF_CALIBRATOR: "",
    Remedy.NAMED_ROWS: "",
    Remedy.NAMES_OF_MONITOR: "",
    Remedy.READ_PREDICTIONS: "",
    Remedy.CALLED_ALIKE: Remedy.CALLED_ALIKE.value,
    Remedy.POSITIVE_LABEL: "Of two classes, say which label is the positive one with --positive-label.",
    Remedy.OVERWRITE: "To have it replaced or removed, add --overwrite.",
    Remedy.MERGE_ONCE: "Rows count once: to have what is new, merge all states into a new --state.",
    Remedy.NAMES_BEFORE: "Of two classes, say which label is the positive one with --positive-label.",
    Remedy.NO_GROUPS: "The column that --groups names must have them as they were in the fit.",
    Remedy.ARRAYS: "Say which holds what with --values and --labels.",
    Remedy.COLUMNS: "Name the columns of the classes with --values 'logit_*' or --values cat,dog, or the one "
    "probability of two classes with --probability-column score, that of the labels with --labels and that of the "
    "weights with --weights.",
}


class FileProblem(RefocalError):  # noqa: N818
    """The content of a file does not fit; the message names the file."""


class Stopped(Exception):  # noqa: N818
    """Ctrl-C after something was written; the message names it."""


class UsageError(Exception):
    """The arguments of a command are wrong or contradict each other."""


def main() -> None:
    """Run the command line and leave with its exit code.

    >>> from unittest.mock import patch
    >>> with patch("sys.argv", ["refocal", "show", "no-such-file.json"]):
    ...     main()
    Traceback (most recent call last):
    SystemExit: 2
    """
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command; returns the exit code."""
    if arguments == ["--version"]:  # before anything else is loaded
        sys.stdout.write(f"refocal {refocal.__version__}\n")
        return 0
    return run_program("refocal", "refocal.cli.commands", arguments)


def run_program(name: str, module: str, arguments: list[str]) -> int:
    """Run one command of a program, whose commands are the `app` of a module; returns the exit code."""
    codecs.register_error("plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="plain")
    with warnings.catch_warnings():
        # Probabilities given as logits would be calibrated with a warning only: here that is an error.
        warnings.simplefilter("error", InputWarning)
        warnings.filterwarnings("ignore", category=ResourceWarning)
        warnings.filterwarnings("ignore", category=FitWarning)  # said in the text that is printed
        try:
            for library in ("typer", "rich"):
                need(library, "cli", "The command line")
            app = import_module(module).app  # takes a moment, in which Ctrl-C may come
            code = app(arguments, standalone_mode=False, prog_name=name)
            # Ctrl-C comes back as an exit code from some versions of typer and as an exception from others.
            return _explain(KeyboardInterrupt(), name) if code == ExitCode.STOPPED else int(code or 0)
        except BaseException as error:
            return _explain(error, name)


def _plain(error: Any) -> tuple[str, int]:
    """What is printed in place of the characters of a UnicodeEncodeError."""
    some = error.object[error.start : error.end]
    return "".join(PLAIN.get(c) or c.encode("ascii", "backslashreplace").decode() for c in some), error.end


def _explain(error: BaseException, program: str) -> int:
    """Print the one line, and name the exit code."""
    kind = type(error).__name__  # typer's own errors differ from version to version
    if isinstance(error, (KeyboardInterrupt, Stopped)) or kind == "Abort":
        message = str(error) if isinstance(error, Stopped) else "stopped; nothing was written."
        return _say(program, message, ExitCode.STOPPED)
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else ExitCode.FAILURE
    if isinstance(error, BrokenPipeError):
        # The reader, such as head, has seen enough; so that closing the stream raises nothing either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILURE
    if kind == "NoArgsIsHelpError":
        sys.stderr.write(f"{error}\n")
        return ExitCode.USAGE
    if hasattr(error, "format_message"):  # a missing argument, an unknown option
        asked = getattr(getattr(error, "ctx", None), "command_path", program)
        message = error.format_message()
        stop = "" if message.endswith((".", "?")) else "."
        return _say(program, f"{message}{stop} See {asked} --help.", ExitCode.USAGE)
    if kind == "Exit":
        return int(getattr(error, "exit_code", 0))
    if isinstance(error, (UsageError, RefocalError, InputWarning, OSError)):
        is_usage = isinstance(error, (UsageError, ParameterError, FileNotFoundError, IsADirectoryError))
        return _say(program, explained(error), ExitCode.USAGE if is_usage else ExitCode.FAILURE)
    if isinstance(error, MemoryError):
        return _say(program, "not enough memory; give fewer rows.", ExitCode.FAILURE)
    if os.environ.get("REFOCAL_TRACEBACK"):
        raise error
    return _say(
        program, f"{kind}: {error}. This is a bug in {program}; REFOCAL_TRACEBACK=1 shows where.", ExitCode.FAILURE
    )


def explained(error: BaseException) -> str:
    """An error as one line in the words of the command line."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'file'}: {error.strerror}."
    if isinstance(error, InputError):  # without the name of the Python function
        name = _option_of(error.argument)
        text = f"{name} must be {error.expected}. Got {error.got} instead."
    elif isinstance(error, (FormatError, InputWarning)):
        text = error.text
    else:
        return str(error)
    return text if error.remedy is None else f"{text} {REMEDIES[error.remedy]}"


def _option_of(argument: str) -> str:
    """What an argument of the Python interface is called here: by its option, or else by its own name."""
    options = {
        "y": "'labels'",
        "nll_tolerance": "--tolerance",
        "methods": "--method",
        "n_resamples": "--resamples",
        "other": "--merge",
    }
    called_alike = {
        "abstain", "alpha", "class_weight", "costs", "coverage", "false_negative", "false_positive", "gamma", "method",
        "objective", "output", "positive_label", "report", "require", "sample", "state",
    }  # fmt: skip
    if argument in called_alike:
        return f"--{argument.replace('_', '-')}"
    return options.get(argument, f"'{argument}'")


def _say(program: str, text: str, code: int) -> int:
    sys.stderr.write(f"{program}: {' '.join(text.split())}\n")
    return code
