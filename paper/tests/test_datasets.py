"""Every way in which a data set may lie on the disk, made small here, read back pixel by pixel."""

from __future__ import annotations

import io
import os
import pickle
import tarfile

import numpy as np
import pytest
from PIL import Image

from refocal.errors import DataError, FormatError
from refocal_paper.datasets import DatasetNotFoundError, load_dataset, read_atlas, split_rows

RNG = np.random.default_rng(0)


def test_atlases(tmp_path):
    rng = RNG
    images = rng.integers(0, 256, size=(10_000, 2, 2, 3), dtype=np.uint8)
    atlas = np.zeros((200, 200, 3), np.uint8)
    for k, image in enumerate(images):
        row, column = divmod(k, 100)
        atlas[2 * row : 2 * row + 2, 2 * column : 2 * column + 2] = image
    folder = tmp_path / "some"
    folder.mkdir()
    for name in ("train_0", "train_1", "test"):
        Image.fromarray(atlas).save(folder / f"{name}.webp", lossless=True)
    np.testing.assert_array_equal(read_atlas(folder / "test.webp"), images)
    labels = rng.integers(0, 7, 20_000).astype(np.uint8)
    np.savez(folder / "labels.npz", train=labels, test=labels[:10_000])
    data = load_dataset("some", tmp_path)
    assert data.train.shape == (20_000, 2, 2, 3)
    assert data.n_classes == 7
    np.testing.assert_array_equal(data.train[10_000:], images)
    np.savez(folder / "labels.npz", train=labels[:100], test=labels[:10_000])
    with pytest.raises(DataError, match=r"of 100 images, as many as there are labels.*Got 20000"):
        load_dataset("some", tmp_path)


def test_splits_are_seeded_and_disjoint():
    a, b = split_rows(100, 20, 1), split_rows(100, 20, 1)
    np.testing.assert_array_equal(a.validation, b.validation)
    assert len(a.train) == 80
    assert sorted([*a.train, *a.validation]) == list(range(100))
    assert not np.array_equal(a.validation, split_rows(100, 20, 2).validation)
    with pytest.raises(DataError, match=r"fewer than 10\. Got 10"):
        split_rows(10, 10, 1)


def cifar_batch(n, key, n_classes):
    """A pickle as the official archives hold it, and the images and labels in it."""
    images = RNG.integers(0, 256, size=(n, 32, 32, 3), dtype=np.uint8)
    labels = RNG.integers(0, n_classes, n).tolist()
    labels[0] = n_classes - 1
    planes = images.transpose(0, 3, 1, 2).reshape(n, 3072)
    content = {b"data": np.ascontiguousarray(planes), key: labels, b"batch_label": b"one of many"}
    return pickle.dumps(content, protocol=2), images, labels


