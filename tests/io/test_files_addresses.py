"""Data sets in an object store: by fsspec's own in memory, and by a real S3 server where one is installed."""

from __future__ import annotations

import io
import json
import sys
from itertools import pairwise

import fsspec
import numpy as np
import pandas as pd
import pytest

from block_rows import make_rows
from refocal import TemperatureScaling
from refocal.cli.run import run
from refocal.errors import FormatError, MissingExtraError
from refocal.io import apply, open_rows

pytestmark = pytest.mark.core

LOGITS, LABELS = make_rows(2000, 3, dtype=np.float64)


def parquet(first, last):
    stream = io.BytesIO()
    frame = pd.DataFrame(LOGITS[first:last], columns=["logit_a", "logit_b", "logit_c"])
    frame.assign(label=LABELS[first:last]).to_parquet(stream)
    return stream.getvalue()


@pytest.fixture
def memory():
    store = fsspec.filesystem("memory")
    for i, (first, last) in enumerate(pairwise((0, 700, 2000))):
        store.pipe(f"/bucket/val/part{i}.parquet", parquet(first, last))
    yield store
    store.rm("/bucket", recursive=True)


@pytest.mark.slow
def test_rows_are_read_and_applied_to_where_they_are(memory, tmp_path):
    fitted = TemperatureScaling().fit(LOGITS, LABELS)
    for place in ("memory://bucket/val", "memory://bucket/val/*.parquet", "memory://bucket/val/"):
        found = TemperatureScaling().fit(open_rows(place))
        assert found.temperature_ == pytest.approx(fitted.temperature_, rel=1e-9)
    written = apply(fitted, "memory://bucket/val", tmp_path / "probs")
    assert [each.n_rows for each in written] == [700, 1300]
    assert all(each.was_there for each in apply(fitted, "memory://bucket/val", tmp_path / "probs"))
    # Another object under the same name, with as many rows, is another source.
    memory.pipe("/bucket/val/part0.parquet", parquet(1, 701))
    assert [each.was_there for each in apply(fitted, "memory://bucket/val", tmp_path / "probs")] == [False, True]


def test_what_is_not_there_is_said_in_one_line(memory, monkeypatch):
    with pytest.raises(FileNotFoundError, match="memory://bucket/test: no tables there"):
        open_rows("memory://bucket/test")
    with pytest.raises(FormatError, match="nothing://bucket: Protocol not known"):
        open_rows("nothing://bucket")
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(MissingExtraError, match=r"s3:// needs s3fs.*pip install 'refocal\[s3\]'"):
        open_rows("s3://bucket/val/*.parquet")


@pytest.mark.slow
def test_a_bucket_of_an_s3_server(tmp_path, monkeypatch, capsys):
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        endpoint = "http://{}:{}".format(*server.get_host_and_port())
        options = {"key": "k", "secret": "s", "endpoint_url": endpoint}
        store = fsspec.filesystem("s3", **options)
        store.mkdir("bucket")
        for i, (first, last) in enumerate(pairwise((0, 700, 2000))):
            store.pipe(f"bucket/val/part{i}.parquet", parquet(first, last))
        expected = TemperatureScaling().fit(LOGITS, LABELS).temperature_
        found = TemperatureScaling().fit(open_rows("s3://bucket/val", storage_options=options))
        assert found.temperature_ == pytest.approx(expected, rel=1e-9)
        for name, value in (("ACCESS_KEY_ID", "k"), ("SECRET_ACCESS_KEY", "s"), ("ENDPOINT_URL", endpoint)):
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.chdir(tmp_path)
        capsys.readouterr()  # the server has greeted
        assert run(["fit", "s3://bucket/val/*.parquet", "-m", "ts", "-o", "c.json", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["chain"][-1]["temperature"] == pytest.approx(expected, rel=1e-9)
        assert run(["evaluate", "s3://bucket/val", "c.json"]) == 0
        assert run(["apply", "c.json", "s3://bucket/val", "-o", "probs"]) == 0
        assert run(["apply", "c.json", "s3://bucket/val", "-o", "probs"]) == 0
        assert "in 2 files, 2 of them there before" in capsys.readouterr().out
        assert run(["fit", "s3://elsewhere/*.parquet", "-m", "ts"]) == 2
        assert capsys.readouterr().err == "refocal: s3://elsewhere/*.parquet: no tables there.\n"
    finally:
        server.stop()
