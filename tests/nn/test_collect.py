"""Collecting logits from models of every habit, and fitting on tensors where they are."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from refocal import FocalTemperatureScaling, TemperatureScaling
from refocal.calibrators.fitted import focal_point
from refocal.errors import DataError, LabelError, ParameterError, ShapeError
from refocal.io import MultiLabelPredictions, Predictions, read
from refocal.nn import collect, collect_logits


class Wrapped(nn.Module):
    """A model that returns its logits in the given way."""

    def __init__(self, wrap):
        super().__init__()
        self.inner, self.wrap = nn.Linear(4, 3), wrap

    def forward(self, features):
        return self.wrap(self.inner(features))


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrap",
    [lambda x: x, lambda x: {"loss": None, "logits": x}, lambda x: SimpleNamespace(logits=x), lambda x: (x, "more")],
)
def test_logits_are_found_in_every_kind_of_output(wrap):
    torch.manual_seed(0)
    x, y = torch.randn(10, 4), torch.randint(3, (10,))
    model = Wrapped(wrap)
    want = model.inner(x).detach()
    pairs = collect_logits(model, DataLoader(TensorDataset(x, y), batch_size=4))
    named = collect_logits(model, [{"features": x[:5], "labels": y[:5]}, {"features": x[5:], "labels": y[5:]}])
    for found in (pairs, named):
        torch.testing.assert_close(found.logits, want)
        assert isinstance(found, Predictions)
        assert np.array_equal(found.labels, y)
        assert not found.logits.requires_grad


def test_pixels_and_tokens_become_rows_and_ignored_ones_are_left_out():
    torch.manual_seed(0)
    image, mask = torch.randn(2, 4, 3, 5), torch.randint(3, (2, 3, 5))
    mask[0, 0] = 255
    found = collect_logits(nn.Conv2d(4, 3, 1), [(image, mask)], ignore_index=255)
    assert found.logits.shape == (25, 3)
    tokens, words = torch.randn(2, 7, 4), torch.randint(3, (2, 7))
    words[:, 5:] = -100
    model = nn.Linear(4, 3)
    found = collect_logits(model, [(tokens, words)])
    torch.testing.assert_close(found.logits, model(tokens)[:, :5].reshape(-1, 3).detach())
    assert np.array_equal(found.labels, words[:, :5].reshape(-1))


def test_the_attention_mask_of_token_ids_is_not_taken_for_labels():
    """Batches (ids, mask, labels) counted the mask as labels of classes 0 and 1."""
    torch.manual_seed(0)
    ids, labels = torch.randint(9, (2, 7)), torch.randint(5, (2, 7))
    mask = torch.ones(2, 7, dtype=torch.int64)
    mask[1, 5:] = 0
    labels[1, 5:] = -100
    model = nn.Embedding(9, 5)  # its rows are the logits
    wanted = "label_key.*place of the labels.*Got batches of 3 entries, the second of zeros and ones"
    for kind in (mask, mask.bool(), mask.float()):
        with pytest.raises(ParameterError, match=wanted):
            collect_logits(model, [(ids, kind, labels)])
    in_second = collect_logits(model, [(ids, labels, mask)])
    in_third = collect_logits(model, [(ids, mask, labels)], label_key=2)
    for found in (in_second, in_third):
        assert np.array_equal(found.labels, labels[labels != -100])
        torch.testing.assert_close(found.logits, model(ids)[labels != -100].detach())
    # Zeros and ones are labels where they are said to be, or where there is nothing else.
    assert np.array_equal(collect_logits(model, [(ids, mask, labels)], label_key=1).labels, mask.ravel())
    assert np.array_equal(collect_logits(model, [(ids, mask)]).labels, mask.ravel())
    for place in (0, 3, -1):
        with pytest.raises(ParameterError, match=r"label_key.*from 1 to 2"):
            collect_logits(model, [(ids, mask, labels)], label_key=place)


def masks(n, size=(6, 5), n_classes=3, seed=0):
    """Images, and masks of which every seventh pixel has no label."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(n, 4, *size, generator=generator)
    labels = torch.randint(n_classes, (n, *size), generator=generator)
    labels.view(-1)[::7] = 255
    return images, labels


