"""The command line of the paper's experiments."""

import sys

from refocal.cli.run import run_program

__all__ = ["main", "run"]


def main() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command; returns the exit code."""
    return run_program("refocal-paper", "refocal_paper.cli.commands", arguments)
