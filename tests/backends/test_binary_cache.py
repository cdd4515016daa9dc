from __future__ import annotations

from pathlib import Path

from mmsbgen.backends.binary_cache import BinaryCache


def test_round_trip(tmp_path: Path) -> None:
    cache = BinaryCache(tmp_path)
    key = cache.key(["a", "b"])
    assert cache.load(key) is None
    cache.store(key, b"\0code\0", "a log, with \u00e4 and \n")
    assert cache.load(key) == (b"\0code\0", "a log, with \u00e4 and \n")
    cache.discard(key)
    assert cache.load(key) is None
    assert not list(tmp_path.glob(".draft-*"))


def test_binaries_that_are_not_whole_are_not_there(tmp_path: Path) -> None:
    cache = BinaryCache(tmp_path)
    cache.store("key", b"code", "log")
    whole = (tmp_path / "key.bin").read_bytes()
    for damaged in (*(whole[:left] for left in range(len(whole))), b"mode" + whole[4:]):
        (tmp_path / "key.bin").write_bytes(damaged)
        assert cache.load("key") is None
    (tmp_path / "key.bin").write_bytes(whole)
    assert cache.load("key") == (b"code", "log")


def test_borders_of_texts_count() -> None:
    assert BinaryCache.key(["ab", "c"]) != BinaryCache.key(["a", "bc"])
    assert BinaryCache.key(["a", "b"]) != BinaryCache.key(["b", "a"])


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = BinaryCache(tmp_path / "file" / "cache")
    cache.store("key", b"code", "")
    assert cache.load("key") is None
    cache.discard("key")


def test_the_oldest_go_first(tmp_path: Path) -> None:
    for index, name in enumerate(("old", "new")):
        BinaryCache(tmp_path).store(name, b"x" * 100, "")
        path = tmp_path / f"{name}.bin"
        stamp = 1_000_000 + index
        import os

        os.utime(path, (stamp, stamp))
    BinaryCache(tmp_path, limit_bytes=300).store("newest", b"x" * 100, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.bin", "newest.bin"]
