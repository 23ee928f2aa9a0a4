"""A calibrator remembers the columns that it was fitted on, and other tables are read by them."""

import json

import numpy as np
import pandas as pd
import pytest

from refocal import TemperatureScaling, load
from refocal.errors import FormatError
from refocal.io import apply, open_rows, read

RISK = np.array([0.1, 0.7, 0.3, 0.9, 0.2, 0.6])
OTHER = np.array([0.9, 0.2, 0.8, 0.1, 0.7, 0.3])
LATE = [0, 1, 1, 1, 0, 0]
LOGITS = np.random.default_rng(0).normal(size=(6, 3)).round(3)


@pytest.fixture
def fitted(tmp_path):
    """A calibrator of the column 'risk', read from a file."""
    pd.DataFrame({"risk": RISK, "late": LATE}).to_csv(tmp_path / "fit.csv", index=False)
    rows = read(tmp_path / "fit.csv", input="probabilities", values="risk", labels="late")
    TemperatureScaling(input="probabilities").fit(rows).save(tmp_path / "c.json")
    return load(tmp_path / "c.json")


def test_a_table_with_more_columns_is_read_by_those_of_the_fit(fitted, tmp_path):
    # 'prob' would be the column of scores, if the calibrator did not know better.
    pd.DataFrame({"id": range(6), "prob": OTHER, "risk": RISK}).to_csv(tmp_path / "new.csv", index=False)
    apply(fitted, tmp_path / "new.csv", tmp_path / "p.csv")
    written = pd.read_csv(tmp_path / "p.csv")
    np.testing.assert_allclose(written["p"], fitted.predict_proba(RISK)[:, 1])
    apply(fitted, tmp_path / "new.csv", tmp_path / "q.csv", values="prob")
    np.testing.assert_allclose(pd.read_csv(tmp_path / "q.csv")["p"], fitted.predict_proba(OTHER)[:, 1])


def test_a_table_without_them_is_read_as_before(fitted, tmp_path):
    pd.DataFrame({"p": OTHER}).to_csv(tmp_path / "new.csv", index=False)
    apply(fitted, tmp_path / "new.csv", tmp_path / "p.csv")
    np.testing.assert_allclose(pd.read_csv(tmp_path / "p.csv")["p"], fitted.predict_proba(OTHER)[:, 1])


def test_scores_of_another_model_are_left_alone(tmp_path):
    names = ["cat", "dog", "emu"]
    labels = np.array(names)[LOGITS.argmax(axis=1)]
    labels[0] = "emu"
    table = pd.DataFrame({f"m1_{name}*": LOGITS[:, i] for i, name in enumerate(names)})
    table.assign(label=[f"{name}*" for name in labels]).to_parquet(tmp_path / "fit.parquet")
    rows = open_rows(tmp_path / "fit.parquet", values="m1_*")
    fitted = TemperatureScaling().fit(rows)
    assert fitted.fit_report_["columns"] == ["m1_cat*", "m1_dog*", "m1_emu*"]
    others = pd.DataFrame({f"m0_{name}*": -LOGITS[:, i] for i, name in enumerate(names)})
    pd.concat([others, table], axis=1).to_csv(tmp_path / "new.csv", index=False)
    apply(fitted, tmp_path / "new.csv", tmp_path / "p.csv")
    written = pd.read_csv(tmp_path / "p.csv")
    np.testing.assert_allclose(written[["cat*", "dog*", "emu*"]], fitted.predict_proba(LOGITS), rtol=1e-6)


def test_arrays_have_no_columns_to_remember(tmp_path):
    assert "columns" not in TemperatureScaling().fit(LOGITS, [0, 1, 2, 0, 1, 2]).fit_report_
    np.savez(tmp_path / "fit.npz", logits=LOGITS, labels=[0, 1, 2, 0, 1, 2])
    assert "columns" not in TemperatureScaling().fit(read(tmp_path / "fit.npz")).fit_report_


def test_columns_of_a_file_must_be_names(fitted, tmp_path):
    data = json.loads((tmp_path / "c.json").read_text())
    data["fit"]["columns"] = [1]
    (tmp_path / "c.json").write_text(json.dumps(data))
    with pytest.raises(FormatError, match="'columns' must be names"):
        load(tmp_path / "c.json")


def test_columns_that_say_themselves_what_they_hold_are_not_remembered(tmp_path):
    pd.DataFrame({"p": RISK, "label": LATE}).to_csv(tmp_path / "fit.csv", index=False)
    assert "columns" not in TemperatureScaling(input="probabilities").fit(read(tmp_path / "fit.csv")).fit_report_
