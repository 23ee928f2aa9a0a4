"""What the calibrators share that choose among scalings by cross-fitting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from refocal.calibrators import _settings as setting
from refocal.calibrators._base import Calibrator
from refocal.calibrators.fitted import HasFocalPoint


@dataclass(kw_only=True, eq=False, repr=False)
class CrossFitted(HasFocalPoint, Calibrator):
    """A calibrator that chooses a scaling by its predictions for rows that it was not fitted on."""

    n_folds: int = setting.integer(5, least=2)
    random_state: int = setting.integer(0, least=0)
    input: str = "logits"

    @property
    def choice_(self) -> dict[str, Any]:
        """What was fitted, from `fit_report_`."""
        return dict(self.fit_report_.get("scaling", {}))
