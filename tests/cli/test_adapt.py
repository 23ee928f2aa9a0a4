"""`refocal adapt` and `refocal monitor --backtest`: files in, calibrators and pages out."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest

from refocal import load
from refocal.errors import InputWarning
from refocal.io import read


@pytest.fixture
def files(refocal, folder):
    rng = np.random.default_rng(0)

    def rows(n, shares, contrast=1.0):
        labels = rng.choice(3, n, p=shares)
        logits = 2.0 * np.eye(3)[labels] + rng.normal(size=(n, 3))
        table = pd.DataFrame(2.0 * contrast * logits, columns=["cat", "dog", "emu"])
        return table, np.array(["cat", "dog", "emu"])[labels]

    table, labels = rows(2000, [0.4, 0.3, 0.3])
    table.assign(label=labels).to_csv("val.csv", index=False)
    table, labels = rows(800, [0.1, 0.1, 0.8])
    table[["emu", "cat", "dog"]].to_csv("new.csv", index=False)
    rows(800, [0.3, 0.3, 0.4], contrast=0.3)[0].to_csv("faint.csv", index=False)
    assert refocal("fit", "val.csv", "-m", "ts", "-o", "c.json")[0] == 0
    return table.to_numpy()


def test_a_calibrator_is_adapted_to_rows_without_labels(refocal, files, folder):
    code, out, err = refocal(
        "adapt", "c.json", "new.csv", "--fit-rows", "val.csv", "-o", "a.json", "--report", "a.html"
    )
    assert (code, err) == (0, "")
    assert "New shares explain the rows" in out
    assert "Wrote a.json and a.html." in out
    expected, result = load("c.json").adapt(files)
    np.testing.assert_allclose(load("a.json").predict_proba(files), expected.predict_proba(files), atol=1e-3)
    assert result.shares[2] == pytest.approx(0.8, abs=0.05)
    page = (folder / "a.html").read_text(encoding="utf-8")
    assert "share of the fit" in page
    assert "may well be wrong" not in page
    code, out, _ = refocal("adapt", "c.json", "new.csv", "-o", "a.json")
    assert "was not tested: name the rows of the fit with --fit-rows" in out


def test_an_adapted_calibrator_is_adapted_like_the_one_that_was_fitted(refocal, files):
    """The shift was applied twice."""
    line = ("new.csv", "--fit-rows", "val.csv")
    assert refocal("adapt", "c.json", *line, "-o", "a.json")[0] == 0
    assert refocal("adapt", "a.json", *line, "-o", "b.json")[0] == 0
    np.testing.assert_allclose(load("b.json").predict_proba(files), load("a.json").predict_proba(files), rtol=1e-9)


def test_shares_of_the_fit_that_are_missing_are_asked_for_by_their_options(refocal, files, folder):
    made = json.loads((folder / "c.json").read_text(encoding="utf-8"))
    for name in ("class_shares", "mean_probabilities"):
        del made["fit"][name]
    (folder / "old.json").write_text(json.dumps(made), encoding="utf-8")
    code, _, err = refocal("adapt", "old.json", "new.csv", "-o", "a.json")
    assert (code, "Give --shares-of-fit or --fit-rows: this calibrator does not know" in err) == (2, True)
    assert refocal("adapt", "old.json", "new.csv", "--fit-rows", "val.csv", "-o", "a.json")[0] == 0


def test_rows_of_a_weighted_fit_without_its_weights_are_said(refocal, files):
    table = pd.read_csv("val.csv")
    table.assign(w=np.where(table["label"] == "emu", 0.5, 1.0)).to_csv("weighted.csv", index=False)
    assert refocal("fit", "weighted.csv", "--weights", "w", "-m", "ts", "-o", "w.json")[0] == 0
    line = ("adapt", "w.json", "new.csv", "--fit-rows", "weighted.csv", "-o", "a.json")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        without, with_weights, without_rows = refocal(*line), refocal(*line, "--weights", "w"), refocal(*line[:3])
    said = "weighted.csv: the calibrator was fitted with weights, and these rows have none"
    assert f"Warning: {said}" in without[1]
    assert "with --weights" in without[1]
    assert "Warning" not in with_weights[1] + without_rows[1]
    fitted = load("w.json")
    with pytest.warns(InputWarning, match="adapt: 'fit_rows': the calibrator was fitted with weights"):
        fitted.adapt(files, fit_rows=read("val.csv", classes=fitted.classes_))


def test_given_shares_are_not_tested_and_options_about_rows_need_rows(refocal, files):
    shares = ("--shares", "0.1,0.1,0.8", "-o", "k.json")
    for more in ((), ("--fit-rows", "val.csv")):
        code, out, _ = refocal("adapt", "c.json", "new.csv", *shares, *more)
        assert code == 0
        assert "Whether the given shares explain the rows was not tested." in out
        assert "--fit-rows" not in out
    code, _, err = refocal("adapt", "c.json", *shares, "--values", "no_such_*", "--ignore-index", "7")
    assert (code, "--values, --ignore-index: for rows, of which none are given" in err) == (2, True)
    assert refocal("adapt", "c.json", *shares)[0] == 0


def test_columns_of_the_rows_of_the_fit_may_be_missing_in_new_rows(refocal, files, folder):
    """Their labels are what new rows are without."""
    expected = json.loads(refocal("adapt", "c.json", "new.csv", "--fit-rows", "val.csv", "--json")[1])
    table = pd.read_csv("val.csv")
    table.rename(columns={"label": "truth"}).to_csv("named.csv", index=False)
    np.savez("v.npz", logits=table[["cat", "dog", "emu"]])
    np.save("truth.npy", table["label"].to_numpy(dtype=str))
    for rows, labels in (("named.csv", "truth"), ("v.npz", "truth.npy")):
        code, out, err = refocal("adapt", "c.json", "new.csv", "--fit-rows", rows, "--labels", labels, "--json")
        assert (code, err) == (0, "")
        assert json.loads(out)["shares"] == pytest.approx(expected["shares"])
    code, _, err = refocal("adapt", "c.json", "new.csv", "--labels", "truth")
    assert (code, "no column 'truth'" in err) == (1, True)


def test_weights_of_the_fit_say_what_its_shares_were(refocal, folder):
    """Half of its rows are of class 1, which stand for 5 %: to these rows nothing has changed."""
    rng = np.random.default_rng(0)

    def rows(n, share):
        labels = (rng.random(n) < share).astype(int)
        return pd.DataFrame({"logit": 2.0 * rng.normal(2.0 * labels - 1.0), "label": labels})

    drawn = rows(6000, 0.5)
    drawn.assign(w=np.where(drawn.label == 1, 0.05, 0.95)).to_csv("drawn.csv", index=False)
    rows(6000, 0.05)[["logit"]].to_csv("new.csv", index=False)
    assert refocal("fit", "drawn.csv", "-m", "logistic", "--weights", "w", "-o", "w.json")[0] == 0
    weighted = ("--fit-rows", "drawn.csv", "--weights", "w", "-o", "a.json")
    code, out, err = refocal("adapt", "w.json", "new.csv", *weighted, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["shares_of_fit"] == pytest.approx([0.95, 0.05], abs=0.005)
    assert found["shares"] == pytest.approx([0.95, 0.05], abs=0.01)
    pd.read_csv("new.csv").assign(w=2.0).to_csv("new.csv", index=False)
    again = json.loads(refocal("adapt", "w.json", "new.csv", *weighted, "--json")[1])
    assert again["shares"] == pytest.approx(found["shares"])


def test_rows_of_the_same_shares_change_nothing(refocal, files, folder):
    code, out, _ = refocal("adapt", "c.json", "val.csv", "-o", "s.json", "--report", "s.html")
    assert code == 0
    assert "no evidence of other shares" in out
    assert "Wrote s.json and s.html." in out
    np.testing.assert_array_equal(load("s.json").predict_proba(files), load("c.json").predict_proba(files))
    assert "no evidence of other shares" in (folder / "s.html").read_text(encoding="utf-8")


def test_other_changes_are_refused(refocal, files, folder):
    line = ("adapt", "c.json", "faint.csv", "--fit-rows", "val.csv", "-o", "n.json", "--report", "n.html")
    code, out, _ = refocal(*line)
    assert code == 3
    assert "Not adapted" in out
    assert "add --force" in out
    assert not (folder / "n.json").exists()
    page = (folder / "n.html").read_text(encoding="utf-8")
    # What to expect was stated under a heading that said it does not hold.
    assert "to be expected if the probabilities are right on these rows" in page
    assert "something else than the shares has changed, so that they may well be wrong" in page
    code, out, _ = refocal(*line, "--force")
    assert code == 0
    assert "may well be wrong" in (folder / "n.html").read_text(encoding="utf-8")
    assert "New shares do not explain the rows" in out


def test_known_shares_need_no_rows(refocal, files):
    for shares in ("0.7,0.2,0.1", "dog=0.2,cat=0.7,emu=0.1"):
        assert refocal("adapt", "c.json", "--shares", shares, "-o", "s.json")[0] == 0
        expected, _ = load("c.json").adapt(shares=[0.7, 0.2, 0.1])
        np.testing.assert_allclose(load("s.json").predict_proba(files), expected.predict_proba(files), rtol=1e-9)
    out = refocal("adapt", "c.json", "--shares", "0.7,0.2,0.1", "-o", "s.json", "--json")[1]
    assert json.loads(out)["shares"] == pytest.approx([0.7, 0.2, 0.1])
    for arguments, words in (
        ((), "Give rows without labels, or the new shares"),
        (("--shares", "a lot"), "--shares must be numbers"),
        (("--shares", "cat=0.5,dog=0.2,emu=0.1,cat=0.7"), "each once"),
        (("--shares", "0.5,0.5"), "3 numbers"),
        (("new.csv", "-o", "new.json", "--report", "new.txt"), "must end in .html"),
    ):
        code, _, err = refocal("adapt", "c.json", *arguments)
        assert code in (1, 2)
        assert words in err


def test_policies_are_compared_on_past_batches(refocal, folder):
    rng = np.random.default_rng(1)
    log_odds = rng.normal(-1.0, 1.0, 6000).round(6)
    day = np.repeat(np.arange(1, 31), 200)
    y = (rng.random(6000) < 1 / (1 + np.exp(-log_odds - np.where(day > 5, 1.0, 0.0)))).astype(int)
    table = pd.DataFrame({"log_odds": log_odds, "label": y, "day": [f"day{each}" for each in day]})
    table.to_csv("year.csv", index=False)
    table[:1000].to_csv("first.csv", index=False)
    assert refocal("fit", "first.csv", "--values", "log_odds", "-m", "logistic", "-o", "c.json")[0] == 0
    options = ("--cluster", "day", "--calibrator", "c.json", "--values", "log_odds", "--backtest")
    code, out, err = refocal("monitor", "year.csv", *options, "-o", "b.html", "--recalibrated", "r.json")
    assert (code, err) == (0, "")
    assert "(recommended)" in out
    assert "Wrote b.html." in out
    assert not (folder / "monitor.json").exists()
    shift = np.diff(load("r.json").predict_log_proba(log_odds) - load("c.json").predict_log_proba(log_odds), axis=1)
    assert shift.mean() == pytest.approx(1.0, abs=0.3)
    found = json.loads(refocal("monitor", "year.csv", *options, "--json")[1])
    assert found["periods"][:2] == ["day1", "day2"]
    assert found["recommended"] != "keep"
    assert refocal("monitor", "--backtest")[0] == 2
