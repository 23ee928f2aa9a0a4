"""Every command does what the Python interface does, bit for bit, and leaves the files it names."""

from __future__ import annotations

import csv
import json
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import pytest
import typer

from refocal import FocalTemperatureScaling, TemperatureScaling, load, theory
from refocal.calibrators.registry import NAMED
from refocal.cli.options import with_options
from refocal.cli.printing import result
from refocal.evaluate import compare, evaluate, load_evaluation
from refocal.io import load_sample, read

pytestmark = pytest.mark.core


@pytest.mark.slow
def test_fit_writes_what_the_api_writes(refocal, folder):
    code, out, err = refocal("fit", "val.npz", "-m", "fts", "--objective", "ece", "--tolerance", "0.01", "-o", "c.json")
    assert (code, err) == (0, "")
    rows = read("val.npz")
    FocalTemperatureScaling(objective="ece", nll_tolerance=0.01).fit(rows.values, rows.labels).save("api.json")
    assert (folder / "c.json").read_bytes() == (folder / "api.json").read_bytes()
    assert "Wrote c.json" in out


def test_fit_takes_the_class_weights_of_the_training_out(refocal):
    code, out, err = refocal("fit", "val.npz", "--class-weight", "1,2,1,0.5", "-o", "c.json")
    assert (code, err) == (0, "")
    assert "FocalTemperatureScaling(class_weight=[1.0, 2.0, 1.0, 0.5]" in out
    assert "offset = [0.0000, -0.6931, 0.0000, 0.6931]" in out
    assert refocal("fit", "val.npz", "-m", "ts", "--class-weight", "fit", "-o", "c.json")[0] == 0


def test_sets_and_intervals_are_applied(refocal, folder):
    assert refocal("fit", "val.npz", "--coverage", "0.8", "-o", "sets.json")[0] == 0
    assert load("sets.json").get_params()["conformity_score"] == "lac"
    assert "probabilities and sets of" in refocal("apply", "sets.json", "test.npz", "-o", "sets.npz")[1]
    rows = read("test.npz")
    expected = load("sets.json").predict_set(rows.values)
    np.testing.assert_array_equal(np.load("sets.npz")["sets"], expected)
    refocal("apply", "sets.json", "test.npz", "-o", "sets.csv")
    with open("sets.csv") as file:
        table = list(csv.DictReader(file))
    names = [name for name in table[0] if name not in ("set", "label")]
    assert [row["set"] for row in table] == [";".join(np.array(names)[row]) for row in expected]
    pd.DataFrame(rows.values[:20], columns=names).to_csv("rows.csv", index=False)
    assert "probabilities and sets of 20 rows" in refocal("apply", "sets.json", "rows.csv", "-o", "from_table.csv")[1]
    refocal("fit", "val.npz", "-m", "venn-abers", "-o", "va.json")
    refocal("apply", "va.json", "test.npz", "-o", "va.npz")
    lower, upper = load("va.json").predict_interval(rows.values)
    np.testing.assert_array_equal(np.load("va.npz")["lower"], lower)
    refocal("apply", "va.json", "test.npz", "-o", "va.csv")
    with open("va.csv") as file:
        assert float(next(csv.DictReader(file))[f"{names[1]}_upper"]) == upper[0, 1]
    assert "probabilities and their bounds of 20 rows" in refocal("apply", "va.json", "rows.csv", "-o", "va.tsv")[1]
    assert "probabilities and sets of 20 rows" in refocal("apply", "sets.json", "rows.csv", "-o", "sets.parquet")[1]
    found = pd.read_parquet("sets.parquet")["set"]
    assert [list(row) for row in found] == [np.array(names)[row].tolist() for row in expected[:20]]
    animals = ["dog", "cat", "emu", "ant"]
    pd.DataFrame(rows.values[:20], columns=animals).to_csv("animals.csv", index=False)
    assert refocal("apply", "sets.json", "animals.csv", "-o", "many")[0] == 0
    found = pd.read_parquet("many/animals.parquet")["set"]
    assert [list(row) for row in found] == [np.array(animals)[row].tolist() for row in expected[:20]]
    refocal("apply", "va.json", "rows.csv", "-o", "va.jsonl")
    lines = [json.loads(line) for line in Path("va.jsonl").read_text().splitlines()]
    np.testing.assert_array_equal(
        [line["upper"] for line in lines], load("va.json").predict_interval(rows.values[:20])[1]
    )
    code, _, err = refocal("fit", "val.npz", "-m", "ts", "--coverage", "0.8")
    assert code == 2
    assert "coverage" in err


