"""Pieces of sentences and numbers as text, for every summary of an evaluation."""

from __future__ import annotations

from refocal.metrics import Interval, PairedDifference


def percent(value: float) -> str:
    """A share as a percentage with two digits."""
    return f"{100 * value:.2f}"


def interval_percent(interval: Interval) -> str:
    """An interval of shares as percentages."""
    return f"{percent(interval.low)} – {percent(interval.high)}"


def p_value_text(p_value: float) -> str:
    """A p-value with three digits."""
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


def change(side: int, what: str, before: str, after: str) -> str:
    """What a method does to a measure that falls (-1), rises (1) or does not change significantly (0)."""
    if side == 0:
        return f"does not change the {what} significantly ({before}, then {after})"
    return f"{'lowers' if side < 0 else 'raises'} the {what} from {before} to {after}"


def sign(difference: PairedDifference, least: float = 5e-5) -> int:
    """The side of 0 that the whole interval lies on; 0 where it holds 0, or is too small to be seen."""
    if abs(difference.difference) < least or difference.low <= 0.0 <= difference.high:
        return 0
    return 1 if difference.difference > 0 else -1


def capital(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]
