"""How much work a fit does, counted exactly: rows walked through by the compiled passes, and bytes allocated.

What is protected is the time that a fit takes, nearly all of which goes to passes over the rows. A bound that fails
means that a change made fits slower: look for the pass that was added. Where a change needs fewer, lower the bound.
Counts do not depend on the processor or its load. Timing ratios beside other packages are printed by
`make bench-guard`, which is not part of the tests.
"""

from __future__ import annotations

import tracemalloc
from collections import Counter

import numpy as np
import pytest

from refocal import AutoCalibration, FocalTemperatureScaling, TemperatureScaling
from refocal.engine import c_engine

pytestmark = pytest.mark.numerics

N_ROWS, N_CLASSES = 10_000, 100


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    logits = 2.0 * rng.normal(size=(N_ROWS, N_CLASSES))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return (1.8 * logits).astype(np.float32), labels


@pytest.fixture
def walked(monkeypatch):
    """Rows walked through so far by each compiled pass; a prediction counts once for each of its γ."""
    if not c_engine.is_compiled():
        pytest.skip("no compiled kernel: its passes are not counted")
    counts: Counter[tuple[str, str]] = Counter()
    compiled = c_engine._pass

    def counting(name, rough=False):
        function = compiled(name, rough)

        def call(*arguments):
            n_rows = arguments[{"widen": 2, "spline": 3}[name]] if name in ("widen", "spline") else arguments[0].n_rows
            counts[name, "rough" if rough else "exact"] += n_rows * (arguments[2] if name == "predict" else 1)
            return function(*arguments)

        return call

    monkeypatch.setattr(c_engine, "_pass", counting)
    return counts


def passes(walked, name):
    """The counts of a pass in walks through all rows: in single precision, on the way, and in double, at the end."""
    return walked[name, "rough"] / N_ROWS, walked[name, "exact"] / N_ROWS


def test_a_temperature_fit_walks_through_the_rows_a_few_times(data, walked):
    """Newton's method begins on a sample and ends on all rows: no start from scratch on all of them."""
    TemperatureScaling().fit(*data)
    rough, exact = passes(walked, "temperature")
    assert rough <= 2.8  # on 300 rows, on a fifth of them, and two steps on all
    assert exact == 1.0
    assert passes(walked, "predict") == (2.0, 0.0)  # for the report: before and after
    assert passes(walked, "inspect")[1] <= 1.3
    assert passes(walked, "apply_chain") == (
        0.25,
        0.0,
    )  # for the report: mean probabilities, of 300,000 numbers at most
    assert {name for name, _ in walked} == {"temperature", "predict", "inspect", "apply_chain"}


def test_a_focal_fit_by_log_loss_walks_through_the_rows_a_few_times(data, walked):
    """Several starts are compared on a sample; all rows are gone through from the best of them alone."""
    FocalTemperatureScaling(objective="nll").fit(*data)
    rough, exact = passes(walked, "focal")
    assert rough <= 3.6
    assert exact == 1.0
    rough, exact = passes(walked, "temperature")  # where it starts; γ = 0 lies in the valley where it ends
    assert rough <= 0.4
    assert exact == 0.0
    rough, exact = passes(walked, "predict")
    assert rough <= 2.1
    assert exact == 0.0
    assert passes(walked, "inspect")[1] <= 1.6


def test_a_focal_fit_follows_flat_valleys_in_few_passes(walked):
    """Rows without the focal map leave γ nearly free: steps overshoot, and one of the starts leads to the largest γ."""
    rng = np.random.default_rng(0)
    logits = 3.0 * rng.normal(size=(N_ROWS, 10)).astype(np.float32)
    labels = np.argmax(logits / 1.8 + rng.gumbel(size=logits.shape), axis=1)
    FocalTemperatureScaling(objective="nll").fit(logits, labels)
    rough, exact = passes(walked, "focal")
    assert rough <= 10.6
    assert exact == 1.0


@pytest.mark.parametrize("objective", ["nll", "auto"])
def test_rows_of_many_classes_are_condensed_once(objective, walked):
    """Passes over all classes of a vocabulary are dear: most go over the condensed rows."""
    rng = np.random.default_rng(0)
    logits = 4.0 * rng.normal(size=(1200, 2000)).astype(np.float16)
    labels = np.argmax(logits / 1.5 + rng.gumbel(size=logits.shape), axis=1)
    wide: Counter[str] = Counter()
    compiled = c_engine._pass

    def counting(name, rough=False):
        def call(data, *arguments):
            if name != "widen" and data.n_classes == 2000:
                wide[name] += data.n_rows / 1200
            return compiled(name, rough)(data, *arguments)

        return call

    c_engine._pass = counting  # restored by the fixture
    FocalTemperatureScaling(objective=objective).fit(logits, labels)
    assert wide["condense"] <= 1.6
    assert sum(wide.values()) <= (13.5 if objective == "nll" else 20)


def test_the_default_walks_through_the_rows_a_few_dozen_times(data, walked):
    """Weights by cross-fitting cost a few dozen passes, not a few dozen fits."""
    assert AutoCalibration().fit(*data).choice_["chosen"] == "vector"
    # Ten folds of nine tenths of the rows, and all of them at the end, two steps each on average.
    assert passes(walked, "vector")[0] <= 25
    assert passes(walked, "split")[0] <= 4  # γ and T on a third of the rows, on all, and of each fold on some
    assert sum(passes(walked, "predict")) <= 5  # the curve, the report, the folds; the members on some rows
    assert passes(walked, "apply_chain") == (1.25, 0.0)  # for the report, mean probabilities included
    assert passes(walked, "inspect")[1] <= 5
    assert passes(walked, "temperature")[0] <= 4
    assert passes(walked, "spline")[1] <= 100


@pytest.mark.slow
@pytest.mark.parametrize(("search", "most"), [("grid", 480), (None, 280)])
def test_a_search_by_ece_looks_at_far_fewer_points_than_its_grid_has(search, most, data, walked):
    """A sample and interpolation leave out most points of the grid, each of which would be a pass."""
    model = FocalTemperatureScaling(objective="ece", search=search) if search else FocalTemperatureScaling()
    n_points = model.fit(*data).path_.value.size
    rough, exact = passes(walked, "predict")
    assert rough <= most < n_points / 3
    assert exact <= 10  # the few best points, and the report


@pytest.mark.parametrize("model", [TemperatureScaling(), FocalTemperatureScaling(objective="nll")], ids=["ts", "fts"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_fit_makes_no_copy_of_the_logits(model, dtype, data, walked):
    logits, labels = data[0].astype(dtype), data[1]
    model.fit(logits, labels)  # imports and caches
    tracemalloc.start()
    model.fit(logits, labels)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < logits.nbytes / 2


def test_what_is_counted_grows_with_a_second_pass(data, walked, monkeypatch):
    """The counter itself: a pass that is made twice is counted twice, so that the bounds above can fail."""
    TemperatureScaling().fit(*data)
    once = Counter(walked)
    walk = c_engine.temperature
    monkeypatch.setattr(c_engine, "temperature", lambda *a, **k: 0.5 * (walk(*a, **k) + walk(*a, **k)))
    walked.clear()
    TemperatureScaling().fit(*data)
    assert passes(walked, "temperature")[1] == 2.0
    assert walked["temperature", "rough"] == 2 * once["temperature", "rough"]
