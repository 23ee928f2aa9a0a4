"""Downloads of the official data sets: an interrupted transfer is resumed, checked, and stored whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import http.client
import shutil
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from refocal.errors import ParameterError, RefocalError
from refocal_paper.datasets.base import DatasetNotFoundError

CHUNK = 1 << 18
ATTEMPTS = 5
TIMEOUT = 30.0  # seconds without a byte

OnBytes = Callable[[int, int, str], None]  # bytes so far, bytes in all (0: unknown), words


class DownloadError(RefocalError, OSError):
    """A file could not be had, or is not the one that was asked for."""


class Source(NamedTuple):
    """A file in the network, and what it unpacks to (empty: it is read as it is)."""

    url: str
    md5: str
    unpacked: str = ""

    @property
    def file(self) -> str:
        """The name of the file."""
        return self.url.rsplit("/", 1)[-1]


SOURCES = {
    "cifar10": Source(
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"
    ),
    "cifar100": Source(
        "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"
    ),
    "tinyimagenet": Source(
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de", "tiny-imagenet-200"
    ),
}  # fmt: skip


def download(name: str, root: Path, *, source: Source | None = None, on_bytes: OnBytes | None = None) -> Path:
    """Get a data set and return where it lies; does nothing if it is there and whole.

    `source` is one of your own, such as a mirror, instead of the official one.
    """
    if source is None and name not in SOURCES:
        words = ", ".join(repr(known) for known in SOURCES)
        raise ParameterError("name", "download", expected=f"one of {words}", got=repr(name))
    found = source or SOURCES[name]
    target = root / (found.unpacked or found.file)
    if found.unpacked and target.is_dir():
        return target
    root.mkdir(parents=True, exist_ok=True)
    archive = root / found.file
    fetch(found, archive, on_bytes)
    if found.unpacked:
        _unpack(archive, target)
        archive.unlink()
    return target


def fetch(source: Source, target: Path, on_bytes: OnBytes | None = None) -> None:
    """Get one file. What has arrived is kept in `target`.part, and the next attempt goes on from there."""
    say = on_bytes or (lambda *_: None)
    if target.is_file():
        say(0, 0, f"checking {target.name}")
        if _md5(target) != source.md5:
            raise DownloadError(f"{target}: its MD5 is not {source.md5}; remove it and download it again.")
        return
    part = target.with_name(target.name + ".part")
    trouble: object = ""
    for _ in range(ATTEMPTS):
        try:
            trouble = _transfer(source.url, part, say)
        except urllib.error.HTTPError as error:
            raise DownloadError(f"{source.url}: the server says {error.code} {error.reason}.") from error
        except (OSError, http.client.HTTPException) as error:
            if getattr(error, "filename", None) or getattr(error, "errno", None) == errno.ENOSPC:  # of the disk
                words = f"{getattr(error, 'strerror', '')}; what has arrived is kept"
                raise DownloadError(f"{part}: {words}.") from error
            trouble = getattr(error, "reason", None) or str(error) or type(error).__name__
        if not trouble:
            break
    else:
        have = part.stat().st_size if part.is_file() else 0
        again = f"{have:,} bytes are kept; the same command goes on from there"
        raise DownloadError(f"{source.url}: broke off {ATTEMPTS} times ({trouble}). {again}.")
    say(0, 0, f"checking {target.name}")
    got = _md5(part)
    if got != source.md5:
        part.unlink()
        raise DownloadError(f"{source.url}: wrong checksum, the file was not kept. MD5 {got} instead of {source.md5}.")
    part.replace(target)


def _transfer(url: str, part: Path, say: OnBytes) -> str:
    """Append what is missing to `part`; returns what went wrong, or nothing."""
    have = part.stat().st_size if part.is_file() else 0
    if not url.startswith(("http://", "https://")):
        raise ParameterError("url", "download", expected="an address of http or https", got=repr(url))
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})  # noqa: S310
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)  # noqa: S310
    except urllib.error.HTTPError as error:
        if have and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return ""  # nothing is missing; the checksum decides
        raise
    with response, part.open("ab") as file:
        if have and response.status != http.HTTPStatus.PARTIAL_CONTENT:  # a server that knows no ranges begins anew
            file.truncate(0)
            have = 0
        length = int(response.headers.get("Content-Length") or 0)
        total = have + length if length else 0
        while chunk := response.read(CHUNK):
            file.write(chunk)
            have += len(chunk)
            say(have, total, part.stem)
    return f"{have:,} of {total:,} bytes" if total and have < total else ""


def _md5(path: Path) -> str:
    """The publishers give MD5 sums: enough against a broken transfer, not against malice."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _unpack(archive: Path, target: Path) -> None:
    """Unpack a zip file beside the target and rename its folder into place."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as scratch:
        with zipfile.ZipFile(archive) as file:
            file.extractall(scratch)
        inner = Path(scratch) / target.name
        if not inner.is_dir():
            raise DatasetNotFoundError(f"{archive}: holds no folder {target.name!r}.")
        shutil.move(inner, target)
