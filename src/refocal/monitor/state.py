"""What a monitor keeps in its file."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from refocal._json import build, without_format
from refocal.errors import FormatError
from refocal.monitor.history import History

FORMAT = "refocal-monitor"
VERSION = 2


@dataclass(frozen=True)
class MonitorState:
    """The fields of a monitor in a file."""

    alpha: float
    smallest_shift: float
    level: float
    n_classes: int | None
    n_waiting: int
    history: History
    class_names: list[str] | None = None
    """In the order of the columns; of two the second is the positive class."""
    id: str = ""
    merged: dict[str, int] = field(default_factory=dict)
    labels_by_name: bool | None = None
    enough_labels: float = 0.5

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON, with the format and its version."""
        return {"format": FORMAT, "version": VERSION, **asdict(self)}

    @classmethod
    def of_file(cls, data: Any) -> MonitorState:
        """What a file holds; refused if no monitor can have written it.

        A state with rows but without an id gets one.
        """
        values = without_format(data, "a monitor", FORMAT, VERSION)
        state = build(cls, values, "monitor")
        state.history.check()
        if state.n_classes is not None and state.n_classes < 2:
            raise FormatError("'n_classes' must be at least 2.")
        names = state.class_names
        if names is not None and not len(names) == len(set(names)) == state.n_classes:
            raise FormatError("'class_names' must be as many different ones as 'n_classes'.")
        if any(count < 0 for count in state.merged.values()):
            raise FormatError("'merged' must have counts of rows, of 0 or more.")
        if not state.id and state.history.n_rows > 0:
            return replace(state, id=_id_of_content(values))
        return state


def _id_of_content(values: dict[str, Any]) -> str:
    """The id of a file that has none: copies of the file have the same one."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:32]