@pytest.mark.slow
def test_apply_writes_what_the_api_computes(refocal, folder, monkeypatch):
    refocal("fit", "val.npz", "-m", "fts-nll")
    whole = load("calibrator.json").predict_proba(read("test.npz").values)
    for entries in (1 << 22, 100):
        monkeypatch.setenv("REFOCAL_BLOCK_ENTRIES", str(entries))
        assert refocal("apply", "calibrator.json", "test.npz", "-o", "probs.npz")[0] == 0
        with np.load("probs.npz") as written:
            np.testing.assert_array_equal(written["probabilities"], whole)
            assert written["probabilities"].dtype == whole.dtype
            np.testing.assert_array_equal(written["labels"], read("test.npz").labels)
    assert refocal("apply", "calibrator.json", "test.npz", "-o", "probs.npy")[0] == 0
    np.testing.assert_array_equal(np.load("probs.npy"), whole)


@pytest.mark.parametrize("ending", [".csv", ".tsv"])
def test_a_table_in_gives_a_table_out(refocal, folder, ending):
    rows = read("val.npz")
    p = np.exp(rows.values) / np.exp(rows.values).sum(axis=1, keepdims=True)
    names = ["cat", "dog", "bird", "fish, large"]
    separator = {".csv": ",", ".tsv": "\t"}[ending]
    frame = pd.DataFrame(p, columns=names).assign(label=[names[y] for y in rows.labels])
    frame.to_csv(f"p{ending}", index=False, sep=separator)
    assert refocal("fit", f"p{ending}", "--probabilities", "-m", "ts", "-o", "c.json")[0] == 0
    assert refocal("apply", "c.json", f"p{ending}", "-o", f"out{ending}")[0] == 0
    written = pd.read_csv(f"out{ending}", sep=separator, dtype=str)  # Python reads numbers to the last digit
    assert list(written) == [*names, "label"]
    assert list(written["label"]) == list(frame["label"])
    read_again = read(f"p{ending}", input="probabilities")
    np.testing.assert_array_equal(written[names].map(float), load("c.json").predict_proba(read_again.values))
    assert refocal("evaluate", f"out{ending}", "--probabilities")[0] == 0
    np.save("unnamed.npy", p)
    assert refocal("apply", "c.json", "unnamed.npy", "-o", f"out{ending}")[0] == 0
    assert list(pd.read_csv(f"out{ending}", sep=separator)) == names


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_apply_to_the_sample_is_bit_for_bit(refocal, dtype):
    test = load_sample("cifar10-focal3").test.take(np.arange(0, 10_000, 7))
    values = test.values.astype(dtype)
    fitted = TemperatureScaling().fit(values, test.labels)
    fitted.save("c.json")
    np.save("x.npy", values)
    assert refocal("apply", "c.json", "x.npy", "-o", "p.npy")[0] == 0
    np.testing.assert_array_equal(np.load("p.npy"), fitted.predict_proba(values))


@pytest.mark.slow
def test_every_format_gives_the_same_file(refocal, folder):
    rows = read("val.npz")
    frame = pd.DataFrame(rows.values, columns=[f"logit_{i}" for i in range(4)]).assign(label=rows.labels)
    frame.to_csv("val.csv", index=False)
    frame.to_csv("val.tsv", index=False, sep="\t")
    frame.to_parquet("val.parquet")
    np.save("x.npy", rows.values)
    np.save("y.npy", rows.labels)
    files = [["val.npz"], ["val.csv"], ["val.tsv"], ["val.parquet"], ["x.npy", "--labels", "y.npy"]]
    written = set()
    for arguments in files:
        assert refocal("fit", *arguments, "-o", "c.json")[0] == 0
        written.add((folder / "c.json").read_bytes())
    assert len(written) == 1


