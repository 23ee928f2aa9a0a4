"""Methods over data sets, networks and seeds."""

from __future__ import annotations

import json
from dataclasses import replace
from html import escape

import matplotlib as mpl
import numpy as np
import pytest
from scipy.stats import wilcoxon

from refocal import TemperatureScaling, metrics
from refocal.calibrators import Calibrator
from refocal.errors import FitWarning, FormatError, ParameterError
from refocal.evaluate import ComparedMetric, ManyComparison, Run, RunScores, compare, compare_many, load_many
from refocal.evaluate.many_runs import by_chance
from refocal.evaluate.many_tables import (
    distance_sentence,
    methods_table,
    networks_table,
    rank_sentence,
    remarks,
    sentence,
)
from refocal.io import Predictions
from refocal.maps import Affine, Chain, Temperature, log_softmax
from refocal.metrics import METRICS, Metric
from refocal.metrics.inputs import read_probabilities
from refocal.report import render, write_report

mpl.use("agg")


def make_rows(n, seed, scale=2.5, n_classes=3):
    rng = np.random.default_rng(seed)
    logits = 1.5 * rng.normal(size=(n, n_classes))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return Predictions.from_logits(scale * logits, labels)


def make_runs(datasets="a", networks="uvwxyz", seeds=(1, 2), n=200):
    return [
        Run(make_rows(n, hash_of(d, w, s)), make_rows(n, hash_of(d, w, s) + 1), d, w, s)
        for d in datasets
        for w in networks
        for s in seeds
    ]


def hash_of(dataset, network, seed):
    return 10_000 * ord(dataset) + 100 * ord(network) + 10 * seed


@pytest.fixture(scope="module")
def runs():
    return make_runs()


@pytest.fixture(scope="module")
def found(runs):
    return compare_many(runs, ["ts", "vs"])


def test_the_metrics_of_a_run_are_those_of_compare(runs, found):
    one = compare(runs[3].validation, runs[3].test, ["ts", "vs"], n_resamples=5)
    for metric in ("log_loss", "brier_score", "ece", "accuracy"):
        for method in ("none", "ts", "vs"):
            expected = one[method].measures[metric].value
            assert found.runs[3].values[metric][method] == pytest.approx(expected, rel=1e-12)


def test_column_numbers_that_may_be_meant_as_classes_are_refused():
    """As `evaluate` refuses them: a label 1 of the classes 1, 2, 3 is the first class, and the second column."""
    validation, test = make_rows(300, 0), make_rows(300, 1)
    named = Predictions.from_logits(validation.values, validation.labels + 1, class_names=[1, 2, 3])
    low = test.take(test.labels < 2)
    counted = Predictions.from_logits(low.values, low.labels + 1)
    with pytest.raises(ParameterError, match=r"ts: .* 'labels' of compare_many must be read with the calibrator's"):
        compare_many([Run(named, counted)], ["ts"], metrics=["accuracy"])


def test_means_and_deviations_are_those_over_seeds(runs, found):
    losses = {}
    for run in runs:
        p = TemperatureScaling().fit(run.validation).predict_log_proba(run.test.values)
        losses.setdefault(run.network, []).append(metrics.log_loss(run.test.labels, p))
    for row in found.by_network("log_loss"):
        assert row.n_seeds == 2
        assert row.methods["ts"].mean == pytest.approx(np.mean(losses[row.network]))
        assert row.methods["ts"].sd == pytest.approx(np.std(losses[row.network], ddof=1))
    (ts,) = [row for row in found.table("log_loss") if row.name == "ts"]
    assert ts.mean.mean == pytest.approx(np.mean([np.mean(values) for values in losses.values()]))
    assert ts.mean.sd == pytest.approx(np.sqrt(np.mean([np.var(values, ddof=1) for values in losses.values()])))


def test_p_values_are_wilcoxons_adjusted_by_holm(found):
    costs = found.costs("log_loss")
    raw = sorted((wilcoxon(costs[name] - costs["none"]).pvalue, name) for name in ("ts", "vs"))
    expected = {raw[0][1]: 2 * raw[0][0], raw[1][1]: max(2 * raw[0][0], raw[1][0])}
    assert {row.name: row.p_value for row in found.table("log_loss")} == pytest.approx({**expected, "none": None})


