"""The door of the command line: every error is one line that says what to do, never a traceback."""

from __future__ import annotations

import os
import sys
import warnings
from importlib import import_module

from refocal.errors import FitWarning, InputError, InputWarning, ParameterError, RefocalError

USAGE, FAILURE, STOPPED = 2, 1, 130
# What the Python interface calls by its own names is called by its option here.
SAY = {
    "say first_label=1": "add --first-label 1",
    "use Predictions.from_probabilities": "add --probabilities",
    "say so with input='probabilities'": "add --probabilities",
    "name theirs with labels=": "name theirs with --labels",
    " of Predictions.from_logits": "",
    "integers, or names with class_names": "integers, or names of classes that the file lists in an array class_names",
    "say input='probabilities'": "add --probabilities",
    "say input='logits'": "leave out --probabilities",
    "'y' must be": "'labels' must be",
    "'nll_tolerance' must be": "--tolerance must be",
    "'objective' must be left": "--objective must be left",
    "say which one holds what": "say which holds what with --values and --labels",
    "Name the classes' columns by a pattern such as 'logit_*' or a list such as 'cat,dog', or name the weights": "Name "
    "the classes' columns with --values 'logit_*' or --values cat,dog, or the weights with --weights",
    "name the labels' column with labels= or the classes' with values=": "name the labels' column with --labels or the "
    "classes' with --values",
}


class FileProblem(RefocalError):  # noqa: N818
    """What is in a file does not fit; says which file."""


class Stopped(Exception):  # noqa: N818
    """Ctrl-C, where something was written; says what."""


class UsageError(Exception):
    """The command line itself asks for something that cannot be."""


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
    return run_program("refocal", "refocal.cli.commands", arguments)


def run_program(name: str, module: str, arguments: list[str]) -> int:
    """Run one command of a program, whose commands are the `app` of a module; returns the exit code."""
    with warnings.catch_warnings():
        # Probabilities given as logits would be calibrated without a complaint: here that is an error.
        warnings.simplefilter("error", InputWarning)
        warnings.filterwarnings("ignore", category=ResourceWarning)
        warnings.filterwarnings("ignore", category=FitWarning)  # said in the text that is printed
        try:
            app = import_module(module).app  # takes a moment, in which Ctrl-C may come
            code = app(arguments, standalone_mode=False, prog_name=name)
            # Ctrl-C comes back as an exit code from some versions of typer and as an exception from others.
            return _explain(KeyboardInterrupt(), name) if code == STOPPED else int(code or 0)
        except BaseException as error:
            return _explain(error, name)


def _explain(error: BaseException, program: str) -> int:
    """Print the one line, and name the exit code."""
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort":
        return _say(program, "stopped, nothing was written.", STOPPED)
    if isinstance(error, Stopped):
        return _say(program, str(error), STOPPED)
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else FAILURE
    if isinstance(error, BrokenPipeError):
        # The reader, such as head, has seen enough; so that closing the stream does not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{error}\n")
        return USAGE
    if hasattr(error, "format_message"):  # typer's own: a missing argument, an unknown option
        return _say(program, f"{error.format_message().rstrip('.')}. See {program} --help.", USAGE)
    if type(error).__name__ == "Exit":
        return int(getattr(error, "exit_code", 0))
    if isinstance(error, (UsageError, ParameterError, FileNotFoundError, IsADirectoryError)):
        return _say(program, explained(error), USAGE)
    if isinstance(error, (RefocalError, InputWarning, OSError)):
        return _say(program, explained(error), FAILURE)
    if isinstance(error, MemoryError):
        return _say(program, "not enough memory; give fewer rows.", FAILURE)
    if os.environ.get("REFOCAL_TRACEBACK"):
        raise error
    kind = type(error).__name__
    return _say(program, f"{kind}: {error}. This is a fault of {program}; REFOCAL_TRACEBACK=1 shows where.", FAILURE)


def explained(error: BaseException) -> str:
    """An error as one line in the words of the command line."""
    text = str(error)
    if isinstance(error, InputError):  # without the name of the Python function
        text = f"'{error.argument}' must be {error.expected}. Got {error.got} instead."
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename or 'file'}: {error.strerror}."
    for python, option in SAY.items():
        text = text.replace(python, option)
    return text


def _say(program: str, text: str, code: int) -> int:
    sys.stderr.write(f"{program}: {' '.join(text.split())}\n")
    return code
