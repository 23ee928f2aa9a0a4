"""The command line: parse, call one function, print."""

from refocal.cli.run import main

__all__ = ["main"]