def test_labels_that_mark_no_class_are_known_unless_they_are_classes():
    images, labels = masks(2)
    labels[0, 0, 1] = -100
    model = nn.Conv2d(4, 3, 1)
    found = collect_logits(model, [(images, labels)])
    kept = (labels != 255) & (labels != -100)
    assert np.array_equal(found.labels, labels[kept])
    torch.testing.assert_close(found.logits, model(images).movedim(1, -1)[kept].detach())
    assert len(collect_logits(model, [(images, labels)], ignore_index=(255, -100, 0))) == int(
        (kept & (labels != 0)).sum()
    )
    with pytest.raises(LabelError, match=r"between 0 and 2.*labels from -100"):
        collect_logits(model, [(images, labels)], ignore_index=255)
    many = collect_logits(nn.Linear(4, 300), [(torch.randn(3, 4), torch.tensor([7, 255, -100]))])
    assert many.labels.tolist() == [7, 255]
    with pytest.raises(LabelError, match="at least one row that 'ignore_index' does not leave out"):
        collect_logits(model, [(images, torch.full_like(labels, 255))])


@pytest.mark.parametrize(
    ("wrap", "key"),
    [
        (lambda x: {"out": x, "aux": -x}, None),
        (lambda x: {"aux": -x, "main": x}, "main"),
        (lambda x: SimpleNamespace(scores=x), "scores"),
        (lambda x: (-x, x), 1),
    ],
)
def test_logits_are_found_among_other_outputs(wrap, key):
    model = Wrapped(wrap)
    x, y = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    found = collect_logits(model, [(x, y, {"path": "a.png"})], output_key=key)  # further entries are left aside
    torch.testing.assert_close(found.logits, model.inner(x).detach())


def test_an_output_that_is_not_there_is_named():
    model = Wrapped(lambda x: {"aux": x})
    batch = (torch.randn(2, 4), torch.tensor([0, 1]))
    with pytest.raises(ParameterError, match=r"'output_key' of collect_logits must be .* of 'aux'\. Got 'out'"):
        collect_logits(model, [batch], output_key="out")
    with pytest.raises(DataError, match="Got a mapping of 'aux' instead"):
        collect_logits(model, [batch])


@pytest.mark.parametrize(
    ("size", "fine", "mode"), [((3, 4), (12, 16), "bilinear"), ((2, 2, 3), (4, 4, 5), "trilinear")]
)
def test_logits_of_a_lower_resolution_are_interpolated(size, fine, mode):
    torch.manual_seed(0)
    logits, labels = torch.randn(2, 3, *size), torch.randint(3, (2, 1, *fine))
    found = collect_logits(nn.Identity(), [(logits, labels)])
    want = nn.functional.interpolate(logits, size=fine, mode=mode, align_corners=False).movedim(1, -1).reshape(-1, 3)
    torch.testing.assert_close(found.logits, want)
    assert np.array_equal(found.labels, labels.reshape(-1))
    with pytest.raises(ShapeError, match="one for each row of logits"):
        collect_logits(nn.Identity(), [(logits, labels[..., 1:2])])


@pytest.mark.parametrize(("size", "fine"), [((16, 16), (16, 16)), ((8, 8), (16, 16)), ((3, 4), (12, 16))])
def test_classes_on_the_last_axis_are_not_taken_for_pixels(size, fine):
    torch.manual_seed(0)
    logits, labels = torch.randn(2, *size, 3), torch.randint(3, (2, *fine))
    found = collect_logits(nn.Identity(), [(logits, labels)])
    first = collect_logits(nn.Identity(), [(logits.movedim(-1, 1), labels)])
    assert found.logits.shape == (labels.numel(), 3)
    torch.testing.assert_close(found.logits, first.logits)
    assert np.array_equal(found.labels, labels.reshape(-1))


def test_an_axis_of_coarse_images_that_could_be_either_must_be_said():
    torch.manual_seed(0)
    logits, labels = torch.randn(2, 8, 8, 8), torch.randint(8, (2, 16, 16))
    with pytest.raises(ParameterError, match="'class_axis' of collect_logits must be given"):
        collect_logits(nn.Identity(), [(logits, labels)])
    last = collect_logits(nn.Identity(), [(logits, labels)], class_axis=-1)
    first = collect_logits(nn.Identity(), [(logits.movedim(-1, 1), labels)], class_axis=1)
    torch.testing.assert_close(last.logits, first.logits)