def write_archive(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize("place", ["archive", "archive in its folder", "unpacked"])
@pytest.mark.parametrize(
    ("name", "archive", "folder", "train", "test", "key", "n_classes"),
    [
        ("cifar10", "cifar-10-python.tar.gz", "cifar-10-batches-py", [f"data_batch_{i}" for i in range(1, 6)],
         "test_batch", b"labels", 10),
        ("cifar100", "cifar-100-python.tar.gz", "cifar-100-python", ["train"], "test", b"fine_labels", 100),
    ],
)  # fmt: skip
def test_cifar_archives(tmp_path, place, name, archive, folder, train, test, key, n_classes):
    batches = {member: cifar_batch(6, key, n_classes) for member in [*train, test]}
    if place == "unpacked":
        (tmp_path / folder).mkdir()
        for member, (content, *_) in batches.items():
            (tmp_path / folder / member).write_bytes(content)
    else:
        home = tmp_path if place == "archive" else tmp_path / name
        home.mkdir(exist_ok=True)
        write_archive(home / archive, {f"{folder}/{member}": batch[0] for member, batch in batches.items()})
    data = load_dataset(name, tmp_path)
    np.testing.assert_array_equal(data.train, np.concatenate([batches[member][1] for member in train]))
    np.testing.assert_array_equal(data.train_labels, np.concatenate([batches[member][2] for member in train]))
    np.testing.assert_array_equal(data.test, batches[test][1])
    np.testing.assert_array_equal(data.test_labels, batches[test][2])
    assert data.n_classes == n_classes


# Written by Python 2 and NumPy 1, as the official files are: {'data': a (1, 3072) array of zeros, 'fine_labels': [3]}
PYTHON_2 = (
    b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b\x87R"
    b"(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK"
    b"\x00tb\x89T\x00\x0c\x00\x00" + bytes(3072) + b"tbU\x0bfine_labelsq\x05]K\x03au."
)


def test_pickles_of_python_2(tmp_path):
    (tmp_path / "cifar-100-python").mkdir()
    for member in ("train", "test"):
        (tmp_path / "cifar-100-python" / member).write_bytes(PYTHON_2)
    data = load_dataset("cifar100", tmp_path)
    assert data.train.shape == (1, 32, 32, 3)
    assert data.train_labels.tolist() == [3]


class Hostile:
    def __init__(self, function, *arguments):
        self.what = function, arguments

    def __reduce__(self):
        return self.what


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "hostile",
    [
        lambda path: Hostile(os.system, f"touch {path}"),
        lambda path: Hostile(eval, f"open({str(path)!r}, 'w')"),
        lambda path: Hostile(np.save, str(path), np.zeros(1)),
        lambda path: Hostile(getattr, [], "append"),
        lambda path: {b"data": Hostile(open, str(path), "w"), b"fine_labels": [0]},
    ],
)
def test_a_hostile_pickle_is_refused_before_anything_runs(tmp_path, hostile, protocol):
    trap = tmp_path / "trap"
    content = pickle.dumps(hostile(trap), protocol=protocol)
    write_archive(
        tmp_path / "cifar-100-python.tar.gz", {f"cifar-100-python/{part}": content for part in ("train", "test")}
    )
    with pytest.raises(FormatError, match=r"train is not a batch of CIFAR images: it asks for .*was not run"):
        load_dataset("cifar100", tmp_path)
    assert not trap.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"", b"no pickle", pickle.dumps([1, 2]), pickle.dumps({b"fine_labels": [1]}),
        pickle.dumps({b"data": np.zeros((2, 3072)), b"fine_labels": [1, 2]}, protocol=2),
        pickle.dumps({b"data": np.zeros((2, 100), np.uint8), b"fine_labels": [1, 2]}, protocol=2),
        pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"fine_labels": "ab"}, protocol=2),
        PYTHON_2[:1000],
    ],
)  # fmt: skip
def test_what_is_no_batch_is_said_so(tmp_path, content):
    write_archive(
        tmp_path / "cifar-100-python.tar.gz", {f"cifar-100-python/{part}": content for part in ("train", "test")}
    )
    with pytest.raises(FormatError, match="is not a batch of CIFAR images"):
        load_dataset("cifar100", tmp_path)


def test_a_damaged_archive(tmp_path):
    path = tmp_path / "cifar-100-python.tar.gz"
    write_archive(path, {"cifar-100-python/train": RNG.bytes(100_000)})
    path.write_bytes(path.read_bytes()[:50_000])
    with pytest.raises(FormatError, match=r"damaged or cut short .*download it again"):
        load_dataset("cifar100", tmp_path)
    write_archive(path, {"elsewhere/train": b""})
    with pytest.raises(FormatError, match="cifar-100-python/train"):
        load_dataset("cifar100", tmp_path)


