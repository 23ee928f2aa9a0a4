"""Charts of two classes: nothing is moved to the border of a chart, and costs are shown beside those of no model."""

import math

import numpy as np
import pytest

from refocal._svg import Line, Point
from refocal.evaluate.decisions import Decision
from refocal.evaluate.evaluation import Reliability, SmoothCurve
from refocal.report.charts import costs, flexible_curve
from refocal.report.details import terms_of


class OfLate:
    """What the words of a chart depend on."""

    positive = "late"
    class_names = ("on time", "late")


def logit(p):
    return math.log(p / (1.0 - p))


def drawn(curve, points, on_logit):
    plot = flexible_curve(curve, points, "a method", terms_of(OfLate()), 0.95, on_logit)
    line = next(mark for mark in plot.marks if isinstance(mark, Line) and mark.width > 1.0)
    rings = [(mark.x, mark.y) for mark in plot.marks if isinstance(mark, Point)]
    return plot, line, rings


def test_a_curve_above_the_diagonal_is_not_cut():
    p = np.linspace(0.05, 0.4, 8)
    curve = SmoothCurve(p.tolist(), (1.6 * p).tolist(), (1.2 * p).tolist(), (2.4 * p).tolist())
    points = Reliability([10, 10], [0.1, 0.3], [0.16, 0.48], [0.0, 0.0], [1.0, 1.0])
    plot, line, rings = drawn(curve, points, on_logit=False)
    np.testing.assert_allclose(line.y, curve.rate)
    assert rings == [(0.1, 0.16), (0.3, 0.48)]
    assert plot.y[1] >= max(curve.rate)


def test_rare_outcomes_of_a_model_that_is_far_too_high_are_not_moved_to_the_border():
    p = np.linspace(0.1, 0.95, 12)
    rate = 0.02 * p**2
    curve = SmoothCurve(p.tolist(), rate.tolist(), (0.5 * rate).tolist(), (2.0 * rate).tolist())
    points = Reliability([50] * 3, [0.2, 0.4, 0.8], [0.0, 0.004, 0.012], [0.0] * 3, [1.0] * 3)
    plot, line, rings = drawn(curve, points, on_logit=True)
    np.testing.assert_allclose(line.y, [logit(each) for each in rate])
    # A rate of 0 has no log-odds, and no ring that would say otherwise.
    assert rings == [pytest.approx((logit(0.4), logit(0.004))), pytest.approx((logit(0.8), logit(0.012)))]
    assert plot.y[0] <= min(line.y)
    assert plot.x == plot.y


def test_costs_are_shown_beside_those_of_acting_on_all_rows_or_on_none():
    made = [Decision(t / 100, 0.5, 0.2, 0.2, 0.6, 80.0) for t in range(100)]
    plot = costs({"before": made, "after": made}, "probability from", rate=0.3)
    dotted = next(mark for mark in plot.marks if isinstance(mark, Line) and mark.dash == "1 3")
    assert dotted.y[10] == pytest.approx(1000 * 0.1 * 0.7)  # all rows: the false alarms among them
    assert dotted.y[60] == pytest.approx(1000 * 0.4 * 0.3)  # none: the missed ones
    assert not [mark for mark in costs({"before": made}, "from").marks if getattr(mark, "dash", "") == "1 3"]