def test_probabilities_go_round(refocal):
    refocal("fit", "val.npz", "-m", "ts")
    refocal("apply", "calibrator.json", "val.npz", "-o", "p.npz")
    code, out, _ = refocal("fit", "p.npz", "--probabilities", "-m", "ts", "-o", "again.json", "--json")
    assert code == 0
    # What is calibrated already needs no temperature.
    assert json.loads(out)["chain"][-1]["temperature"] == pytest.approx(1.0, abs=1e-6)
    assert refocal("apply", "again.json", "p.npz", "-o", "q.npz")[0] == 0
    with np.load("p.npz") as p, np.load("q.npz") as q:
        np.testing.assert_allclose(p["probabilities"], q["probabilities"], atol=1e-6)


def test_show(refocal):
    refocal("fit", "val.npz", "-m", "ts")
    code, out, _ = refocal("show", "calibrator.json")
    assert code == 0
    assert f"temperature = {load('calibrator.json').temperature_:.4f}" in out
    shown = json.loads(refocal("show", "calibrator.json", "--json")[1])
    with open("calibrator.json") as file:
        assert shown == json.load(file)


def test_evaluate(refocal):
    refocal("fit", "val.npz", "-m", "ts", "-o", "mine.json")
    code, out, _ = refocal("evaluate", "test.npz", "mine.json", "-o", "e.json", "--resamples", "20")
    assert code == 0
    found = load_evaluation("e.json")
    assert [method.name for method in found.methods] == ["none", "mine"]
    assert f"{100 * found['mine'].measures['ece'].value:.2f}" in out
    assert json.loads(refocal("evaluate", "test.npz", "--resamples", "5", "--json")[1])["chosen"] == "none"


@pytest.mark.slow
def test_compare_ranks_every_method(refocal):
    code, out, err = refocal("compare", "val.npz", "test.npz", "-o", "e.json", "--resamples", "20", "--methods", "all")
    assert (code, err) == (0, "")
    table = [re.split(r"\s{2,}", line) for line in out.splitlines()[2 : len(NAMED) + 3]]
    names = [cells[0] for cells in table]
    assert sorted(names) == sorted(["none", *NAMED])
    eces = [float(cells[3]) for cells in table]
    assert eces == sorted(eces)
    assert "Recommendation:" in out
    api = compare(read("val.npz"), read("test.npz"), "all", n_resamples=20)
    assert [m.measures for m in load_evaluation("e.json").methods] == [m.measures for m in api.methods]


