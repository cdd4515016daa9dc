"""Files that appear together."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mmsbgen.base.atomic_files import FileTransaction, write_text
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
