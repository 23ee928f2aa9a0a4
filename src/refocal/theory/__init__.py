"""What the paper proves about focal loss and temperature scaling, with corrections (paper/docs/theory.md)."""

from refocal.theory.bounds import TemperatureRange, temperature_bounds, tight_temperature_bounds
from refocal.theory.closest import ClosestTemperature, closest_temperature
from refocal.theory.confidence import confidence_threshold, raises_confidence
from refocal.theory.properness import conditional_risk, focal_curvature, focal_minimizer, proper_weight
from refocal.theory.worst import highest_lowered_top, worst_top_change

__all__ = [
    "ClosestTemperature",
    "TemperatureRange",
    "closest_temperature",
    "conditional_risk",
    "confidence_threshold",
    "focal_curvature",
    "focal_minimizer",
    "highest_lowered_top",
    "proper_weight",
    "raises_confidence",
    "temperature_bounds",
    "tight_temperature_bounds",
    "worst_top_change",
]
