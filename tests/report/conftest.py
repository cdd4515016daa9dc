"""Real runs and records for reports, and a parser of the pages that are made of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import pytest

from mmsbgen.db.exchange.jsonl import Bundle, read
from mmsbgen.detection.detect import Detection, detect
from tests.devices import PROCESSOR

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
REPORTS = ROOT / "docs" / "reports"
#: Elements that have no end.
VOID = {"meta", "link", "img", "br", "hr", "input"}


@dataclass
class Element:
    """An element of a page with its attributes and all text inside."""

    tag: str
    attributes: dict[str, str]
    text: str = ""


@dataclass
class Parsed(HTMLParser):
    """A page as its elements, checked for balance."""

    elements: list[Element] = field(default_factory=list)
    open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> ends nothing"
        assert self.open[-1].tag == tag, f"</{tag}> ends {self.open[-1].tag}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.text += data

    def all(self, tag: str) -> list[Element]:
        return [element for element in self.elements if element.tag == tag]

    def texts(self, tag: str) -> list[str]:
        return [" ".join(element.text.split()) for element in self.all(tag)]

    @property
    def tiles(self) -> dict[str, str]:
        """Numbers at the top by their names."""
        return dict(zip(self.texts("dt"), self.texts("dd"), strict=True))


def parsed(page: Path | str) -> Parsed:
    """The elements of a page, which must be whole."""
    found = Parsed()
    found.feed(page.read_text("utf-8") if isinstance(page, Path) else page)
    found.close()
    assert not found.open, f"never ended: {[element.tag for element in found.open]}"
    return found


def check_self_contained(page: Path) -> Parsed:
    """Nothing in the page names another file or host, or runs; pictures have words; identifiers are its own."""
    found = parsed(page)
    names = {element.attributes["id"] for element in found.elements if "id" in element.attributes}
    assert len(names) == sum("id" in element.attributes for element in found.elements), "an id occurs twice"
    assert not {"script", "link", "iframe", "object", "embed", "base", "form", "img"} & {e.tag for e in found.elements}
    for element in found.elements:
        for name, value in element.attributes.items():
            assert not name.startswith("on"), f"{element.tag} has {name}"
            if name in ("src", "href", "xlink:href", "action", "data", "srcset"):
                assert value.startswith("data:image/png;base64,") or value.removeprefix("#") in names, value[:80]
            for target in re.findall(r"url\(([^)]*)\)", value):
                assert target.strip("'\"").removeprefix("#") in names, target
    assert "url(" not in "".join(found.texts("style"))
    assert "@import" not in "".join(found.texts("style"))
    for svg in found.all("svg"):
        assert svg.attributes["role"] == "img"
        assert len(svg.attributes["aria-label"]) > 20
    return found


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Detection]:
    """A finished run on a graph that is too large to be drawn vertex by vertex."""
    out = tmp_path_factory.mktemp("runs") / "grqc"
    found = detect(DATA / "CA-GrQc.txt.gz", 20, device=PROCESSOR, iterations=60, out=out)
    return out, found


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Detection]:
    """A run on a small graph, nothing held out."""
    out = tmp_path_factory.mktemp("runs") / "small"
    found = detect(DATA / "fb_3980.txt.gz", 6, device=PROCESSOR, validation=0.0, test=0.0, iterations=60, out=out)
    return out, found


@pytest.fixture(scope="session")
def bundle() -> Bundle:
    """Records of several devices, kernels and states of a template, failures among them."""
    found = Bundle()
    for name in ("tuning-cpu.jsonl.gz", "tuning-h200-opencl.jsonl.gz", "tuning-h200-cuda.jsonl.gz"):
        part = read(REPORTS / name)
        found.runs += part.runs
        found.roofs += part.roofs
        found.trials += part.trials
    return found