@pytest.mark.parametrize("in_file", [False, True])
def test_batches_of_different_numbers_of_classes_are_refused(in_file, tmp_path):
    batches = [(torch.randn(2, n), torch.zeros(2, dtype=torch.int64)) for n in (3, 4)]
    path = tmp_path / "rows.safetensors" if in_file else None
    with pytest.raises(ShapeError, match=r"as many classes for every batch, 3 as before. Got 4 classes"):
        collect_logits(nn.Identity(), batches, path=path)


@pytest.mark.parametrize("max_rows", [None, 2])
def test_batches_of_different_dtypes_do_not_go_into_one_file(max_rows, tmp_path):
    batches = [(torch.zeros(2, 3).half(), torch.tensor([0, 1])), (torch.zeros(2, 3), torch.tensor([0, 1]))]
    settings = {"progress": False, "keep_precision": True, "max_rows": max_rows}
    path = tmp_path / "rows.safetensors"
    with pytest.raises(DataError, match=r"one dtype in every batch, torch.float16 as before. Got torch.float32"):
        collect_logits(nn.Identity(), batches, **settings, path=path)
    assert not path.exists()
    assert collect_logits(nn.Identity(), batches, **settings).logits.dtype == torch.float32


@pytest.mark.parametrize("shape", [(6,), (6, 1), (2, 1, 3, 4)])
def test_a_single_logit_is_the_log_odds_of_two_classes(shape):
    torch.manual_seed(0)
    logits, labels = torch.randn(shape), torch.randint(2, shape).float()
    labels.view(-1)[0] = 255
    for y in {labels, labels.squeeze(1) if len(shape) > 1 else labels}:
        found = collect_logits(nn.Identity(), [(logits, y)])
        torch.testing.assert_close(found.logits[:, 1], logits.reshape(-1)[1:])
        assert np.array_equal(found.labels, labels.reshape(-1)[1:])
    if len(shape) == 4:  # and at a lower resolution than its mask
        fine = torch.randint(2, (2, 1, 6, 8))
        want = nn.functional.interpolate(logits, size=(6, 8), mode="bilinear").reshape(-1)
        torch.testing.assert_close(collect_logits(nn.Identity(), [(logits, fine)]).logits[:, 1], want)


def test_labels_that_do_not_exclude_one_another():
    torch.manual_seed(0)
    logits, labels = torch.randn(5, 3, 4, 2), torch.randint(2, (5, 3, 4, 2))
    labels[0, 0, 0, 0] = -100
    labels[1, :, 2, 1] = -100  # of this pixel nothing is known
    found = collect_logits(nn.Identity(), [(logits[:2], labels[:2]), (logits[2:], labels[2:])], input="log-odds")
    assert isinstance(found, MultiLabelPredictions)
    rows, truth = logits.movedim(1, -1).reshape(-1, 3), labels.movedim(1, -1).reshape(-1, 3)
    some = (truth != -100).any(1)
    torch.testing.assert_close(found.values, rows[some])
    assert np.array_equal(found.labels, torch.where(truth == -100, -1, truth)[some])
    flat = collect_logits(nn.Identity(), [(logits[..., 0, 0], labels[..., 1, 1])], input="log-odds", max_rows=4)
    assert flat.values.shape == (4, 3)
    with pytest.raises(ShapeError, match="say input='log-odds', of one-hot labels take the argmax"):
        collect_logits(nn.Identity(), [(logits, labels)])
    with pytest.raises(LabelError, match="between 0 and 1"):
        collect_logits(nn.Identity(), [(logits, labels + 1)], input="log-odds")


@pytest.mark.parametrize("marks", [None, -100])
def test_a_label_of_minus_one_among_several_is_unknown_only_where_that_is_said(marks):
    batch = (torch.randn(3, 2), torch.tensor([[1, 0], [-1, 1], [0, -100]]))
    options = {"input": "log-odds", "progress": False}
    with pytest.raises(LabelError, match=r"between 0 and 1; -1 names no class\. Got labels from -1 to 1") as found:
        collect_logits(nn.Identity(), [batch], ignore_index=marks, **options)
    assert "ignore_index" in str(found.value)
    rows = collect_logits(nn.Identity(), [batch], ignore_index=(-1, -100), **options)
    assert rows.labels.tolist() == [[1, 0], [-1, 1], [0, -1]]