def test_an_accuracy_is_better_the_higher_it_is():
    class Worse(Calibrator):
        """Takes the last class for the first: a worse accuracy."""

        def __init__(self, input="logits"):  # noqa: A002
            self.input = input

        def fit_chain(self, logits, labels, weight):
            swap = np.eye(3)[[2, 1, 0]]
            return Chain((Affine(kind="logits", inner_temperature=1.0, weights=swap, intercept=np.zeros(3)),))

    found = compare_many(make_runs(seeds=(1,)), [Worse()], metrics=["accuracy", "log_loss"])
    first, last = found.table("accuracy")
    assert (first.name, last.name) == ("none", "Worse")
    assert last.difference.high < 0.0 < first.win_rate.value == 1.0
    assert last.difference.difference == pytest.approx(last.mean.mean - first.mean.mean)
    said = "By accuracy, none has the best mean rank on 6 networks; 1 of 1 other methods differ significantly from it."
    assert sentence(found) == said


@pytest.mark.parametrize("best", [0.0, 1.0])
def test_seeds_on_both_sides_of_the_target_do_not_cancel(best):
    target = {"signed": True} if best == 0.0 else {"target": best}
    metric = ComparedMetric("bias", "bias", **target)
    runs = []
    for network in "uvwxyz":
        for seed, sign in (("1", 1), ("2", -1)):
            values = {"none": best + 0.03 + 0.01 * sign, "bad": best + 0.3 * sign}
            runs.append(RunScores("a", network, seed, 10, 10, 2, {"bias": values}))
    titles = {"none": "none", "bad": "bad"}
    compared = ManyComparison("", 0.95, "none", "run", ["none", "bad"], titles, [metric], runs, {}, {})
    costs = compared.costs("bias")
    np.testing.assert_allclose(costs["none"], 0.03)
    np.testing.assert_allclose(costs["bad"], 0.3)
    first, last = compared.table("bias")
    assert (first.name, first.rank, first.win_rate.value) == ("none", 1.0, 1.0)
    assert last.difference.difference == pytest.approx(0.27)
    assert last.p_value == pytest.approx(2 / 2**6)  # all six networks say the same
    assert last.mean.mean == pytest.approx(best)
    (bold,) = [line for line in compared.to_latex().splitlines() if "textbf" in line]
    assert bold.startswith("none")
    bold_cells = [line.split("&")[2] for line in compared.to_latex(networks=True).splitlines() if "textbf" in line]
    assert len(bold_cells) == 6
    assert all("textbf" in cell for cell in bold_cells)  # the column of none


def test_what_counts_as_independent_follows_from_the_numbers():
    few = {"methods": ["ts"], "metrics": ["log_loss"]}
    assert compare_many(make_runs("abcde", "uvwxy", (1,), 60), **few).unit == "both"
    assert compare_many(make_runs("abcde", "u", (1,), 60), **few).unit == "dataset"
    assert compare_many(make_runs("ab", "uvwxy", (1,), 60), **few).unit == "network"
    assert compare_many(make_runs("ab", "uv", (1,), 60), **few).unit == "run"


def test_units_change_intervals_and_say_what_they_are_about():
    runs = make_runs("abcde", "uvwxy", (1,), 60)
    widths = {}
    for unit in ("both", "dataset", "network", "run"):
        found = compare_many(runs, ["ts"], metrics=["log_loss"], unit=unit)
        difference = found.table()[0].difference or found.table()[1].difference
        widths[unit] = difference.high - difference.low
        assert found.tests().n_blocks == (25 if unit == "run" else 5)
        assert found.scope.startswith("Intervals and tests are about ")
    alone = compare_many(make_runs("a", "uvw", (1,), 60), ["ts"], metrics=["log_loss"], unit="dataset")
    assert alone.scope.startswith("One data set says nothing of others")
    assert len({widths["dataset"], widths["network"], widths["run"]}) == 3
    assert widths["both"] >= max(widths["dataset"], widths["network"])


def test_chance_is_what_a_calibrated_model_shows():
    """Of rows whose labels are drawn with their probabilities, the excess is 0 on average."""
    rng = np.random.default_rng(0)
    excesses = []
    for _ in range(40):
        p = np.exp(log_softmax(1.5 * rng.normal(size=(150, 4))))
        labels = (p.cumsum(axis=1) < rng.random((150, 1))).sum(axis=1)
        rows = read_probabilities(labels, p, None, "test")
        excesses.append(METRICS["ece"].measure(rows) - by_chance(METRICS["ece"], rows, 20, 0))
    error = np.std(excesses, ddof=1) / np.sqrt(40)
    assert abs(np.mean(excesses)) < 3.0 * error
    assert error < 0.01 < METRICS["ece"].measure(rows)
    # And of a metric of all classes.
    of_classes = METRICS["classwise_ece"]
    assert 0.0 < by_chance(of_classes, rows, 5, 0) < 3.0 * of_classes.measure(rows)


