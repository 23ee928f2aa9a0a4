"""Files are written whole or not at all, with the mode of any new file, and an error names the file."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from refocal._files import replace_atomically, write_atomically


def test_the_mode_is_that_of_any_new_file_and_no_thread_sees_another_umask(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "umask", None)  # which is the whole process's, so that nobody may touch it
    (tmp_path / "plain").write_text("x")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: write_atomically(tmp_path / f"f{i}", "x"), range(20)))
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {stat.S_IMODE((tmp_path / "plain").stat().st_mode)}


@pytest.mark.parametrize("stop", [KeyboardInterrupt, MemoryError, SystemExit])
def test_an_interrupt_leaves_the_old_file_and_nothing_else(stop, tmp_path):
    write_atomically(tmp_path / "c.json", "old")

    def write():
        with replace_atomically(tmp_path / "c.json") as part:
            part.write_text("ne")
            raise stop

    with pytest.raises(stop):
        write()
    assert [path.name for path in tmp_path.iterdir()] == ["c.json"]
    assert (tmp_path / "c.json").read_text() == "old"


def test_an_interrupt_while_the_file_is_made_leaves_nothing(tmp_path, monkeypatch):
    real = os.close

    def interrupted(handle):
        real(handle)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "c.json", "new")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_names_the_file(tmp_path, monkeypatch):
    def full(self, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match=r"No space left on device: .*c\.json'") as caught:
        write_atomically(tmp_path / "c.json", "new")
    assert caught.value.filename == str(tmp_path / "c.json")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_names_the_file(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        write_atomically(tmp_path / "nowhere" / "c.json", "new")
    assert caught.value.filename == str(tmp_path / "nowhere" / "c.json")


def test_what_a_killed_run_left_is_removed_by_the_next_that_writes_the_same_file(tmp_path):
    code = "import os, sys; from refocal._files import replace_atomically\n"
    code += "with replace_atomically(sys.argv[1]) as part:\n    part.write_text('half'); os.kill(os.getpid(), 9)"
    for name in ("c.json", "other.json"):
        subprocess.run([sys.executable, "-c", code, str(tmp_path / name)], check=False)  # noqa: S603
    assert len(list(tmp_path.glob(".*.part"))) == 2
    (tmp_path / ".c.json.mine.part").write_text("not of this package")
    write_atomically(tmp_path / "c.json", "new")
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left[0] == ".c.json.mine.part"
    assert left[1].startswith(".other.json.")
    assert left[2:] == ["c.json"]
    assert (tmp_path / "c.json").read_text() == "new"


def test_the_temporary_file_of_a_run_that_is_still_writing_stays(tmp_path):
    with replace_atomically(tmp_path / "c.json") as part:
        part.write_text("first")
        write_atomically(tmp_path / "c.json", "second")
        assert part.read_text() == "first"
    assert (tmp_path / "c.json").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["c.json"]


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right there that tests do not have")
def test_of_a_link_the_file_that_it_leads_to_is_replaced(tmp_path):
    (tmp_path / "shared").mkdir()
    link = tmp_path / "latest.json"
    link.symlink_to("shared/may.json")
    for content in ("first", "second"):  # the first makes the file
        write_atomically(link, content)
        assert link.is_symlink()
        assert (tmp_path / "shared" / "may.json").read_text() == content
