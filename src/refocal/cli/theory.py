"""`refocal theory`: what is proven about focal loss, for one γ."""

from __future__ import annotations

from typing import Annotated

from refocal.cli.printing import print_table, progress, result


def theory(gamma: float = 2.0, classes: Annotated[int, {"min": 2, "max": 4}] = 2) -> None:
    """What focal loss with a γ does: bounds, the closest temperature, the threshold of confidence.

    --gamma  γ of the focal loss, greater than -1.
    --classes  Number of classes for the closest temperature.

    refocal theory --gamma 2 --classes 3
    """
    from refocal import theory as known

    with progress("searching the closest temperature"):
        bounds, tight = known.temperature_bounds(gamma), known.tight_temperature_bounds(gamma, 20.0)
        closest = known.closest_temperature(gamma, classes)
        threshold = known.confidence_threshold(gamma) if gamma > 0 else None
    result(
        {
            "gamma": gamma,
            "temperature_bounds": list(bounds),
            "tight_temperature_bounds": list(tight),
            "closest_temperature": {"classes": classes, **closest._asdict()},
            "confidence_threshold": threshold,
        }
    )
    rows = [
        ("two classes: focal calibration lies between temperatures", f"{bounds.lower:.4f} and {bounds.upper:.4f}"),
        ("  and for log-odds up to 20 between", f"{tight.lower:.4f} and {tight.upper:.4f}"),
        (f"{classes} classes: the closest temperature", f"{closest.temperature:.4f}"),
        ("  and the largest difference of a probability that remains", f"{closest.error:.4f}"),
    ]
    last = [] if threshold is None else [("a top probability is never lowered from τ on", f"{threshold:.4f}")]
    print_table((f"γ = {gamma:g}", ""), rows + last)