def test_methods_with_commas_and_a_method_that_fails(refocal, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("no luck")

    monkeypatch.setattr(NAMED["beta"].kind, "_fit_curve", fail)
    code, out, err = refocal("compare", "val.npz", "test.npz", "-m", "ts,beta", "-m", "ets", "--resamples", "5")
    assert (code, err) == (0, "")
    assert sorted(line.split()[0] for line in out.splitlines()[2:5]) == ["ets", "none", "ts"]
    assert "beta failed and was left out: ZeroDivisionError: no luck" in out.splitlines()
    code, out, _ = refocal("compare", "val.npz", "test.npz", "-m", "ts,beta", "--resamples", "5", "--json")
    assert json.loads(out)["failed"] == {"beta": "ZeroDivisionError: no luck"}
    code, out, err = refocal("compare", "val.npz", "test.npz", "-m", "beta", "--resamples", "5")
    assert (code, out) == (1, "")
    assert "no luck" in err


def test_compare_splits_one_file(refocal):
    code, out, _ = refocal("compare", "val.npz", "-m", "ts", "--resamples", "5", "--json")
    data = json.loads(out)
    assert (code, data["n_validation"], data["n_test"]) == (0, 400, 400)


@pytest.mark.slow
def test_report_from_json_and_from_rows(refocal, folder):
    refocal("compare", "val.npz", "test.npz", "-m", "ts", "-o", "e.json", "--report", "a.html", "--resamples", "5")
    assert refocal("report", "e.json", "-o", "b.html")[0] == 0
    assert (folder / "a.html").read_text() == (folder / "b.html").read_text()
    code, out, _ = refocal("report", "val.npz", "test.npz", "-m", "ts", "--resamples", "5", "--json")
    assert (code, json.loads(out)) == (0, {"output": "report.html"})


@pytest.mark.slow
def test_the_demo_prints_the_numbers_of_its_page(refocal, folder):
    from refocal._methods import DEMO

    code, out, err = refocal("demo", "--sample", "cifar10-focal3", "--resamples", "20")
    assert (code, err) == (0, "")
    page = (folder / "report.html").read_text(encoding="utf-8")
    _, *lines = out.splitlines()
    n_methods = len(DEMO) + 1
    for line in lines[:n_methods]:
        cells = re.split(r"\s{2,}", line.strip())
        row = re.search(rf'<tr[^>]*data-method="{cells[0]}">(.*?)</tr>', page, re.S)[1]
        assert re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row) == cells
    assert lines[n_methods] in page.replace("\u00a0", " ")


def test_theory(refocal):
    code, out, _ = refocal("theory", "--gamma", "2", "--classes", "3", "--json")
    data = json.loads(out)
    assert code == 0
    assert data["confidence_threshold"] == theory.confidence_threshold(2.0)
    assert data["closest_temperature"]["temperature"] == theory.closest_temperature(2.0, 3).temperature
    text = refocal("theory", "--gamma", "2", "--classes", "3")[1]
    assert "0.2976" in text
    assert f"{theory.closest_temperature(2.0, 3).temperature:.4f}" in text
    assert json.loads(refocal("theory", "--gamma", "-0.5", "--json")[1])["confidence_threshold"] is None


@pytest.mark.parametrize(("option", "opened"), [("--open", 1), ("--no-open", 0), (None, 0)])
def test_explore_writes_the_page_and_opens_it_when_asked(refocal, folder, monkeypatch, option, opened):
    import webbrowser

    seen = []
    monkeypatch.setattr(webbrowser, "open", seen.append)
    code, out, _ = refocal("explore", "-o", "e.html", *([option] if option else []))
    assert (code, out) == (0, "Wrote e.html.\n")
    assert seen == [(folder / "e.html").as_uri()] * opened
    from refocal.explore import render_page

    assert (folder / "e.html").read_text(encoding="utf-8") == render_page()
    assert json.loads(refocal("explore", "--json")[1]) == {"output": "explore.html"}


