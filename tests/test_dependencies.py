"""Dependencies: their licences are told, and the tested versions are locked."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution, metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGE = (ROOT / "docs" / "licences.md").read_text()
#: Extras for work on mmsbgen itself, and those that the tests' machines do not install.
FOR_DEVELOPERS, NOT_INSTALLED = {"benchmark", "docs", "lint", "test"}, {"cuda", "nccl"}
PLATFORM = {"sys_platform": "linux", "platform_machine": "x86_64", "python_version": "3.11"}


def required(*left_out: str) -> dict[str, Requirement]:
    """The direct requirements by canonical name, without those of some extras."""
    extras = [names for extra, names in PROJECT["optional-dependencies"].items() if extra not in left_out]
    found = [Requirement(text) for names in (PROJECT["dependencies"], *extras) for text in names]
    return {canonicalize_name(one.name): one for one in found if one.marker is None or one.marker.evaluate(PLATFORM)}


def licence_of(name: str) -> str:
    told = metadata(name)
    classifiers = [one for one in told.get_all("Classifier", []) if one.startswith("License")]
    return " ".join([told.get("License-Expression") or "", *classifiers, (told.get("License") or "")[:80]])


def bound_by(licences: dict[str, str], pattern: str) -> set[str]:
    """Names whose licence has ``pattern`` and leaves no choice of another one."""
    return {name for name, text in licences.items() if re.search(pattern, text) and " OR " not in text}


def installed_below(names: set[str]) -> set[str]:
    """``names`` and all that they need, as far as it is installed."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in found:
            continue
        try:
            below = distribution(name).requires or []
        except PackageNotFoundError:
            continue
        found.add(name)
        needs = map(Requirement, below)
        waiting += [one.name for one in needs if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


def test_every_dependency_of_users_has_its_row() -> None:
    rows = {canonicalize_name(name) for name in re.findall(r"^\| ([\w.-]+) \|", PAGE, re.M)}
    assert rows - {"dependency"} == set(required(*FOR_DEVELOPERS))


def test_licences_that_bind_who_passes_it_on_are_named() -> None:
    """Those of dependencies of dependencies too."""
    everything = installed_below(set(required(*FOR_DEVELOPERS)))
    licences = {name: licence_of(name) for name in everything}
    bound = bound_by(licences, r"GPL|General Public|Proprietary")
    assert "igraph" in bound
    page = canonicalize_name(PAGE)
    assert [name for name in sorted(bound) if name not in page] == []
    for text in ((ROOT / "README.md").read_text(), PAGE):
        assert re.search(r"igraph.{0,80}GPL", text, re.S)


def test_the_base_computes_on_processors_without_the_gpl() -> None:
    base = {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"]}
    assert {"pyopencl", "intel-opencl-rt", "intel-cmplr-lib-rt"} <= base
    licences = {name: licence_of(name) for name in installed_below(base)}
    assert len(licences) > len(base)
    assert bound_by(licences, r"GPL|General Public") == set()


def test_the_metadata_has_the_licences() -> None:
    assert "docs/licences.md" in PROJECT["license-files"], "it is part of the package's metadata"


def test_the_tested_versions_are_locked() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines)
    assert len(pins) == len(lines)
    for name, version in pins.items():
        assert re.fullmatch(r"[\w.-]+", name), "no hosts and no paths"
        assert re.fullmatch(r"[\w.+!]+", version)
    pinned = {canonicalize_name(name): version for name, version in pins.items()}
    for name, requirement in required(*NOT_INSTALLED).items():
        assert requirement.specifier.contains(pinned[name]), requirement
    assert "mmsbgen" not in pinned


@pytest.mark.parametrize("option", ["--locked"])
def test_the_installer_takes_them(option: str) -> None:
    script = (ROOT / "scripts" / "install").read_text()
    assert option in script.partition("set -euo")[0], "its usage says so"
    assert "--constraint constraints.txt" in script