def test_the_sentence_says_whether_it_is_more_than_chance(found):
    first, second, last = found.table("log_loss")
    assert first.rank == second.rank < last.rank
    said = f"By log-loss, {first.name} and {second.name} share the best mean rank on 6 networks"
    assert sentence(found) == f"{said}; 0 of 2 methods differ significantly from none."
    of_five = compare_many(make_runs(networks="qrstu", seeds=(1,)), ["ts"], metrics=["log_loss"])
    said = "By log-loss, ts has the best mean rank on 5 networks, but is not significantly better than none"
    assert sentence(of_five) == f"{said} (p = 0.062)."
    surer = compare_many(make_runs(networks="qrstuvwxyz", seeds=(1,)), ["ts"], metrics=["log_loss"])
    said = "By log-loss, ts has the best mean rank on 10 networks, significantly better than none (p = 0.002)."
    assert sentence(surer) == said


def test_methods_that_change_no_prediction_share_the_best_rank_by_accuracy():
    found = compare_many(make_runs(seeds=(1,)), ["ts", "fts-nll"], metrics=["accuracy"])
    said = "By accuracy, none, ts and fts-nll share the best mean rank on 6 networks"
    assert sentence(found) == f"{said}; 0 of 2 methods differ significantly from none."
    of_one = compare_many(make_runs(seeds=(1,))[:1], ["ts"], metrics=["accuracy"])
    assert sentence(of_one) == "By accuracy, none and ts share the best mean rank on one network."


def test_the_excess_is_shown_of_errors_that_noise_raises(found):
    assert {row.excess for row in found.table("log_loss")} == {None}
    for row in found.table("ece"):
        assert row.excess < row.mean.mean
    assert "above chance" in methods_table(found, "ece")[0]
    assert "above chance" not in methods_table(found, "log_loss")[0]


def confident_errors(y, p):
    return float(np.mean((p.argmax(axis=1) != y) * p.max(axis=1)))


def test_own_calibrators_and_metrics_go_in_and_a_file_knows_them(tmp_path):
    class Cooler(Calibrator):
        def __init__(self, temperature=2.0, input="logits"):  # noqa: A002
            self.temperature = temperature
            self.input = input

        def fit_chain(self, logits, labels, weight):
            return Chain((Temperature(self.temperature),))

    share = Metric.of_function(lambda y, p: float(np.mean(p.max(axis=1) > 0.9)), "sure", unit="%", label="sure rows")
    asked = {"metrics": [confident_errors, share, "ece"], "against": "ts"}
    found = compare_many(make_runs(seeds=(1,)), {"mine": Cooler(), "ts": "ts"}, **asked)
    assert found.methods == ["none", "mine", "ts"]
    p = np.exp(log_softmax(make_runs()[0].test.values / 2.0))
    expected = confident_errors(make_runs()[0].test.labels, p)
    assert found.runs[0].values["confident_errors"]["mine"] == pytest.approx(expected)
    found.save(tmp_path / "many.json")
    again = load_many(tmp_path / "many.json")
    assert again == found
    assert methods_table(again, "sure") == methods_table(found, "sure")
    assert again.metric("sure").record.heading == "sure rows %"
    assert again.table("confident_errors")[0].name == found.table("confident_errors")[0].name


def test_a_method_that_fails_is_left_out_everywhere():
    class Fragile(Calibrator):
        def __init__(self, input="logits"):  # noqa: A002
            self.input = input

        def fit_chain(self, logits, labels, weight):
            if len(labels) == 90:
                raise ValueError("too   few")
            return Chain()

    runs = [*make_runs(seeds=(1,), n=60), Run(make_rows(90, 0), make_rows(60, 1), "a", "late")]
    found = compare_many(runs, [Fragile(), "ts"], metrics=["log_loss"])
    assert found.methods == ["none", "ts"]
    assert found.failed == {"Fragile": "a, late, seed 0: ValueError: too few"}
    assert all(set(run.values["log_loss"]) == {"none", "ts"} for run in found.runs)
    with pytest.raises(ParameterError, match=r"methods that can be fitted. Got Fragile: a, late"):
        compare_many(runs, [Fragile()], metrics=["log_loss"])


def test_one_run_has_values_and_no_intervals(runs):
    found = compare_many(runs[:1], ["ts"], metrics=["log_loss"])
    assert [row.difference for row in found.table()] == [None, None]
    assert {row.p_value for row in found.table()} == {None}
    assert rank_sentence(found) == ""
    assert "one network" in sentence(found)
    assert found.scope == "One network says nothing of others: no difference can be told from chance."
    page = render(found)
    assert "2 methods" in page
    assert "1 network on 1 data set" in page
    assert "1 networks" not in page
    assert '<figure id="fig-differences' not in render(found)
    with pytest.raises(ValueError, match="two networks and two methods"):
        found.plot()


