"""What is off now, by how much, and whether acting on it is expected to help."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import norm as normal
from scipy.stats import t as student

from refocal.monitor.history import History
from refocal.monitor.independent import SMALLEST_P
from refocal.monitor.period_sums import MEAN, SLOPE, Period, WindowSummary, added, stream_in_words, summary_of


class Advice(NamedTuple):
    """The advice, "recalibrate", "watch", "keep" or "wait", and the reason in a sentence.

    >>> from refocal.monitor import CalibrationMonitor
    >>> CalibrationMonitor().advice().action
    'wait'
    """

    action: str
    reason: str


@dataclass(frozen=True)
class PresentState:
    """The last periods: their measures, and z of the streams, by the scatter of periods."""

    window: WindowSummary
    n_periods: int
    z_mean: float
    """Of Σ (y - p): above 0 probabilities are too low."""
    z_slope: float
    """Of Σ (η - mean η)(y - p): below 0 probabilities are too extreme."""
    threshold: float
    """|z| beyond which a difference is clear."""
    gain: float
    """The expected fall of the log-loss per row by correcting the mean, less the price of estimating it."""
    elsewhere: dict[str, float] = field(default_factory=dict)
    """The biases, rate less mean p, of classes, groups and high scores that are clearly off, by stream."""

    @property
    def is_off(self) -> bool:
        """Whether the mean or the slope of all rows differs clearly, so that correcting it helps."""
        slope_is_off = abs(self.z_slope) > self.threshold
        return slope_is_off or (abs(self.z_mean) > self.threshold and self.gain > 0.0)


def present_state(periods: list[Period], level: float, *, independent: bool) -> PresentState | None:
    """The state of the last periods with labels; None if there are none.

    z = Σ_t r_t / √max(m/(m-1) Σ_t (r_t - r̄)², Σ_t v_t) of the residuals r_t of m periods, whose variances are v_t if
    rows are independent; then z = Σ_t r_t / √Σ_t v_t. The shift of the log-odds that corrects the mean lowers the
    log-loss of these rows by G together, see `fall_by_shift`, and that of as many new ones by about (1 - 1/z²) G: with
    R = Σ_t r_t and V = Σ_t v_t a small shift has G = R²/(2V), of which R/z, the standard error of R, is the part by
    chance.
    """
    # The present: the last periods, as many as have this many labelled rows, and no fewer than so many periods.
    least_rows = 1_000
    least_periods = 10
    labelled = [period for period in periods if period.n > 0]
    chosen: list[Period] = []
    for period in reversed(labelled):
        if len(chosen) >= least_periods and sum(each.n for each in chosen) >= least_rows:
            break
        chosen.insert(0, period)
    window = summary_of(chosen, level, independent=independent)
    if window is None:
        return None
    z_mean = _z(chosen, MEAN, independent=independent)
    if not any(MEAN in period.sums for period in chosen):  # in files from before independent rows had sums
        z_mean = -window.bias.value / max(window.bias.standard_error, 1e-12)
    z_slope = _z(chosen, SLOPE, independent=independent)
    threshold = _threshold(level, len(chosen), independent=independent)
    gain = (1.0 - 1.0 / max(z_mean**2, 1e-12)) * fall_by_shift(reduce(Period.plus, chosen)) / window.n
    elsewhere = _biases_elsewhere(chosen, level, independent=independent)
    return PresentState(window, len(chosen), z_mean, z_slope, threshold, gain, elsewhere)


def fall_by_shift(period: Period) -> float:
    """The largest fall of the log-loss of all rows by one shift of the log-odds, which is at most the log-loss.

        G = max_δ Σ_b [k_b δ - n_b log(1 - p_b + p_b exp(δ))]

    of n_b rows and k_b events in bins of the probability, whose rows count as their mean p_b. The sum is concave; at
    its largest, Σ_b n_b p'_b = Σ_b k_b for the shifted p'_b. Of one bin G is n times the Kullback-Leibler divergence of
    p from the rate.
    """
    # Log-odds by which probabilities of `SMALLEST_P` come as near to 1: no events, or nothing else, ask for any shift.
    largest_shift = 60.0
    n = np.array(period.rows, dtype=np.float64)
    k = np.array(period.events, dtype=np.float64)
    p = np.clip(np.array(period.p) / np.maximum(n, 1.0), SMALLEST_P, 1.0 - SMALLEST_P)
    log_odds = np.log(p) - np.log1p(-p)

    def excess(shift: float) -> float:
        """The events less those that the shifted probabilities expect, which falls with the shift."""
        return float(np.sum(k - n * expit(log_odds + shift)))

    if excess(largest_shift) >= 0.0:
        shift = largest_shift
    elif excess(-largest_shift) <= 0.0:
        shift = -largest_shift
    else:
        shift = brentq(excess, -largest_shift, largest_shift)
    fall = k * shift - n * np.logaddexp(np.log1p(-p), np.log(p) + shift)
    return max(float(np.sum(fall)), 0.0)


def _threshold(level: float, n_periods: int, *, independent: bool) -> float:
    """|z| beyond which a stream is clearly off: a normal quantile of independent rows, else Student's of periods."""
    if independent:
        return float(normal.ppf(0.5 + 0.5 * level))
    return float(student.ppf(0.5 + 0.5 * level, max(n_periods - 1, 1)))