def test_a_sample_of_the_rows_depends_on_the_seed_alone_and_is_uniform():
    """Rows carry their number as a logit, so that a sample says which it took."""
    n, most = 4000, 500
    rows = torch.stack([torch.zeros(n), torch.arange(n).float()], dim=1)
    labels = torch.arange(n) % 2
    labels[::5] = -100

    def sample(batch_size, seed=0):
        loader = DataLoader(TensorDataset(rows, labels), batch_size=batch_size)
        return collect_logits(nn.Identity(), loader, max_rows=most, seed=seed)

    found = sample(64)
    numbers = found.logits[:, 1].long()
    assert len(found) == most
    assert (numbers.diff() > 0).all()
    assert np.array_equal(found.labels, labels[numbers])
    for other in (sample(7), sample(n)):
        torch.testing.assert_close(other.logits, found.logits)
    assert not torch.equal(sample(64, seed=1).logits, found.logits)
    taken = np.zeros(n)
    for seed in range(40):
        found = collect_logits(nn.Identity(), [(rows, labels)], max_rows=most, seed=seed)
        taken[found.logits[:, 1].long()] += 1
    per_tenth = taken.reshape(10, -1).sum(axis=1)  # 2,000 each are expected, with a standard deviation below 42
    assert np.abs(per_tenth - 2000).max() < 4 * 42
    assert taken[::5].sum() == 0
    assert len(collect_logits(nn.Identity(), [(rows, labels)], max_rows=10**6)) == 3200


def test_memory_is_bounded_by_the_number_of_rows_that_are_kept(monkeypatch):
    held = []
    add = collect._Rows.add
    monkeypatch.setattr(
        collect._Rows, "add", lambda self, *batch: (add(self, *batch), held.append(sum(len(p[1]) for p in self.parts)))
    )
    images, labels = masks(1, size=(40, 40))
    found = collect_logits(nn.Conv2d(4, 3, 1), [(images, labels)] * 50, max_rows=100)
    assert len(found) == 100
    assert max(held[1:]) <= 2 * 100
    with pytest.raises(ParameterError, match="'max_rows' of collect_logits must be an integer of at least 1"):
        collect_logits(nn.Conv2d(4, 3, 1), [(images, labels)], max_rows=0)


def test_an_axis_that_could_be_either_must_be_said():
    batch = (torch.randn(2, 3, 4), torch.randint(3, (2, 3)))
    with pytest.raises(ParameterError, match="'class_axis' of collect_logits must be given"):
        collect_logits(nn.Linear(4, 3), [batch])
    assert collect_logits(nn.Linear(4, 3), [batch], class_axis=-1).logits.shape == (6, 3)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_half_precision_becomes_float32(kind):
    model = nn.Linear(4, 3).to(kind)
    x, y = torch.randn(10, 4, dtype=kind), torch.randint(3, (10,))
    found = collect_logits(model, [(x, y)])
    assert found.logits.dtype == torch.float32
    torch.testing.assert_close(found.logits, model(x).detach().float())
    found = collect_logits(model, [(x, torch.arange(10) % 3)])
    assert TemperatureScaling().fit(found.logits, found.labels).temperature_ > 0


def test_the_modes_of_the_model_are_put_back_even_after_an_error():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 3))
    model.train()
    model[0].eval()
    collect_logits(model, [(torch.randn(2, 4), torch.zeros(2, dtype=torch.int64))])
    assert [part.training for part in model.modules()] == [True, False, True, True]
    with pytest.raises(ShapeError, match="one for each row of logits"):
        collect_logits(model, [(torch.randn(2, 4), torch.zeros(3, dtype=torch.int64))])
    assert model.training


def test_batches_are_counted_on_a_terminal_only(capsys, monkeypatch):
    loader = [(torch.randn(2, 4), torch.zeros(2, dtype=torch.int64))] * 3
    collect_logits(nn.Linear(4, 3), loader)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    collect_logits(nn.Linear(4, 3), loader)
    assert "batch 3 of 3" in capsys.readouterr().err
    collect_logits(nn.Linear(4, 3), loader, progress=False)
    assert capsys.readouterr().err == ""