def test_probabilities_two_classes_and_other_orders_of_columns():
    logits = make_rows(80, 0, n_classes=2)
    p = np.exp(log_softmax(logits.values))
    of_p = Predictions.from_probabilities(p, logits.labels, class_names=["no", "yes"])
    swapped = Predictions.from_probabilities(p[:, ::-1], 1 - logits.labels, class_names=["yes", "no"])
    straight = compare_many([Run(of_p, of_p)], ["ts"], metrics=["log_loss", "roc_auc"])
    crossed = compare_many([Run(of_p, swapped)], ["ts"], metrics=["log_loss", "roc_auc"])
    assert straight.runs[0].values["log_loss"] == pytest.approx(crossed.runs[0].values["log_loss"])
    assert list(compare_many([Run(logits, logits)]).methods)[1:3] == ["auto", "logistic"]


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"against": "fts"}, "'against' of compare_many must be one of 'none', 'ts'"),
        ({"unit": "seed"}, "'unit' of compare_many must be one of 'both'"),
        ({"metrics": []}, "at least one metric"),
        ({"metrics": ["roc_auc"]}, "roc_auc of a, u, which is of 3 classes"),
        ({"level": 1.0}, "'level' of compare_many"),
        ({"n_draws": 0}, "'n_draws' of compare_many"),
        ({"seed": -1}, "'seed' of compare_many must be an integer of at least 0"),
    ],
)
def test_bad_arguments_are_refused_before_the_fits(monkeypatch, runs, asked, text):
    monkeypatch.setattr(TemperatureScaling, "fit", lambda *_, **__: pytest.fail("fitted in vain"))
    with pytest.raises(ParameterError) as raised:
        compare_many(runs[:2], ["ts"], **asked)
    assert text in str(raised.value)


def test_runs_that_cannot_be_compared_are_refused(runs):
    with pytest.raises(ParameterError, match=r"differ in data set, network or seed\. Got two of a, u, 1"):
        compare_many([runs[0], runs[0]], ["ts"])

    def repeated():
        yield runs[0]
        yield runs[0]
        raise AssertionError("read on after the repetition")

    with pytest.raises(ParameterError, match="Got two of a, u, 1"):
        compare_many(repeated(), ["ts"])
    with pytest.raises(ParameterError, match="one with str"):
        compare_many([runs[0], "x.npz"], ["ts"])
    with pytest.raises(ParameterError, match=r"a list of Run\. Got one with tuple"):
        compare_many([(runs[0].validation, runs[0].test)], ["ts"])
    with pytest.raises(ParameterError, match="at least one run"):
        compare_many(iter([]), ["ts"])
    two = Run(make_rows(50, 0, n_classes=2), make_rows(50, 1, n_classes=2), network="two")
    with pytest.raises(ParameterError, match="'methods' of compare_many must be named"):
        compare_many([runs[0], two])


def test_runs_are_taken_one_after_the_other(runs):
    """A generator's runs need not all be in memory."""
    alive = []

    def one_by_one():
        for i in range(3):
            alive.append(i)
            yield runs[2 * i]

    seen = []
    compare_many(one_by_one(), ["ts"], metrics=["log_loss"], progress=lambda *step: seen.append((len(alive), step[2])))
    assert [count for count, _ in seen[:3]] == [1, 2, 3]
    assert seen[0][1] == "a, u, seed 1"


def test_a_damaged_file_is_refused(found, tmp_path):
    data = found.to_dict()
    for change, text in (
        ({"against": "fts"}, "must hold 'fts'"),
        ({"unit": "day"}, "'unit' must be one of both, dataset"),
        ({"level": 1.0}, "'level' lie between 0 and 1"),
        ({"methods": ["none", "ts", "vs", "lost"]}, "each have a title"),
        ({"runs": []}, "must have runs, metrics and methods"),
        ({"runs": [{**data["runs"][0], "by_chance": {}}]}, "the 'ece' of every method"),
        ({"runs": [{**data["runs"][0], "values": {}}]}, "the 'log_loss' of every method"),
        ({"version": 9}, "version 9 is not known"),
    ):
        (tmp_path / "many.json").write_text(json.dumps({**data, **change}))
        with pytest.raises(FormatError, match=text):
            load_many(tmp_path / "many.json")
    assert ManyComparison.from_dict(json.loads(json.dumps(data))) == found


