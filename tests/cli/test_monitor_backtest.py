"""`refocal monitor --backtest`: periods of several files, columns in several orders, options that have no say."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from refocal.io import Predictions
from refocal.monitor import backtest

CLASSES = ["cat", "dog", "emu"]


def two_classes(period, n, seed, shift=0.0):
    rng = np.random.default_rng(seed)
    log_odds = 1.5 * rng.normal(size=n)
    label = (rng.random(n) < 1 / (1 + np.exp(-(log_odds + shift)))).astype(int)
    return pd.DataFrame({"day": period, "logit": log_odds, "label": label})


def report(refocal, *arguments):
    code, out, err = refocal("monitor", *arguments, "--backtest", "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def log_losses(found):
    return {result["name"]: result["path"] for result in found["results"]}


@pytest.mark.parametrize("by", ["cluster", "file name"])
def test_rows_of_one_period_in_several_files_are_one_batch(refocal, folder, by):
    days = range(1, 13)
    tables = {
        name: [two_classes(f"day{day}", n, 100 * n + day, shift) for day in days]
        for name, n, shift in (("north", 60, 0.8), ("south", 40, -0.2))
    }
    arguments = {}
    for name, parts in tables.items():
        if by == "cluster":
            pd.concat(parts).to_csv(f"{name}.csv", index=False)
            arguments[name] = [f"{name}.csv"]
            continue
        (folder / name).mkdir()
        for day, part in zip(days, parts, strict=True):
            part.to_csv(folder / name / f"day{day}.csv", index=False)
        arguments[name] = sorted(f"{name}/day{day}.csv" for day in days)  # day10 stands before day2
    options = ["--cluster", "day"] if by == "cluster" else []
    expected = backtest(
        (f"day{day}", Predictions.from_log_odds(rows["logit"].to_numpy(), rows["label"].to_numpy()))
        for day, *pair in zip(days, *tables.values(), strict=True)
        for rows in [pd.concat(pair)]
    )
    for order in (["north", "south"], ["south", "north"]):
        found = report(refocal, *(file for name in order for file in arguments[name]), *options)
        assert found["periods"] == [f"day{day}" for day in days]
        assert found["n_rows"] == [100] * 12
        for result in expected.results:
            np.testing.assert_allclose(log_losses(found)[result.name], result.path, rtol=1e-9)


def test_columns_are_matched_by_their_names_and_other_classes_are_refused(refocal, folder):
    for day in range(1, 13):
        rng = np.random.default_rng(day)
        logits = 2 * rng.normal(size=(80, 3))
        label = np.argmax(logits + np.array([1, 0, -1]) + rng.gumbel(size=logits.shape), axis=1)
        table = pd.DataFrame(logits, columns=[f"logit_{name}" for name in CLASSES]).assign(
            label=np.array(CLASSES)[label]
        )
        table.to_csv(f"same{day}.csv", index=False)
        columns = [f"logit_{name}" for name in (CLASSES[::-1] if day % 2 == 0 else CLASSES)]
        table[[*columns, "label"]].to_csv(f"moved{day}.csv", index=False)
    same, moved = (report(refocal, *(f"{name}{day}.csv" for day in range(1, 13))) for name in ("same", "moved"))
    for name, path in log_losses(same).items():
        np.testing.assert_allclose(log_losses(moved)[name], path, rtol=1e-9)
    pd.DataFrame({"logit_cat": [1.0], "logit_dog": [0.0], "logit_fox": [2.0], "label": ["cat"]}).to_csv(
        "other.csv", index=False
    )
    code, _, err = refocal("monitor", "same1.csv", "other.csv", "--backtest")
    assert code == 1
    assert "other.csv: " in err
    assert "'fox' in one of them only" in err


def test_a_day_of_negative_labels_is_read_by_the_names_of_the_first(refocal, folder):
    pd.DataFrame({"p": [0.2, 0.7], "label": ["no", "yes"]}).to_csv("day1.csv", index=False)
    pd.DataFrame({"p": [0.3, 0.1], "label": ["no", "no"]}).to_csv("day2.csv", index=False)
    (folder / "day3.csv").write_text("p,label\n")
    found = report(refocal, "day1.csv", "day2.csv", "day3.csv", "--positive-label", "yes")
    assert found["n_rows"] == [2, 2]
    keep = log_losses(found)["keep"]
    assert keep == pytest.approx([-np.log([0.8, 0.7]).mean(), -np.log([0.7, 0.9]).mean()])


def test_the_page_is_called_by_the_calibrator_in_use(refocal, folder):
    for day in range(1, 13):
        two_classes(f"day{day}", 60, day).to_csv(f"day{day}.csv", index=False)
    assert refocal("fit", "day1.csv", "-m", "logistic", "-o", "of-may.json")[0] == 0
    days = [f"day{day}.csv" for day in range(2, 13)]
    for options, title in (([], "past batches"), (["--calibrator", "of-may.json"], "of-may")):
        assert refocal("monitor", *days, "--backtest", "-o", "page.html", *options)[0] == 0
        assert f"<title>Calibration of {title}</title>" in (folder / "page.html").read_text()


@pytest.mark.parametrize(
    "given",
    [
        ("--period", "May"),
        ("--ids", "id"),
        ("--groups", "region"),
        ("--alpha", "0.1"),
        ("--merge", "other.json"),
        ("--outcomes", "came.csv"),
        ("--fail-if-alarm",),
        ("--restart",),
        ("--independent",),
    ],
)
def test_options_of_a_state_are_refused(refocal, folder, given):
    two_classes("day1", 50, 0).to_csv("day1.csv", index=False)
    code, out, err = refocal("monitor", "day1.csv", "--backtest", *given)
    assert (code, out) == (2, "")
    assert err.count(f"leave out {given[0]}.") == 1


@pytest.mark.parametrize("given", [("--delay", "2"), ("--recalibrated", "new.json")])
def test_options_of_a_backtest_need_one(refocal, folder, given):
    two_classes("day1", 50, 0).to_csv("day1.csv", index=False)
    code, _, err = refocal("monitor", "day1.csv", *given)
    assert code == 2
    assert f"{given[0]} is for --backtest" in err
    assert not (folder / "monitor.json").exists()