def test_bad_batches_are_named():
    model = nn.Linear(4, 3)
    with pytest.raises(DataError, match=r"'model' of collect_logits must be a torch.nn.Module. Got a str"):
        collect_logits("model.pt", [])
    with pytest.raises(ParameterError, match=r"'class_axis' of collect_logits .* from -2 to 1. Got 5"):
        collect_logits(nn.Linear(2, 2), [(torch.zeros(2, 2), torch.zeros(2))], class_axis=5)
    with pytest.raises(DataError, match=r"'loader' of collect_logits must be batches. Got none"):
        collect_logits(model, [])
    with pytest.raises(DataError, match="Got Tensor instead"):
        collect_logits(model, [torch.randn(2, 4)])
    with pytest.raises(ParameterError, match="'label_key'"):
        collect_logits(model, [{"input": torch.randn(2, 4), "target": torch.zeros(2)}])
    with pytest.raises(DataError, match="'model' of collect_logits"):
        collect_logits(Wrapped(lambda x: x.argmax(1)), [(torch.randn(2, 4), torch.zeros(2, dtype=torch.int64))])


@pytest.mark.slow
@pytest.mark.parametrize("calibrator", [TemperatureScaling(), FocalTemperatureScaling(objective="nll")])
def test_a_fit_on_half_precision_tensors_makes_no_copy_of_them(calibrator, monkeypatch):
    """They are widened block by block."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(20_000, 50))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    tensor = torch.tensor(3.0 * logits, dtype=torch.bfloat16)  # of which NumPy has no view
    want = focal_point(calibrator.fit(tensor.double(), labels).chain_)
    sizes = []
    for name in ("cpu", "__array__", "numpy"):
        original = getattr(torch.Tensor, name)

        def watched(self, *args, original=original, **kwargs):
            sizes.append(self.numel())
            return original(self, *args, **kwargs)

        monkeypatch.setattr(torch.Tensor, name, watched)
    got = calibrator.fit(tensor, torch.tensor(labels))
    assert max(sizes) <= logits.size / 3
    assert focal_point(got.chain_) == pytest.approx(want, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("max_rows", [None, 7])
def test_logits_are_gathered_in_a_file(kind, max_rows, tmp_path):
    draw = torch.Generator().manual_seed(0)
    loader = [
        (torch.randn(2, 4, 11, generator=draw).to(kind), torch.randint(-1, 11, (2, 4), generator=draw))
        for _ in range(3)
    ]
    options = {"class_axis": -1, "ignore_index": -1, "keep_precision": True, "max_rows": max_rows, "progress": False}
    path = tmp_path / "tokens.safetensors"
    expected = collect_logits(nn.Identity(), loader, **options)
    for found in (collect_logits(nn.Identity(), loader, **options, path=path), read(path)):
        assert torch.equal(torch.as_tensor(found.values), expected.values)
        assert torch.as_tensor(found.values).dtype == kind
        np.testing.assert_array_equal(found.labels, expected.labels)
    assert torch.equal(load_file(path)["logits"], expected.values)
    assert [each.name for each in tmp_path.iterdir()] == ["tokens.safetensors"]


def test_a_file_of_logits_is_written_whole_or_not_at_all(tmp_path):
    def failing():
        yield torch.zeros(2, 3), torch.tensor([0, 1])
        raise RuntimeError("the loader broke")

    with pytest.raises(RuntimeError, match="the loader broke"):
        collect_logits(nn.Identity(), failing(), progress=False, path=tmp_path / "a.safetensors")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ParameterError, match=r"'path' of collect_logits must be the name of a file that ends in .safe"):
        collect_logits(nn.Identity(), failing(), progress=False, path=tmp_path / "a.npy")


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_causal_models_are_about_the_next_token(kind):
    logits = torch.randn(2, 5, 11, generator=torch.Generator().manual_seed(0)).to(kind)
    labels = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, -100, -100]])
    batch = {"values": logits, "labels": labels}
    model = nn.Identity()
    model.forward = lambda values: values
    found = collect_logits(model, [batch], progress=False, shift=True, class_axis=-1, keep_precision=True)
    pairs = [(n, t) for n in range(2) for t in range(4) if labels[n, t + 1] != -100]
    assert found.labels.tolist() == [int(labels[n, t + 1]) for n, t in pairs]
    assert found.values.dtype == kind
    assert torch.equal(found.values, torch.stack([logits[n, t] for n, t in pairs]))
    with pytest.raises(ParameterError, match=r"unless logits are \(N, L, C\) and labels \(N, L\)"):
        collect_logits(model, [(torch.zeros(2, 3), torch.tensor([0, 1]))], progress=False, shift=True)
