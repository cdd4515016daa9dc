"""Files that appear together."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mmsbgen.base.atomic_files import FileTransaction, place_of, write_text
from mmsbgen.base.errors import InputError


def put(text: str, *paths: Path) -> None:
    with FileTransaction() as together:
        for path in paths:
            write_text(path, text, together)


@pytest.mark.parametrize(("error", "seen"), [(KeyboardInterrupt, KeyboardInterrupt), (OSError, InputError)])
def test_what_ends_between_two_renames_leaves_no_record(tmp_path, monkeypatch, error, seen):
    """The last file tells that all are of one run; where the others may not be, it is not there."""
    first, last = tmp_path / "first", tmp_path / "last"
    put("old", first, last)
    replace, moved = os.replace, []

    def once(partial, path):
        if moved:
            raise error
        moved.append(path)
        replace(partial, path)

    monkeypatch.setattr(os, "replace", once)
    with pytest.raises(seen):
        put("new", first, last)
    assert first.read_text() == "new"
    assert os.listdir(tmp_path) == ["first"]


def test_a_block_that_fails_leaves_what_was_there(tmp_path):
    put("old", tmp_path / "first")
    with pytest.raises(InputError):
        put("new", tmp_path / "first", tmp_path / "first" / "below a file")
    assert (tmp_path / "first").read_text() == "old"
    assert os.listdir(tmp_path) == ["first"]


_WRITES = """
import sys, time
from pathlib import Path
from mmsbgen.base.atomic_files import FileTransaction, published_archive
path = Path(sys.argv[1])
with FileTransaction() as together, published_archive(path, together) as archive:
    archive.add("pi", [1.0] * 1000)
    if sys.argv[2] == "inside":
        print("writing", flush=True)
        time.sleep(60)
with FileTransaction() as together:
    with published_archive(path, together) as archive:
        archive.add("pi", [2.0] * 1000)
    print("waiting", flush=True)
    time.sleep(60)
"""


def partials(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name.startswith(".checkpoint.npz."))


def made_old(path: Path) -> None:
    long_ago = time.time() - 3600
    os.utime(path, (long_ago, long_ago), follow_symlinks=False)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["inside", "before the end of a transaction"])
def test_what_a_killed_process_leaves_is_removed_by_the_next_write(tmp_path, when):
    """While the process lives its file stays, however old it is."""
    path = tmp_path / "checkpoint.npz"
    command = [sys.executable, "-c", _WRITES, str(path), when]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() in ("writing", "waiting")
        (left,) = partials(tmp_path)
        made_old(tmp_path / left)
        write_text(path, "mine")
        assert partials(tmp_path) == [left]
        process.kill()
    write_text(path, "mine")
    assert partials(tmp_path) == []
    assert path.read_text() == "mine"


def test_only_old_temporary_files_of_the_same_name_are_removed(tmp_path):
    path = tmp_path / "checkpoint.npz"
    (tmp_path / "elsewhere").write_text("kept")
    old = tmp_path / ".checkpoint.npz.0123abcd"
    kept = [".checkpoint.npz.1123abcd", ".checkpoint.npz.backup00", ".checkpoint.npz.0123abcd.txt", ".other.0123abcd"]
    for name in (old.name, *kept):
        (tmp_path / name).write_text("part")
    for name in (old.name, *kept[1:]):
        made_old(tmp_path / name)
    (tmp_path / ".checkpoint.npz.2123abcd").mkdir()
    (tmp_path / ".checkpoint.npz.3123abcd").symlink_to(tmp_path / "elsewhere")
    for name in (".checkpoint.npz.2123abcd", ".checkpoint.npz.3123abcd", "elsewhere"):
        made_old(tmp_path / name)
    write_text(path, "new")
    assert not old.exists()
    assert {*kept, ".checkpoint.npz.2123abcd", ".checkpoint.npz.3123abcd", "elsewhere"} < set(os.listdir(tmp_path))


def test_standard_output_is_written_to(capfd):
    with place_of(Path("/dev/stdout")):
        write_text(Path("/dev/stdout"), "printed")
    assert capfd.readouterr().out == "printed"


def test_open_files_are_added_to(tmp_path):
    """As of ``2>>file`` in a shell."""
    (tmp_path / "log").write_text("before")
    with (tmp_path / "log").open("ab") as log:
        for folder in ("/dev/fd", "/proc/self/fd"):
            with place_of(path := Path(folder, str(log.fileno()))):
                write_text(path, f", {folder}")
    assert (tmp_path / "log").read_text() == "before, /dev/fd, /proc/self/fd"


def test_pipes_and_links_are_written_to_and_not_replaced(tmp_path):
    pipe, link, dangling = (tmp_path / name for name in ("pipe", "link", "dangling"))
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    link.symlink_to(tmp_path / "target")
    dangling.symlink_to(link)
    try:
        with place_of(pipe):
            write_text(pipe, "through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    for path in (dangling, link):
        with place_of(path):
            write_text(path, path.name)
        assert (tmp_path / "target").read_text() == path.name
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["dangling", "link", "pipe", "target"]


def test_a_file_system_without_locks_keeps_all(tmp_path, monkeypatch):
    path, old = tmp_path / "checkpoint.npz", tmp_path / ".checkpoint.npz.0123abcd"
    old.write_text("part")
    made_old(old)

    def without(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", without)
    write_text(path, "new")
    assert path.read_text() == "new"
    assert old.exists()


def test_a_name_that_is_too_long_is_said(tmp_path):
    for name in ("x" * 300, "x" * 250, "ä" * 130):
        with pytest.raises(InputError, match=r"cannot write .*: File name too long\. Give a shorter name\."):
            write_text(tmp_path / name, "new")
    assert os.listdir(tmp_path) == []