COMMANDS = ["", "demo", "fit", "apply", "evaluate", "compare", "report", "show", "theory", "explore"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(refocal, command):
    code, out, _ = refocal(*command.split(), "--help")
    assert code == 0
    assert re.search(rf"refocal {command or 'demo'}", out.split("Example")[1])


def test_version_and_completion(refocal, monkeypatch):
    import refocal as package

    assert refocal("--version")[1].strip() == f"refocal {package.__version__}"
    from refocal.cli.options import complete_method

    assert complete_method("fts") == ["fts", "fts-nll", "fts-ece"]


def test_a_dataclass_of_options_becomes_the_options_of_a_command(capsys):
    @dataclass(frozen=True)
    class Size:
        size: Annotated[int, typer.Option("-s", "--size", help="How large.", min=2)] = 2

    def toy(
        file: Annotated[Path, typer.Argument(help="Which.")],
        *,
        how: Size,
        name: Annotated[str | None, typer.Option("--name", "--title", metavar="WORD", help="Its name.")] = None,
    ):
        """Do something.

        toy a.csv --size 3
        """
        result([str(file), how.size, name])

    toy.__annotations__["how"] = Size
    app = typer.Typer()
    app.command()(with_options(toy))
    app(["a.csv", "-s", "3", "--title", "x", "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out) == ["a.csv", 3, "x"]
    app(["a.csv"], standalone_mode=False)
    assert capsys.readouterr().out == ""
    with pytest.raises(Exception, match="2"):
        app(["a.csv", "-s", "1"], standalone_mode=False)
    app(["--help"], standalone_mode=False)
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "Its name." in shown
    assert "WORD" in shown


def named_table(file, names, order, label="label", **more):
    """The rows of val.npz as probabilities, with the columns in some order."""
    rows = read("val.npz")
    p = np.exp(rows.values) / np.exp(rows.values).sum(axis=1, keepdims=True)
    frame = pd.DataFrame(p[:, order], columns=[names[i] for i in order])
    frame.assign(**more, **{label: [names[y] for y in rows.labels]}).to_csv(file, index=False)


@pytest.mark.slow
def test_columns_are_taken_for_what_they_are_called(refocal, folder):
    names = ["dog", "cat", "emu", "ant"]
    named_table("a.csv", names, [0, 1, 2, 3])
    named_table("b.csv", names, [2, 0, 3, 1])
    assert refocal("fit", "a.csv", "--probabilities", "-m", "beta", "-o", "c.json")[0] == 0
    assert load("c.json").classes_.tolist() == names
    for file in ("a", "b"):
        assert refocal("apply", "c.json", f"{file}.csv", "-o", f"{file}-out.csv")[0] == 0
    a, b = pd.read_csv("a-out.csv"), pd.read_csv("b-out.csv")
    assert list(b) == ["emu", "dog", "ant", "cat", "label"]
    pd.testing.assert_frame_equal(a, b[list(a)])
    for command in (["evaluate", "{}.csv", "c.json"], ["compare", "a.csv", "{}.csv", "-m", "ts,beta"]):
        said = [
            json.loads(
                refocal(*(word.format(file) for word in command), "--probabilities", "--resamples", "5", "--json")[1]
            )
            for file in ("a", "b")
        ]
        losses = [[method["measures"]["log_loss"]["value"] for method in one["methods"]] for one in said]
        np.testing.assert_allclose(losses[0], losses[1], rtol=1e-12)
    assert refocal("fit", "b.csv", "--probabilities", "-m", "beta", "-o", "d.json")[0] == 0
    code, out, err = refocal("evaluate", "a.csv", "c.json", "d.json", "--probabilities", "--resamples", "5")
    assert (code, err) == (0, "")  # columns that came in another order are matched by their names
    assert sum(line.startswith(("c ", "d ")) for line in out.splitlines()) == 2
    for file in ("a", "b"):
        (folder / file).mkdir()
        pd.read_csv(f"{file}.csv").to_parquet(folder / file / "rows.parquet")
    assert refocal("fit", "a", "--probabilities", "-m", "ts", "-o", "large.json")[0] == 0
    assert load("large.json").classes_.tolist() == names
    assert refocal("apply", "large.json", "a", "-o", "probs.parquet")[0] == 0
    assert refocal("apply", "large.json", "b", "-o", "others.parquet")[0] == 0
    probs, others = (pd.read_parquet(f"{name}.parquet") for name in ("probs", "others"))
    assert list(others) == ["emu", "dog", "ant", "cat", "label"]
    pd.testing.assert_frame_equal(probs, others[list(probs)])
    said = [json.loads(refocal("evaluate", place, "large.json", "--probabilities", "--json")[1]) for place in "ab"]
    for one, other in zip(*(each["methods"] for each in said), strict=True):
        assert one["measures"]["log_loss"]["value"] == pytest.approx(other["measures"]["log_loss"]["value"], rel=1e-12)
    named_table("other.csv", ["dog", "cat", "emu", "bee"], [0, 1, 2, 3])
    code, _, err = refocal("apply", "c.json", "other.csv", "-o", "x.csv")
    assert (code, "'bee' in one of them only" in err, "--values" in err) == (1, True, False)
    assert "the same in both: dog, cat, emu, ant" in err
    code, _, err = refocal("apply", "c.json", "other.csv", "--values", "dog,cat,emu,bee", "-o", "x.csv")
    assert (code, "rename those that stand for the same class" in err, "--values" in err) == (1, True, False)
    pd.read_csv("b.csv").assign(bee=1.0).to_csv("more.csv", index=False)  # a column that is none of its classes
    assert refocal("apply", "c.json", "more.csv", "-o", "more-out.csv")[0] == 0
    pd.testing.assert_frame_equal(pd.read_csv("more-out.csv")[list(a)], a)


def test_rows_without_names_get_those_of_the_calibrator(refocal, folder):
    names = ["dog", "cat", "emu", "ant"]
    rows = read("test.npz")
    named = pd.DataFrame(rows.values, columns=names).assign(label=np.array(names)[rows.labels])
    named.to_csv("named.csv", index=False)
    np.save("rows.npy", rows.values)
    named.drop(columns=names).assign(logits=rows.values.tolist()).to_parquet("lists.parquet")
    assert refocal("fit", "named.csv", "--coverage", "0.8", "-o", "sets.json")[0] == 0
    for file in ("named.csv", "rows.npy", "lists.parquet"):
        assert refocal("apply", "sets.json", file, "-o", f"{file}.out.csv")[0] == 0
    expected = pd.read_csv("named.csv.out.csv")
    for file in ("rows.npy", "lists.parquet"):
        written = pd.read_csv(f"{file}.out.csv")
        pd.testing.assert_frame_equal(written[[*names, "set"]], expected[[*names, "set"]])


def test_columns_by_a_list_and_labels_under_another_name(refocal, folder):
    named_table("id.csv", ["dog", "cat", "emu", "ant"], [0, 1, 2, 3], id="r1")
    _, out, _ = refocal("evaluate", "id.csv", "--probabilities", "--resamples", "5")
    assert "by name; 1 of 6 columns not used: id" in out
    assert refocal("evaluate", "id.csv", "--probabilities", "--values", "dog,cat,emu,ant", "--resamples", "5")[0] == 0
    named_table("the truth.csv", ["dog", "cat", "emu", "ant"], [0, 1, 2, 3], label="truth")
    _, _, err = refocal("evaluate", "the truth.csv", "--probabilities")
    assert "no labels. It has 'dog', 'cat', 'emu', 'ant', 'truth'. Name theirs with --labels" in err
    asked = ("--probabilities", "--labels", "truth", "-m", "ts", "--resamples", "5")
    _, out, _ = refocal("compare", "the truth.csv", *asked)
    told = shlex.split(out.splitlines()[-1].removeprefix("Next: refocal "))
    assert refocal(*told)[0] == 0


def test_other_columns_are_kept_without_pyarrow_too(refocal, folder, monkeypatch):
    rng = np.random.default_rng(0)
    p, lines = rng.random(60), ["id,p,label,region"]
    lines += [f'r{i},{p[i]:.6f},{int(rng.random() < p[i])},"north, {i % 2}"' for i in range(60)]
    (folder / "one.csv").write_text("\n".join(lines) + "\n")
    assert refocal("fit", "one.csv", "--probabilities", "--values", "p", "-m", "logistic")[0] == 0
    assert refocal("apply", "calibrator.json", "one.csv", "--values", "p", "-o", "with.csv")[0] == 0
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert refocal("apply", "calibrator.json", "one.csv", "--values", "p", "-o", "without.csv")[0] == 0
    kept, plain = (
        list(csv.DictReader((folder / name).read_text().splitlines())) for name in ("with.csv", "without.csv")
    )
    assert [(row["id"], row["region"], row["label"]) for row in kept] == [
        (row["id"], row["region"], row["label"]) for row in plain
    ]
    np.testing.assert_allclose([float(row["p"]) for row in plain], [float(row["p"]) for row in kept], rtol=1e-12)


def test_decisions_are_the_same_without_pyarrow(refocal, folder, monkeypatch):
    named_table("a.csv", ["dog", "cat", "emu", "ant"], [0, 1, 2, 3])
    asked = ("decide", "a.csv", "--probabilities", "--costs", "0,1,1,1;1,0,1,1;1,1,0,1;5,5,5,0", "-o")
    assert refocal(*asked, "with.csv")[0] == 0
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        assert refocal(*asked, "without.csv")[0] == 0
    pd.testing.assert_frame_equal(pd.read_csv("with.csv"), pd.read_csv("without.csv"))
    assert set(pd.read_csv("without.csv").decision) == {"dog", "cat", "emu", "ant"}


def test_a_column_of_two_classes_is_found_beside_ids(refocal, folder):
    rows = "\n".join(f"r{i},{i / 50 + 0.005:.3f},{int(i % 3 > 0)}" for i in range(50))
    (folder / "two.csv").write_text(f"id,p,label\n{rows}\n")
    assert refocal("fit", "two.csv", "--probabilities", "-m", "logistic")[0] == 0
    assert refocal("apply", "calibrator.json", "two.csv", "-o", "p.csv")[0] == 0
    assert (folder / "p.csv").read_text().splitlines()[0].split(",")[:2] == ["id", "p"]


def test_the_next_command_of_a_fit_works_when_pasted(refocal, folder):
    rng = np.random.default_rng(0)
    p = rng.random(200)
    table = np.stack([np.arange(200), p, rng.random(200) < p], axis=1)
    np.savetxt("one.csv", table, delimiter=",", header="id,p,label", comments="", fmt=("%d", "%.6f", "%d"))
    _, out, _ = refocal("fit", "one.csv", "--probability-column", "p", "-o", "the fit.json")
    told = shlex.split(out.splitlines()[-1].partition("Next: refocal ")[2].replace("PROBABILITIES", "one.csv"))
    assert refocal(*told)[0] == 0
    assert np.load("probs.npz")["p"].shape == (200,)


@pytest.mark.slow
def test_the_words_of_an_evaluation_that_tried_nothing_and_of_labels_out_of_order(refocal, folder):
    code, out, _ = refocal("evaluate", "test.npz", "--resamples", "5")
    assert code == 0
    assert "No calibrator was tried; refocal compare" in out
    assert "need no calibration" not in out
    rows = read("val.npz")
    np.savez("wrong.npz", logits=rows.values, labels=3 - rows.labels)
    _, out, err = refocal("compare", "wrong.npz", "-m", "ts", "--resamples", "5")
    assert "No method helps: the scores predict the labels no better than guessing" in out
    assert err == ""
    _, out, err = refocal("fit", "wrong.npz", "-m", "ts", "-o", "wrong.json")
    assert "Warning: the scores predict the labels no better than guessing" in " ".join(out.split())
    assert err == ""
    assert "Warning" not in refocal("fit", "val.npz", "-m", "ts", "-o", "right.json")[1]
    _, out, _ = refocal("compare", "val.npz", "test.npz", "-m", "ts", "--resamples", "5")
    assert "no better than guessing" not in out
    assert out.splitlines()[-1] == "Next: refocal fit val.npz --method ts -o calibrator.json"


def test_requirements_are_an_exit_code(refocal, folder):
    (folder / "notes.md").write_text("Trained in **May**.")
    line = ["compare", "val.npz", "test.npz", "-m", "ts,fts", "--resamples", 2, "-o", "e.json", "--report", "r.html"]
    code, out, _ = refocal(*line, "--title", "Ours", "--notes", "notes.md", "--require", "ece<99%,log_loss<=none")
    assert code == 0
    assert out.count("passed: ") == 2
    page = (folder / "r.html").read_text(encoding="utf-8")
    assert "Calibration of Ours" in page
    assert "<strong>May</strong>" in page
    code, out, _ = refocal("report", "e.json", "--require", "ece<0.0001%")
    assert code == 3
    assert "FAILED: ECE" in out
    assert "✗ failed: ECE" in (folder / "report.html").read_text(encoding="utf-8")
    code, out, err = refocal(*line, "--require", "ecce<1")
    assert (code, out) == (2, "")
    assert "did you mean 'ece'" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("decide", "test.npz", "--costs", "0,1,1,1;1_0,0,1,1;1,1,0,1;1,1,1,0"), "--costs must be numbers"),
        (("fit", "val.npz", "--class-weight", "1,1_5,1,1"), "--class-weight must be numbers"),
        (("compare", "val.npz", "-m", "ts", "--resamples", "5", "--require", "log_loss<0_5"), "--require must be"),
    ],
)
def test_a_number_has_no_underscores(refocal, folder, arguments, words):
    code, _, err = refocal(*arguments)
    assert (code, words in err) == (2, True), err