def _z(periods: list[Period], stream: str, *, independent: bool) -> float:
    residual = sum(period.sums.get(stream, [0.0, 0.0])[0] for period in periods)
    information = sum(period.sums.get(stream, [0.0, 0.0])[1] for period in periods)
    dispersion = _dispersion(periods, stream, independent=independent)
    return residual / math.sqrt(dispersion * max(information, 1e-12))


def _dispersion(periods: list[Period], stream: str, *, independent: bool) -> float:
    """The variance of Σ_t r_t, by the scatter of periods, over that of independent rows: 1 at least."""
    pairs = np.array([period.sums.get(stream, [0.0, 0.0])[:2] for period in periods])
    m = len(pairs)
    if m < 2 or independent:
        return 1.0
    deviation = pairs[:, 0] - pairs[:, 0].mean()
    scatter = m / (m - 1) * float(deviation @ deviation)
    return max(scatter / max(float(pairs[:, 1].sum()), 1e-12), 1.0)


def _biases_elsewhere(periods: list[Period], level: float, *, independent: bool) -> dict[str, float]:
    """The biases of the other streams than mean and slope that are clearly off; the level is of all (Bonferroni)."""
    sums = reduce(added, [period.sums for period in periods])
    others = [name for name in sums if name not in (MEAN, SLOPE)]
    if not others:
        return {}
    level_of_one = 1.0 - (1.0 - level) / len(others)
    threshold = _threshold(level_of_one, len(periods), independent=independent)
    n_all = sum(period.n for period in periods)
    biases = {}
    for name in others:
        if abs(_z(periods, name, independent=independent)) > threshold:
            # Of states that lack the number of rows, that of all rows is what the bias is at least.
            n = sums[name][2] if len(sums[name]) == 3 else n_all
            biases[name] = sums[name][0] / n
    return biases


def advise(history: History, alpha: float, smallest_shift: float, level: float, compared: tuple[str, str]) -> Advice:
    """What to do now: an alarm says that something has changed, the last periods what is off today."""
    # A refit on fewer rows, even if it is shrunk towards the calibrator in use, is as likely to harm as to help.
    least_rows = 200
    now = present_state(history.periods, level, independent=history.independent)
    if now is None:
        return Advice("wait", "No labels since the restart." if history.is_restarted else "No labels yet.")
    window = now.window
    alarm = history.open_alarm
    what, outcome = compared
    rate = window.rate
    seen = (
        f"in the last {now.n_periods} periods ({window.first} to {window.last}, {window.n:,} rows) the {what} is "
        f"{window.mean_p:.3f} and the {outcome} {rate.value:.3f} ({rate.low:.3f} to {rate.high:.3f}), "
        f"ECE of ten bins of equal width {100 * window.ece:.2f} %"
    )
    e_value = math.exp(min(history.log_e, 700.0))
    if alarm is None:
        evidence = f"e-value {e_value:.3g} after {history.n_entered:,} rows; the alarm is at {1.0 / alpha:g}."
        if e_value**2 < 1.0 / alpha:
            return Advice("keep", f"No evidence against the calibration: {evidence}")
        return Advice("watch", f"The calibration may be changing: {evidence}")
    raised = f"The alarm was raised in {alarm.period} ({'; '.join(alarm.moved)})"
    shift = max(window.ece - window.ece_by_chance, abs(window.bias.value), *map(abs, now.elsewhere.values()))
    if not now.is_off and not now.elsewhere:
        return Advice("keep", f"{raised}, but nothing is clearly off now: {seen}. If it was dealt with, restart.")
    if shift < smallest_shift:
        return Advice("keep", f"The calibration has changed, but by too little to matter: {seen}. {raised}.")
    if window.n < least_rows:
        return Advice("watch", f"{raised}; {seen}. With {least_rows} labelled rows a recalibration would pay.")
    if not now.is_off:
        off = "; ".join(stream_in_words(name, bias) for name, bias in now.elsewhere.items())
        return Advice("recalibrate", f"Recalibrate now ({_means_elsewhere(now)}): {seen}, but {off}. {raised}.")
    means = "shift the intercept"
    if abs(now.z_slope) > now.threshold:
        means = "refit, shrunk towards the calibrator in use"
    expected = f"; the log-loss would fall by about {now.gain:.4f} a row" if now.gain > 0.0 else ""
    return Advice("recalibrate", f"Recalibrate now ({means}): {seen}{expected}. {raised}.")


