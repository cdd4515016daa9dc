"""The layout of the package: what docs/architecture.md shows, and the rules that keep it readable."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "mmsbgen"
FILES_A_FOLDER = 12
LINES_A_FILE = 399


def folders() -> list[Path]:
    """Folders that hold more than what Python has compiled."""
    files = [file for file in PACKAGE.rglob("*") if file.is_file() and file.suffix != ".pyc"]
    return sorted({folder for file in files for folder in file.parents if folder.is_relative_to(PACKAGE)})


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def test_the_picture_has_every_layer_in_the_order_of_imports() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    picture = page.split("```text", 1)[1].split("```", 1)[0]
    shown = [line.split()[0] for line in picture.splitlines()[1:] if line.strip()]
    assert sorted(shown) == sorted(folder.name for folder in folders() if folder.parent == PACKAGE)
    contract = re.search(r"layers = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.DOTALL)
    assert contract is not None
    layers = re.findall(r"mmsbgen\.(\w+)", contract[1])
    assert [name for name in shown if name in layers] == layers


def test_places_that_the_page_names_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    names = re.findall(r"`(\w+(?:/\w+)+(?:\.(?:py|jinja))?)/?`", page)
    assert len(names) > 20
    for name in names:
        places = (PACKAGE / name, PACKAGE / f"{name}.py", ROOT / name)
        assert any(place.exists() for place in places), name


def test_no_folder_has_more_than_a_dozen_files() -> None:
    sizes = {str(folder.relative_to(ROOT)): sum(file.is_file() for file in folder.iterdir()) for folder in folders()}
    assert {name: size for name, size in sizes.items() if size > FILES_A_FOLDER} == {}


def test_no_file_is_longer_than_a_sitting() -> None:
    long = {str(file.relative_to(ROOT)): len(file.read_text().splitlines()) for file in modules()}
    assert {name: lines for name, lines in long.items() if lines > LINES_A_FILE} == {}


def test_no_class_name_occurs_twice() -> None:
    """A private class is its module's own; a public one has one meaning in the whole package."""
    names = Counter(
        node.name
        for file in modules()
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_families_take_nothing_of_one_another() -> None:
    """What two of them need is in ``kernels/kit`` and ``templates/common``, which speak of no family."""
    families = {path.name for path in (PACKAGE / "families").iterdir() if (path / "__init__.py").exists()}
    assert families >= {"graph", "mf", "mmsb"}
    for name in families:
        taken = "|".join(families - {name})
        imports = re.compile(rf"mmsbgen\.families(?:\.| import )(?:{taken})\b")
        assert [file for file in (PACKAGE / "families" / name).rglob("*.py") if imports.search(file.read_text())] == []
    for file in (PACKAGE / "templates").rglob("*.jinja"):
        own, text = file.relative_to(PACKAGE / "templates").parts[0], file.read_text()
        named = re.findall(r'{%-? *(?:include|import|from|extends) "(\w+)/', text)
        assert set(named) <= {own, "common"}, file
        assert own != "common" or not re.search(r"(?i)vert(?:ex|ices)|iteration|communit|mmsb\b", text), file