def test_the_table_for_latex_is_whole_and_marks_the_best(found):
    lines = found.to_latex().splitlines()
    assert (lines[1], lines[-2]) == (r"\toprule", r"\bottomrule")
    rows = [line for line in lines if line.endswith(r"\\")]
    assert {line.count("&") for line in rows} == {6}
    best = found.table("log_loss")[0]
    (line,) = [line for line in rows if line.startswith(f"{best.name} ")]
    assert rf"\textbf{{{best.mean.mean:.4f} $\pm$ {best.mean.sd:.4f}}}" in line
    assert line.count(r"$^\dagger$") == sum(
        row.p_value is not None and row.p_value <= 0.05
        for metric in found.metrics
        for row in found.table(metric.name)
        if row.name == best.name
    )
    networks = found.to_latex(["ece"], networks=True)
    assert networks.count(r"\textbf{") >= 6
    assert networks.count(r" \\") == 7
    assert not set("±–%_") & set(networks.replace(r"\_", "").replace(r"\%", ""))


def test_the_page_has_every_metric_and_every_network(found, tmp_path):
    write_report(found, tmp_path / "report.html", notes="Trained in *May*.", title="ours & theirs")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Calibration of ours &amp; theirs" in text
    assert "<em>May</em>" in text
    for metric in found.metrics:
        assert f'<section id="metric-{metric.name}"' in text
        assert text.count(f'id="fig-differences-{metric.name}"') == 1
    for row in networks_table(found):
        assert f"<td>{row['network']}</td>" in text
        assert f"<td>{row['ts']}</td>" in text
    assert found.scope in text
    with pytest.raises(ParameterError, match="'require' of render must be left out"):
        render(found, require=["ece<1%"])


def test_figures_for_papers(found, tmp_path):
    figure = found.plot("ece")
    for ending in ("pdf", "svg"):
        figure.savefig(tmp_path / f"figure.{ending}")
        assert (tmp_path / f"figure.{ending}").stat().st_size > 2000
    left, right = figure.axes
    assert left.get_xlabel() == "ECE less that of none (%)"
    assert [label.get_text() for label in left.get_yticklabels()] == [
        row.name for row in found.table("ece") if row.name != "none"
    ]
    assert len(right.get_yticklabels()) == 3


@pytest.mark.parametrize("make", [lambda pair: {"net": pair}, lambda pair: iter([pair])])
def test_what_are_no_runs_is_refused(make):
    rows = Predictions.from_probabilities([0.2, 0.9], [0, 1])
    with pytest.raises(ParameterError, match="'runs' of compare_many must be a list of Run"):
        compare_many(make((rows, rows)), ["ts"])


def test_runs_that_share_rows_are_named(tmp_path):
    """Test rows that methods were fitted on flattered them, and data sets of the same rows were independent, unsaid."""
    runs = make_runs("ab", "u", (1,), n=60)
    first, second = (replace(run, test=runs[0].test) for run in runs)
    seen = replace(runs[0], test=runs[0].validation, network="v")
    with pytest.warns(FitWarning, match="compare_many: The ") as said:
        found = compare_many([first, second, seen], ["ts"])
    fitted, shared = remarks(found)
    assert {str(warning.message) for warning in said} >= {f"compare_many: {fitted}", f"compare_many: {shared}"}
    assert fitted.startswith("The validation and the test rows are the same: a, v, seed 1. The methods are measured on")
    assert "another data set or network: b, u, seed 1 (those of a, u, seed 1). They count as independent" in shared
    assert [run.is_fitted_on_test for run in found.runs] == [False, False, True]
    assert [run.test_rows_of for run in found.runs] == ["", "a, u, seed 1", ""]
    assert all(escape(remark) in render(found) for remark in (fitted, shared))
    found.save(tmp_path / "many.json")
    assert remarks(load_many(tmp_path / "many.json")) == [fitted, shared]
    assert remarks(compare_many(runs, ["ts"])) == []


def test_differences_of_a_signed_metric_are_said_to_be_of_its_distance(runs):
    """The column "less none" was no difference of the means beside it, and did not say what it was."""
    two = [replace(run, validation=of_two(run.validation), test=of_two(run.test)) for run in runs]
    found = compare_many(two, ["ts"], metrics=["mean_bias", "log_loss"])
    said = "Differences of mean p − rate are of its distance from 0."
    assert distance_sentence(found) == said
    assert distance_sentence(found, "log_loss") == ""
    assert render(found).count(said) == 1


def of_two(rows):
    return Predictions.from_log_odds(np.asarray(rows.values)[:, 0], np.asarray(rows.labels) == 0)
