"""Families that other packages register, and what may be named over the network."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from mmsbgen import families
from mmsbgen.base.errors import InputError
from mmsbgen.jobs.worker import tuning_job

FILE = Path(__file__).parents[1] / "data" / "own" / "vector_add.py"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package with entry points: of a family, under another name, and of none that there is."""
    for name in ("vector_add.cl", "vector_add.cu"):
        (tmp_path / name).write_bytes(FILE.with_name(name).read_bytes())
    (tmp_path / "adding.py").write_bytes(FILE.read_bytes())
    monkeypatch.syspath_prepend(str(tmp_path))
    places = {"vector_add": "adding:VECTOR_ADD", "add": "adding:VECTOR_ADD", "gone": "adding:GONE"}
    points = [EntryPoint(name, place, families.GROUP) for name, place in places.items()]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
    families._installed.cache_clear()
    yield
    families._installed.cache_clear()


@pytest.mark.usefixtures("package")
def test_entry_points_are_families() -> None:
    assert families.names() == ("add", "gone", "graph", "mf", "mmsb", "vector_add")
    assert families.family("vector_add").kernels.keys() == {"vector_add"}
    assert families.resolve_family("vector_add") is families.family("vector_add")
    with pytest.raises(InputError, match="has the family 'vector_add': rename one of them"):
        families.family("add")
    with pytest.raises(InputError, match="no family 'gone'"):
        families.family("gone")


@pytest.mark.usefixtures("package")
def test_a_job_names_an_entry_point() -> None:
    wanted = tuning_job.checked({"family": "vector_add", "problem": {"n": 5}, "fixed": {"block_size_x": 64}})
    assert (wanted.family, wanted.options["fixed"]) == ("vector_add", {"block_size_x": (64,)})


@pytest.mark.parametrize("name", [str(FILE), f"{FILE}:VECTOR_ADD", "mmsbgen.families.mmsb:MMSB", "../x.py"])
def test_a_job_names_no_file_and_no_module(name: str) -> None:
    with pytest.raises(InputError, match=r"Files and modules are run on the command line only"):
        tuning_job.checked({"family": name})


def test_references_of_files_become_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FILE.parent)
    assert families.absolute("vector_add.py") == str(FILE)
    assert families.absolute("vector_add.py:VECTOR_ADD") == f"{FILE}:VECTOR_ADD"
    assert families.absolute("mmsb") == "mmsb"
    assert families.absolute("package.module:NAME") == "package.module:NAME"