def picture(path, side=8):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = RNG.integers(0, 256, size=(side, side, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, format="png")  # lossless, whatever the name says
    return pixels


@pytest.mark.parametrize("folder", ["tiny-imagenet-200", "tinyimagenet/tiny-imagenet-200", "tinyimagenet"])
def test_tiny_imagenet(tmp_path, folder):
    home = tmp_path / folder
    train = [picture(home / f"train/{c}/images/{c}_{i}.JPEG", 64) for c in ("n01", "n02", "n03") for i in range(2)]
    test = [picture(home / f"val/images/val_{i}.JPEG", 64) for i in range(4)]
    lines = [f"val_{i}.JPEG\t{c}\t0\t0\t63\t63\n" for i, c in enumerate(("n03", "n01", "n01", "n02"))]
    (home / "val" / "val_annotations.txt").write_text("".join(lines))
    (home / "train" / "n01" / "n01_boxes.txt").write_text("")
    data = load_dataset("tinyimagenet", tmp_path)
    np.testing.assert_array_equal(data.train, train)
    np.testing.assert_array_equal(data.test, test)
    assert data.train_labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert data.test_labels.tolist() == [2, 0, 0, 1]
    (home / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn09\n")
    with pytest.raises(FormatError, match="line 1 names no class"):
        load_dataset("tinyimagenet", tmp_path)


@pytest.mark.parametrize("held_out", ["test", "val"])
def test_a_folder_of_images(tmp_path, held_out):
    home = tmp_path / "pets"
    train = [picture(home / f"train/{name}") for name in ("cat/a.png", "cat/b.PNG", "dog/a.jpg")]
    test = [picture(home / held_out / "dog" / "z.png")]
    (home / "train" / "cat" / "notes.txt").write_text("no picture")
    data = load_dataset("pets", tmp_path)
    np.testing.assert_array_equal(data.train, train)
    np.testing.assert_array_equal(data.test, test)
    assert (data.train_labels.tolist(), data.test_labels.tolist(), data.n_classes) == ([0, 0, 1], [1], 2)


def test_folders_that_do_not_fit(tmp_path):
    home = tmp_path / "pets"
    picture(home / "train/cat/a.png")
    picture(home / "test/dog/a.png")
    with pytest.raises(FormatError, match="dog: no such class"):
        load_dataset("pets", tmp_path)
    picture(home / "train/dog/a.png")
    picture(home / "train/dog/b.png", side=9)
    with pytest.raises(DataError, match=r"all of one size, 8 × 8 as a\.png; resize them first.*b\.png"):
        load_dataset("pets", tmp_path)
    (home / "train/dog/b.png").write_text("no picture")
    with pytest.raises(FormatError, match=r"b\.png: not a picture"):
        load_dataset("pets", tmp_path)
    (home / "train/dog/b.png").unlink()
    picture(home / "test/dog/a.png", side=9)
    with pytest.raises(DataError, match="of one size in train and test"):
        load_dataset("pets", tmp_path)
    (tmp_path / "empty" / "train").mkdir(parents=True)
    (tmp_path / "empty" / "test").mkdir(parents=True)
    with pytest.raises(FormatError, match="no folders, one for each class"):
        load_dataset("empty", tmp_path)


def test_atlases_that_do_not_fit(tmp_path):
    folder = tmp_path / "some"
    folder.mkdir()
    (folder / "labels.npz").write_bytes(b"nonsense")
    with pytest.raises(FormatError, match="must hold the arrays 'train' and 'test'"):
        load_dataset("some", tmp_path)
    np.savez(folder / "labels.npz", train=np.zeros(3), test=np.zeros(3))
    with pytest.raises(FormatError, match=r"but not train_0\.webp"):
        load_dataset("some", tmp_path)
    for name in ("train_0", "test"):
        picture(folder / f"{name}.webp", side=99)
    with pytest.raises(FormatError, match="a square of 100 × 100 images, not 99 × 99"):
        load_dataset("some", tmp_path)


def test_a_missing_data_set_says_where_it_was_looked_for_and_how_to_get_it(tmp_path):
    with pytest.raises(DatasetNotFoundError) as caught:
        load_dataset("cifar10", tmp_path)
    for word in ("labels.npz", "cifar-10-batches-py", "cifar-10-python.tar.gz", "refocal-paper download cifar10"):
        assert word in str(caught.value)
    with pytest.raises(DatasetNotFoundError, match=r"tiny-imagenet-200/train.*refocal-paper download tinyimagenet"):
        load_dataset("tinyimagenet", tmp_path)
    with pytest.raises(DatasetNotFoundError, match=r"pets/labels.npz.*A data set of your own is a folder"):
        load_dataset("pets", tmp_path)
