"""Downloads, against a server on this machine that breaks off, knows ranges or does not, and lies."""

from __future__ import annotations

import hashlib
import io
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from refocal.errors import ParameterError
from refocal_paper.datasets import SOURCES, DownloadError, Source, download, fetch

CONTENT = np.random.default_rng(0).bytes(1_000_000)


class Server:
    """What the server does and what it was asked: each answer breaks off after the next of `cuts` bytes."""

    def __init__(self):
        self.content, self.ranges, self.cuts, self.asked, self.status = CONTENT, True, [], [], None

    def source(self, md5=None, **options):
        return Source(f"{self.address}/file.bin", md5 or hashlib.md5(self.content).hexdigest(), **options)  # noqa: S324


@pytest.fixture
def server(monkeypatch):
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked = self.headers.get("Range")
            state.asked.append(asked)
            start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and state.ranges else 0
            if state.status or start >= len(state.content):
                self.send_error(state.status or 416)
                return
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(state.content) - start))
            self.end_headers()
            cut = state.cuts.pop(0) if state.cuts else len(state.content)
            self.wfile.write(state.content[start : start + cut])

        def log_message(self, *_):
            pass

    web = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.address = f"http://127.0.0.1:{web.server_port}"
    thread = threading.Thread(target=web.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("no_proxy", "*")
    yield state
    web.shutdown()
    thread.join()
    web.server_close()


def test_a_file_arrives_whole(server, tmp_path):
    seen = []
    fetch(server.source(), tmp_path / "file.bin", lambda *step: seen.append(step))
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["file.bin"]
    assert seen[-2][:2] == (len(CONTENT), len(CONTENT))
    fetch(server.source(), tmp_path / "file.bin")
    assert len(server.asked) == 1


@pytest.mark.parametrize("ranges", [True, False])
def test_a_transfer_that_breaks_off_goes_on(server, tmp_path, ranges):
    server.ranges, server.cuts = ranges, [300_000, 400_000]
    fetch(server.source(), tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    # What was asked for begins where the last answer ended; a server without ranges begins anew each time.
    assert server.asked == [None, "bytes=300000-", "bytes=700000-" if ranges else "bytes=400000-"]


def test_what_has_arrived_is_kept_for_another_day(server, tmp_path):
    server.cuts = [100_000] * 5
    with pytest.raises(DownloadError, match=r"broke off 5 times .*500,000 bytes are kept; the same command goes on"):
        fetch(server.source(), tmp_path / "file.bin")
    assert [path.name for path in tmp_path.iterdir()] == ["file.bin.part"]
    fetch(server.source(), tmp_path / "file.bin")
    assert server.asked[-1] == "bytes=500000-"
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_part_that_is_whole_already(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    fetch(server.source(), tmp_path / "file.bin")
    assert [path.name for path in tmp_path.iterdir()] == ["file.bin"]


def test_a_wrong_checksum(server, tmp_path):
    with pytest.raises(DownloadError, match="wrong checksum, the file was not kept"):
        fetch(server.source(md5="0" * 32), tmp_path / "file.bin")
    assert list(tmp_path.iterdir()) == []
    # A part of another file is found out, and the next attempt begins anew.
    (tmp_path / "file.bin.part").write_bytes(b"x" * 1000)
    with pytest.raises(DownloadError, match="wrong checksum"):
        fetch(server.source(), tmp_path / "file.bin")
    fetch(server.source(), tmp_path / "file.bin")
    (tmp_path / "file.bin").write_bytes(CONTENT[:-1])
    with pytest.raises(DownloadError, match="remove it and download it again"):
        fetch(server.source(), tmp_path / "file.bin")


def test_servers_that_do_not_help(server, tmp_path):
    server.status = 404
    with pytest.raises(DownloadError, match="the server says 404 Not Found"):
        fetch(server.source(), tmp_path / "file.bin")
    assert len(server.asked) == 1
    with pytest.raises(DownloadError, match=r"broke off 5 times \(.*refused"):
        fetch(Source("http://127.0.0.1:1/file.bin", "0" * 32), tmp_path / "file.bin")
    with pytest.raises(ParameterError, match="an address of http or https"):
        fetch(Source("file:///etc/passwd", "0" * 32), tmp_path / "file.bin")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_or_closed(server, tmp_path):
    (tmp_path / "file.bin.part").symlink_to("/dev/full")
    with pytest.raises(DownloadError, match=r"file\.bin\.part: No space left on device; what has arrived is kept"):
        fetch(server.source(), tmp_path / "file.bin")
    with pytest.raises(DownloadError, match=r"nowhere/file\.bin\.part: No such file or directory"):
        fetch(server.source(), tmp_path / "nowhere" / "file.bin")
    assert len(server.asked) == 2


def test_a_zip_file_is_unpacked_and_put_in_place(server, tmp_path):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("tiny/train/n01/images/a.txt", "hello")
    server.content = packed.getvalue()
    source = server.source(unpacked="tiny")
    assert download("tinyimagenet", tmp_path / "data", source=source) == tmp_path / "data" / "tiny"
    assert (tmp_path / "data/tiny/train/n01/images/a.txt").read_text() == "hello"
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["tiny"]
    download("tinyimagenet", tmp_path / "data", source=source)
    assert len(server.asked) == 1


def test_the_official_sources():
    assert {name: source.file for name, source in SOURCES.items()} == {
        "cifar10": "cifar-10-python.tar.gz",
        "cifar100": "cifar-100-python.tar.gz",
        "tinyimagenet": "tiny-imagenet-200.zip",
    }
    with pytest.raises(ParameterError, match="'name' of download must be one of 'cifar10'"):
        download("mnist", None)
