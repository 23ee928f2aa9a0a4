"""Plug-ins of installed packages, which register calibrators and metrics of their own (`refocal.register`).

A package names a module in its pyproject.toml, and what that registers is known everywhere, on the command line too:

    [project.entry-points."refocal.plugins"]
    mine = "my_package.calibration"
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from refocal.errors import InputWarning, warn

GROUP = "refocal.plugins"


@cache
def load_plugins() -> tuple[str, ...]:
    """Import the plug-ins once, when a name is asked for that this package does not have; returns their names.

    One that cannot be imported is passed over with a warning: it may not be the one that has the name.
    """
    loaded = []
    for plugin in entry_points(group=GROUP):
        try:
            plugin.load()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            warn(f"The plug-in {plugin.name!r} ({plugin.value}) could not be imported; {reason}.", InputWarning)
        else:
            loaded.append(plugin.name)
    return tuple(loaded)
