"""What the calibrators share that are fitted with the help of predictions for rows left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from refocal.calibrators import settings as setting
from refocal.calibrators._base import Calibrator
from refocal.calibrators.fitted import HasFocalPoint


@dataclass(kw_only=True, eq=False, repr=False)
class CrossFitted(HasFocalPoint, Calibrator):
    """A calibrator that judges scalings by their predictions for rows that they were not fitted on."""

    n_folds: int = setting.integer(5, least=2)
    random_state: int = setting.integer(0, least=0)
    input: str = "logits"

    @property
    def choice_(self) -> dict[str, Any]:
        """What was fitted, from `fit_report_`."""
        return dict(self.fit_report_.get("scaling", {}))