def test_diff_refuses_another_positive_class(refocal, folder):
    rng = np.random.default_rng(3)
    p = rng.beta(2, 5, 300)
    label = np.where(rng.random(300) < p, "yes", "no")
    pd.DataFrame({"p_no": 1 - p, "p_yes": p, "label": label}).to_csv("rows.csv", index=False)
    for positive in ("yes", "no"):
        refocal("evaluate", "rows.csv", "--positive-label", positive, "--resamples", 5, "-o", f"{positive}.json")
    words = "must be an evaluation whose positive class is 'yes', as that of the old one. Got one of 'no' instead."
    for command in (("diff", "--fail-if-worse"), ("report",), ("report", "--over-time")):
        code, _, err = refocal(command[0], "yes.json", "no.json", *command[1:])
        assert "no.json: " in err
        assert (code, words in err) == (1, True)


def test_diff_and_a_report_of_several(refocal, folder):
    refocal("evaluate", "val.npz", "--resamples", 5, "-o", "a.json")
    refocal("compare", "val.npz", "test.npz", "-m", "ts", "--resamples", 5, "-o", "b.json")
    code, out, _ = refocal("diff", "a.json", "b.json", "--fail-if-worse")
    assert code == 0
    assert "better" in out
    assert refocal("diff", "b.json", "a.json", "--fail-if-worse")[0] == 3
    found = json.loads(refocal("diff", "a.json", "b.json", "--json")[1])
    assert found[0]["verdict"] == "better"
    assert refocal("report", "a.json", "b.json")[0] == 0
    out = refocal("report", "a.json", "b.json", "--require", "accuracy>1%", "-o", "c.html")[1]
    assert "passed: a.json: accuracy" in out
    assert "passed: b.json: accuracy" in out
    assert "passed: accuracy" in refocal("report", "a.json", "--require", "accuracy>1%", "-o", "c.html")[1]
    assert "2 evaluations side by side" in (folder / "report.html").read_text(encoding="utf-8")
    assert refocal("report", "a.json", "val.npz")[0] == 2


