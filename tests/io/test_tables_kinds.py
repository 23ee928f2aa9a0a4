"""Kinds of values in the columns of a table: a bad first row, lists, objects and bytes."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from block_rows import make_rows
from refocal import TemperatureScaling
from refocal.errors import FormatError, LabelError
from refocal.io import open_rows, read

LOGITS, LABELS = make_rows(300, 4, dtype=np.float64)


@pytest.mark.parametrize("wrong", ["oops", "1.5", [1.0], {"a": 1}])
@pytest.mark.parametrize("name", ["logit_a", "logits", "label"])
def test_a_bad_first_row_does_not_say_what_the_other_rows_of_json_lines_hold(tmp_path, wrong, name):
    of_classes = [dict(zip(("logit_a", "logit_b", "logit_c", "logit_d"), row, strict=True)) for row in LOGITS.tolist()]
    of_lists = [{"logits": row} for row in LOGITS.tolist()]
    rows = [
        {**scores, "label": int(label)}
        for scores, label in zip(of_lists if name == "logits" else of_classes, LABELS, strict=True)
    ]
    rows[0][name] = wrong
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = "logits" if name == "logits" else "logit_*"
    found = TemperatureScaling().fit(open_rows(path, values=values, labels="label", skip_bad_rows=True))
    assert found.fit_report_["n_skipped"] == 1
    expected = TemperatureScaling().fit(LOGITS[1:], LABELS[1:])
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-9)


@pytest.mark.parametrize("ending", [".parquet", ".jsonl"])
@pytest.mark.parametrize("cell", [[1], {"a": 1}])
def test_lists_and_objects_are_no_labels_and_no_weights(tmp_path, ending, cell):
    frame = pd.DataFrame({"p": [0.25, 0.75], "label": [0, 1], "other": [cell, cell]})
    path = tmp_path / f"rows{ending}"
    frame.to_parquet(path) if ending == ".parquet" else frame.to_json(path, orient="records", lines=True)
    with pytest.raises(LabelError, match="'labels' of read must be one label for each row"):
        read(path, labels="other")
    with pytest.raises(FormatError, match="the column 'other' holds lists or objects, where one value per row"):
        read(path, weight="other")


def test_bytes_that_are_no_text_are_groups_and_no_numbers(tmp_path):
    path = tmp_path / "rows.parquet"
    pd.DataFrame({"p": [0.25, 0.75, 0.5], "label": [0, 1, 1], "id": [b"\xff\x00", b"\x01", b"\xff\x00"]}).to_parquet(
        path
    )
    assert read(path, groups=["id"]).groups["id"].tolist() == ["ff00", "\x01", "ff00"]
    with pytest.raises(FormatError, match=r"row 0 has .* in the column 'id', where a number was expected"):
        read(path, weight="id")