def _means_elsewhere(now: PresentState) -> str:
    """What corrects classes or groups where all rows together are not off."""
    families = {name.split("/")[0] for name in now.elsewhere}
    if "group" in families:
        return "refit, for each group"
    return "refit, for each class" if "class" in families else "refit, shrunk towards the calibrator in use"


@dataclass(frozen=True)
class ExpectedPerformance:
    """A period: what the predictions say about their performance if they are calibrated, and what labels said."""

    period: str
    """Its name."""
    n_predicted: int
    """All rows."""
    n_labelled: int
    """Those whose labels have come."""
    expected_accuracy: float
    """Of all rows, if their probabilities are right."""
    expected_log_loss: float
    """Likewise."""
    accuracy: float | None
    """Of the labelled rows; None without any."""
    log_loss: float | None
    """Likewise."""
    expected_accuracy_of_labelled: float | None
    """What the probabilities of the labelled rows said; None without any."""
    expected_log_loss_of_labelled: float | None
    """Likewise."""


def expected_performance(period: Period) -> ExpectedPerformance:
    """The second line of a monitor, which needs no labels."""
    expected = period.expected
    n = period.n
    return ExpectedPerformance(
        period=str(period.first),
        n_predicted=expected.n,
        n_labelled=n,
        expected_accuracy=expected.correct / expected.n,
        expected_log_loss=expected.log_loss / expected.n,
        accuracy=expected.n_correct / n if n else None,
        log_loss=period.log_loss / n if n else None,
        expected_accuracy_of_labelled=expected.labelled_correct / n if n else None,
        expected_log_loss_of_labelled=expected.labelled_log_loss / n if n else None,
    )


@dataclass(frozen=True)
class Trust:
    """How the estimates without labels did once labels came: realised less expected, with intervals over periods."""

    n_periods: int
    """Periods that have labels."""
    accuracy: float
    """The realised less the expected one."""
    accuracy_margin: float
    """Half the width of its interval."""
    log_loss: float
    """The realised less the expected one."""
    log_loss_margin: float
    """Half the width of its interval."""

    @property
    def sentence(self) -> str:
        """Whether the estimates could be trusted, could not, or may have been off by more than is little.

        Intervals within 2 points of accuracy and 0.04 of log-loss say that they were close, also where 0 is in neither;
        another without 0 says that they were off, and any other, such as a wide one of few periods, says nothing.

        >>> Trust(3, -0.08, 0.11, 0.02, 0.03).sentence.split(", ")[0]
        'No evidence that estimates without labels were off'
        """
        # What is little; rows of which 2 % more are wrong, at a confidence of 0.9, cost 0.02 log(0.9/0.1), or 0.04.
        little_accuracy = 0.02
        little_log_loss = 0.04
        largest_accuracy = abs(self.accuracy) + self.accuracy_margin
        largest_log_loss = abs(self.log_loss) + self.log_loss_margin
        if largest_accuracy <= little_accuracy and largest_log_loss <= little_log_loss:
            said = "Estimates without labels could be trusted"
        elif abs(self.accuracy) > self.accuracy_margin or abs(self.log_loss) > self.log_loss_margin:
            said = "Estimates without labels could not be trusted"
        else:
            by = f"{100 * largest_accuracy:.2f} points of accuracy or {largest_log_loss:.4f} of log-loss"
            said = f"No evidence that estimates without labels were off, but they may have been by up to {by}"
        return (
            f"{said}: over {self.n_periods} periods the accuracy was "
            f"{100 * self.accuracy:+.2f} ± {100 * self.accuracy_margin:.2f} points from what was expected, the "
            f"log-loss {self.log_loss:+.4f} ± {self.log_loss_margin:.4f}."
        )


def trust_of(periods: list[ExpectedPerformance], level: float) -> Trust | None:
    """The score of the estimates of periods that have labels now; None for fewer than three."""
    known = [period for period in periods if period.accuracy is not None]
    m = len(known)
    if m < 3:
        return None
    n = np.array([period.n_labelled for period in known], dtype=np.float64)
    quantile = float(student.ppf(0.5 + 0.5 * level, m - 1))

    def mean_and_margin(differences: list[float]) -> tuple[float, float]:
        d = np.array(differences)
        mean = float(n @ d / n.sum())
        deviation = n * (d - mean)
        return mean, quantile * math.sqrt(m / (m - 1) * float(deviation @ deviation)) / float(n.sum())

    accuracy = mean_and_margin([(each.accuracy or 0.0) - (each.expected_accuracy_of_labelled or 0.0) for each in known])
    log_loss = mean_and_margin([(each.log_loss or 0.0) - (each.expected_log_loss_of_labelled or 0.0) for each in known])
    return Trust(m, *accuracy, *log_loss)
