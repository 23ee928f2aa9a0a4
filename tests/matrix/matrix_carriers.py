"""The carriers: rows of a case as arrays, tables and files of every kind."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

NUMBERS = ("int", "float", "bool")
TEXT = (*NUMBERS, "text", "decimal")
ANY = (*TEXT, "category", "bytes")
# The rows of a block, of a chunk of Dask, and of the first file of a folder.
CUT = 20
TOLERANCE = 1e-6
# Single precision has 24 bits, of which sums over rows lose a few; half precision has 11, in predictions too.
TOLERANCES = {"numpy_float32": 1e-5, "numpy_float16": 1e-3}


@dataclass(frozen=True)
class Carrier:
    """How rows are carried, and which variations it can hold."""

    name: str
    make: Any
    kinds: tuple[str, ...] = ANY
    """How labels can be stored."""
    naming: str = "none"
    """Whether columns have names: none, always, or either (files that may list the names of classes)."""
    is_file: bool = False
    is_table: bool = False
    """Whether columns other than those of classes may stand beside them."""
    is_whole: bool = False
    """Whether it holds whole numbers alone."""
    is_frame: bool = False
    """Whether it is a table in memory, which has no place for one number per row."""

    def holds(self, case, *, names_given=False):
        """Whether it can carry the rows of a case; the names of its columns may be given beside it."""
        is_named = case.columns is not None
        fits = {"none": names_given or not is_named, "always": is_named, "either": True}[self.naming]
        if case.is_one_number:
            fits = not self.is_frame
        are_probabilities = case.input.startswith("probabilit")
        if self.is_whole and (case.scores != "plain" or are_probabilities):
            fits = False
        if self.name == "numpy_float16" and are_probabilities:
            fits = False  # it holds three digits of a probability
        if self.name == "npy" and case.is_weighted:
            fits = False  # it has no place for weights
        if self.name == "folder" and case.naming in ("words3_numbers", "words2_truth", "words3_out", "words3_from1"):
            fits = False  # numbers of columns mean nothing where files have the columns in different orders
        return fits and case.stored in self.kinds and (self.is_table or not case.extra)

    @property
    def tolerance(self):
        return TOLERANCES.get(self.name, TOLERANCE)


@dataclass(frozen=True)
class InMemory:
    """Scores, labels and weights, in the way of one library."""

    X: Any
    y: Any
    weight: Any
    case: Any


@dataclass(frozen=True)
class InFile:
    """A path, and the file of the labels where that is another."""

    path: str
    labels: str | None
    case: Any


def label_array(rows):
    """The labels as an array of NumPy; categories as a Series of pandas."""
    kind = rows.case.stored
    if kind == "category":
        import pandas

        return pandas.Series(rows.labels, dtype="category")
    dtypes = {"int": np.int64, "float": np.float64, "bool": np.bool_, "bytes": np.bytes_}
    return np.array(rows.labels, dtype=dtypes.get(kind, np.str_))


def arrays_of(dtype):
    """A carrier of NumPy arrays of one dtype."""
    return lambda rows, folder: InMemory(rows.values.astype(dtype), label_array(rows), rows.weight, rows.case)


def as_lists(rows, folder):
    weight = None if rows.weight is None else rows.weight.tolist()
    return InMemory(rows.values.tolist(), list(rows.labels), weight, rows.case)


def as_torch(rows, folder):
    import torch

    weight = None if rows.weight is None else torch.from_numpy(rows.weight)
    return InMemory(torch.from_numpy(rows.values), torch.from_numpy(label_array(rows)), weight, rows.case)


def as_jax(rows, folder):
    import jax.numpy as jnp

    weight = None if rows.weight is None else jnp.asarray(rows.weight)
    return InMemory(jnp.asarray(rows.values), jnp.asarray(label_array(rows)), weight, rows.case)


def as_map(rows, folder):
    np.save(folder / "mapped.npy", rows.values)
    return InMemory(np.load(folder / "mapped.npy", mmap_mode="r"), label_array(rows), rows.weight, rows.case)


def as_dask_array(rows, folder):
    import dask.array as da

    chunks = (CUT, *rows.values.shape[1:])
    weight = None if rows.weight is None else da.from_array(rows.weight, chunks=CUT)
    labels = da.from_array(label_array(rows), chunks=CUT)
    return InMemory(da.from_array(rows.values, chunks=chunks), labels, weight, rows.case)


def as_pandas(rows, folder):
    import pandas

    labels = label_array(rows)
    y = labels if rows.case.stored == "category" else pandas.Series(labels)
    weight = None if rows.weight is None else pandas.Series(rows.weight)
    return InMemory(pandas.DataFrame(rows.values, columns=list(rows.case.columns)), y, weight, rows.case)


def as_polars(rows, folder):
    import polars

    y = polars.Series("label", rows.labels)
    if rows.case.stored == "category":
        y = polars.Series("label", list(map(str, rows.labels)), dtype=polars.Categorical)
    weight = None if rows.weight is None else polars.Series("weight", rows.weight)
    return InMemory(polars.DataFrame(rows.values, schema=list(rows.case.columns)), y, weight, rows.case)


def as_arrow(rows, folder):
    import pyarrow

    table = pyarrow.table({name: rows.values[:, i] for i, name in enumerate(rows.case.columns)})
    weight = None if rows.weight is None else pyarrow.array(rows.weight)
    return InMemory(table, arrow_labels(rows), weight, rows.case)


def as_dask_frame(rows, folder):
    import dask.dataframe as dd

    whole = as_pandas(rows, folder)
    frame = whole.X.assign(label=whole.y)
    if whole.weight is not None:
        frame = frame.assign(weight=whole.weight)
    weight = None if rows.weight is None else "weight"
    return InMemory(dd.from_pandas(frame, npartitions=min(3, len(frame))), "label", weight, rows.case)


def arrow_labels(rows):
    import pyarrow

    labels = pyarrow.array(rows.labels)
    return labels.dictionary_encode() if rows.case.stored == "category" else labels


def named_arrays(rows):
    """The arrays of files of arrays, by the names that are read without being said."""
    name = {"log-odds": "log_odds", "probability": "p"}.get(rows.case.input, rows.case.input)
    arrays = {name: rows.values, "labels": label_array(rows)}
    if rows.weight is not None:
        arrays["weight"] = rows.weight
    return arrays


def as_npz(rows, folder):
    names = {} if rows.case.columns is None else {"class_names": np.array(rows.case.columns)}
    np.savez(folder / "rows.npz", **named_arrays(rows), **names)
    return InFile(str(folder / "rows.npz"), None, rows.case)


def as_npy(rows, folder):
    np.save(folder / "rows.npy", rows.values)
    np.save(folder / "labels.npy", label_array(rows))
    return InFile(str(folder / "rows.npy"), str(folder / "labels.npy"), rows.case)


def as_safetensors(rows, folder):
    from safetensors.numpy import save_file

    save_file(named_arrays(rows), folder / "rows.safetensors")
    return InFile(str(folder / "rows.safetensors"), None, rows.case)


def as_pt(rows, folder):
    import torch

    torch.save({name: torch.from_numpy(array) for name, array in named_arrays(rows).items()}, folder / "rows.pt")
    return InFile(str(folder / "rows.pt"), None, rows.case)


def as_zarr(rows, folder):
    import zarr

    group = zarr.open_group(str(folder / "rows.zarr"), mode="w")
    for name, array in named_arrays(rows).items():
        group.create_array(name, data=array)
    return InFile(str(folder / "rows.zarr"), None, rows.case)


def table_columns(rows):
    """The columns of a table, as lists by their names: first another one, then the classes, labels and weights."""
    case = rows.case
    table = {case.extra: [float(number) for number in range(20, 20 + len(rows.labels))]} if case.extra else {}
    if case.is_one_number:
        table["log_odds" if case.input == "log-odds" else "p"] = rows.values.tolist()
    elif case.columns is None:
        table[case.input] = rows.values.tolist()
    else:
        # No whole numbers, unlike ids and ages; a number that all logits of a row share changes nothing.
        values = rows.values + 0.25 if case.input == "logits" else rows.values
        table |= {name: values[:, i].tolist() for i, name in enumerate(case.columns)}
    table["label"] = list(rows.labels)
    if rows.weight is not None:
        table["weight"] = rows.weight.tolist()
    return table


def as_text(ending, separator):
    """A carrier of a file of text."""

    def make(rows, folder):
        table = table_columns(rows)
        lines = [separator.join(table), *(separator.join(map(str, row)) for row in zip(*table.values(), strict=True))]
        path = folder / f"rows.{ending}"
        path.write_text("\n".join(lines) + "\n")
        return InFile(str(path), None, rows.case)

    return make


def as_json_lines(rows, folder):
    table = table_columns(rows)
    lines = [json.dumps(dict(zip(table, row, strict=True))) for row in zip(*table.values(), strict=True)]
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
    return InFile(str(folder / "rows.jsonl"), None, rows.case)


def arrow_table(rows):
    import pyarrow

    table = table_columns(rows)
    return pyarrow.table(table | {"label": arrow_labels(rows)})


def as_parquet(rows, folder):
    import pyarrow.parquet

    pyarrow.parquet.write_table(arrow_table(rows), folder / "rows.parquet")
    return InFile(str(folder / "rows.parquet"), None, rows.case)


def as_folder(rows, folder):
    """Two files of Parquet, of which the second has its columns in reverse order."""
    import pyarrow.parquet

    table = arrow_table(rows)
    turned = table.select(table.column_names[::-1])
    (folder / "parts").mkdir()
    pyarrow.parquet.write_table(table.slice(0, CUT), folder / "parts" / "a.parquet")
    if len(table) > CUT:
        pyarrow.parquet.write_table(turned.slice(CUT), folder / "parts" / "b.parquet")
    return InFile(str(folder / "parts"), None, rows.case)


TABLE = {"naming": "always", "is_file": True, "is_table": True}
CARRIERS = [
    *(Carrier(f"numpy_{dtype}", arrays_of(dtype)) for dtype in ("float64", "float32", "float16")),
    Carrier("numpy_int64", arrays_of("int64"), is_whole=True),
    Carrier("lists", as_lists, (*TEXT, "bytes")),
    Carrier("torch", as_torch, NUMBERS),
    Carrier("jax", as_jax, NUMBERS),
    Carrier("map", as_map, (*TEXT, "bytes")),
    Carrier("dask_array", as_dask_array, (*TEXT, "bytes")),
    Carrier("pandas", as_pandas, ANY, "always", is_frame=True),
    Carrier("polars", as_polars, ANY, "always", is_frame=True),
    Carrier("arrow", as_arrow, ANY, "always", is_frame=True),
    Carrier("dask_frame", as_dask_frame, (*TEXT, "category"), "always", is_frame=True),
    Carrier("npz", as_npz, (*TEXT, "bytes"), "either", is_file=True),
    Carrier("npy", as_npy, (*TEXT, "bytes"), is_file=True),
    Carrier("safetensors", as_safetensors, NUMBERS, is_file=True),
    Carrier("pt", as_pt, NUMBERS, is_file=True),
    Carrier("zarr", as_zarr, NUMBERS, is_file=True),
    Carrier("csv", as_text("csv", ","), TEXT, **TABLE),
    Carrier("tsv", as_text("tsv", "\t"), TEXT, **TABLE),
    Carrier("jsonl", as_json_lines, TEXT, **(TABLE | {"naming": "either"})),
    Carrier("parquet", as_parquet, ANY, **(TABLE | {"naming": "either"})),
    Carrier("folder", as_folder, ANY, **(TABLE | {"naming": "either"})),
]
