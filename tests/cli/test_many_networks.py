"""`refocal compare-many`, and `report` of what it wrote."""

from __future__ import annotations

import json

import numpy as np

from refocal.evaluate import load_many


def write_networks(folder, n=60):
    rng = np.random.default_rng(0)
    for network in ("res", "vit", "mlp"):
        for seed in (1, 2):
            arrays = {}
            for values, labels in (("val", "yv"), ("test", "yt")):
                logits = 1.5 * rng.normal(size=(n, 3))
                arrays[labels] = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
                arrays[values] = 2.5 * logits
            np.savez(folder / f"{network}-{seed}.npz", **arrays)


def test_many_networks_in_one_command(refocal, folder):
    write_networks(folder)
    arrays = ["--values", "test", "--labels", "yt", "--validation-values", "val", "--validation-labels", "yv"]
    files = ["-o", "many.json", "--report", "many.html", "--latex", "many.tex", "--figure", "many.svg"]
    line = ["compare-many", "{network}-{seed}.npz", "-m", "ts,vs", "--metrics", "log_loss,ece", *arrays, *files]
    code, out, err = refocal(*line)
    assert (code, err) == (0, "")
    assert "less none" in out
    assert "the 3 networks count as independent" in " ".join(out.split())
    found = load_many(folder / "many.json")
    assert (found.methods, len(found.runs), found.unit) == (["none", "ts", "vs"], 6, "run")
    assert [metric.name for metric in found.metrics] == ["log_loss", "ece"]
    assert (folder / "many.tex").read_text() == found.to_latex()
    assert '<section id="metric-ece"' in (folder / "many.html").read_text(encoding="utf-8")
    assert (folder / "many.svg").read_text(encoding="utf-8").startswith("<?xml")
    code, out, _ = refocal("compare-many", "{network}-{seed}.npz", "-m", "ts", *arrays, "--json")
    assert code == 0
    assert json.loads(out)["format"] == "refocal-many"
    code, _, _ = refocal("report", "many.json", "--title", "all of them", "-o", "again.html")
    assert code == 0
    assert "Calibration of all of them" in (folder / "again.html").read_text(encoding="utf-8")


def test_what_cannot_be_compared_is_said(refocal, folder):
    assert "no runs; give a table" in refocal("compare-many", "nothing-{seed}.npz")[2]
    assert "go together" in refocal("compare-many", "val.npz", "--validation-values", "val")[2]
    code, _, err = refocal("compare-many", "val.npz", "-m", "tts")
    assert code == 2
    assert "did you mean 'ts'" in err
    code, _, err = refocal("compare-many", "val.npz", "-m", "ts", "-o", "val.npz.json", "--latex", "table.txt")
    assert (code, "the output must end in .tex" in err) == (2, True)
    (folder / "other.json").write_text('{"format": "refocal-calibrator"}')
    code, _, err = refocal("compare-many", "val.npz", "-m", "ts", "-o", "other.json")
    assert (code, "a comparison of many networks, which is replaced" in err) == (2, True)


def test_evaluations_are_moments_in_time_only_if_said_so(refocal, folder):
    refocal("evaluate", "val.npz", "--resamples", 5, "-o", "a.json")
    refocal("evaluate", "test.npz", "--resamples", 5, "-o", "b.json")
    assert refocal("report", "a.json", "b.json")[0] == 0
    assert "What changed?" not in (folder / "report.html").read_text(encoding="utf-8")
    assert refocal("report", "a.json", "b.json", "--over-time")[0] == 0
    assert "What changed?" in (folder / "report.html").read_text(encoding="utf-8")
    code, _, err = refocal("report", "a.json", "--over-time")
    assert (code, "--over-time is for several evaluations" in err) == (2, True)


def test_runs_that_share_rows_and_signed_metrics_are_explained(refocal, folder):
    rng = np.random.default_rng(0)
    for network in ("a", "b"):
        z = rng.normal(size=60)
        np.savez(folder / f"{network}.npz", log_odds=2 * z, labels=(rng.random(60) < 1 / (1 + np.exp(-z))).astype(int))
    lines = ["validation,test,dataset", "a.npz,a.npz,A", "a.npz,b.npz,B", "b.npz,b.npz,C"]
    (folder / "runs.csv").write_text("\n".join(lines) + "\n")
    code, out, err = refocal("compare-many", "runs.csv", "-m", "ts", "--metrics", "mean_bias", "--report", "many.html")
    assert (code, err) == (0, "")
    text = " ".join(out.split())
    assert "The validation and the test rows are the same: A, a, seed 0; C, b, seed 0. The methods are measured" in text
    assert "another data set or network: C, b, seed 0 (those of B, a, seed 0). They count as independent" in text
    assert "are of its distance from 0." in text
    assert "The methods are measured on what they were fitted on" in (folder / "many.html").read_text(encoding="utf-8")


def test_an_error_about_the_contents_of_a_run_names_its_file(refocal, folder):
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(60, 3)), rng.integers(3, size=60)
    broken = logits.copy()
    broken[3, 0] = np.nan
    (folder / "runs").mkdir()
    np.savez("runs/a.npz", logits=logits, labels=labels)
    for arrays, said in (
        ({"logits": broken, "labels": labels}, "Got NaN in row 3 in runs/b.npz instead"),
        ({"logits": logits, "labels": labels + 5}, "Got labels from 5 to 7 in runs/b.npz instead"),
        ({"logits": logits, "labels": labels[1:]}, "Got shape (59,) in runs/b.npz instead"),
    ):
        np.savez("runs/b.npz", **arrays)
        code, _, err = refocal("compare-many", "runs", "-m", "ts")
        assert code == 1
        assert said in err


def test_a_folder_of_folders_of_runs_is_told_the_pattern(refocal, folder):
    (folder / "deep" / "cifar" / "net").mkdir(parents=True)
    for part in ("val", "test"):
        np.savez(f"deep/cifar/net/{part}.npz", logits=np.eye(3), labels=np.arange(3))
    err = refocal("compare-many", "deep", "-m", "ts")[2]
    assert "deep: no runs; a folder must hold files of rows, or folders of one run each" in err
    assert "give a pattern: 'deep/{dataset}/{network}/{part}.npz'" in err