def test_diff_says_which_unit_its_intervals_rest_on(refocal, folder):
    rows = read("test.npz")
    day = np.arange(len(rows.labels)) % 20
    frame = pd.DataFrame(rows.values, columns=[f"logit_{k}" for k in range(rows.values.shape[1])])
    frame.assign(label=rows.labels, day=day).to_csv("days.csv", index=False)
    assert refocal("evaluate", "days.csv", "--clusters", "day", "-o", "days.json")[0] == 0
    assert refocal("evaluate", "test.npz", "--resamples", 5, "-o", "rows.json")[0] == 0
    code, out, _ = refocal("diff", "rows.json", "days.json")
    assert code == 0
    text = " ".join(out.split())
    assert f"{len(day):,} rows of rows.json and 20 clusters of rows (day) of days.json count as independent" in text
    assert "adjusted (Holm)" in text
    assert "each with its 95 % interval" in text
    evaluate(rows, {}, n_resamples=5, level=0.9).save("other.json")
    text = " ".join(refocal("diff", "other.json", "other.json")[1].split())
    assert "each with its 90 % interval" in text
    assert "right together in 90 % of cases" in text
    changes = json.loads(refocal("diff", "rows.json", "days.json", "--json")[1])
    assert all(0.0 <= change["p_value"] <= 1.0 for change in changes)
