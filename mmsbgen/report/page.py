"""A report as one self-contained HTML file, with its pictures as PNG files beside it."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from mmsbgen.base.atomic_files import FileTransaction, writable_folder, write_bytes
from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import plain
from mmsbgen.base.progress import Stage, stage
from mmsbgen.base.version import __version__
from mmsbgen.report.style import Picture

#: Most characters of a text.
_LONGEST = 2000
#: The pictures of a page, by the identifiers of their SVG.
_DRAWN = re.compile(r'\bid="([a-z0-9-]+)-figure_1"')


@dataclass(frozen=True)
class Tile:
    """A key figure and its name, at the top of the page."""

    value: str
    name: str


@dataclass(frozen=True)
class Table:
    """A table of texts and numbers.

    Attributes:
        title: The heading.
        columns: Names of the columns.
        rows: The cells of each row.
        right: Right-aligned columns, those of numbers.
        note: A sentence about rows that were left out.
        folded: Whether the table is closed at first.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    right: frozenset[int] = frozenset()
    note: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Section:
    """A heading, a few sentences, pictures and tables."""

    title: str
    text: str = ""
    pictures: Sequence[Picture] = ()
    tables: Sequence[Table] = ()

    @property
    def anchor(self) -> str:
        """The section's anchor in the page's URL."""
        return "".join(c if c.isalnum() else "-" for c in self.title.lower())


@dataclass(frozen=True)
class Notice:
    """A highlighted message; ``kind`` is ``good``, ``warning`` or ``note``."""

    kind: str
    text: str


@dataclass
class HtmlPage:
    """A whole report."""

    title: str
    subtitle: str
    notices: list[Notice] = field(default_factory=list)
    tiles: list[Tile] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)

    @property
    def pictures(self) -> list[Picture]:
        """All pictures, in the order of the page."""
        return [picture for section in self.sections for picture in section.pictures]


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("mmsbgen.report", "."),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_cell,
    )


def _cell(value: Any) -> Any:
    """A value as printable text of bounded length; markup is left unchanged."""
    return value if isinstance(value, Markup) else plain(value, _LONGEST)


def html(page: HtmlPage, writing: Stage | None = None) -> str:
    """The page as one HTML document without scripts or references to other files and hosts."""
    svg: dict[str, Markup] = {}
    for picture in page.pictures:
        svg[picture.name] = Markup(picture.svg())
        if writing is not None:
            writing.tell(len(page.pictures) + len(svg))
    return _environment().get_template("page.html.jinja").render(page=page, svg=svg, version=__version__)


def with_distinct_names(sections: Sequence[Section]) -> list[Section]:
    """The sections with unique picture names: repeated ones get a number."""
    seen: set[str] = set()
    found = []
    for section in sections:
        pictures = []
        for picture in section.pictures:
            name, number = picture.name, 2
            while name in seen:
                name, number = f"{picture.name}-{number}", number + 1
            seen.add(name)
            pictures.append(replace(picture, name=name))
        found.append(replace(section, pictures=pictures))
    return found


def write(page: HtmlPage, folder: Path) -> Path:
    """Write ``report.html`` and a PNG per picture into ``folder``, all or none; returns the page's path.

    Pictures of the page that it replaces are removed. Raises :class:`InputError` if the folder cannot be written.
    """
    pictures = page.pictures
    files: dict[str, bytes] = {}
    with stage("writing pictures", 2 * len(pictures)) as writing:
        for picture in pictures:
            files[f"{picture.name}.png"] = picture.png()
            writing.tell(len(files))
        text = html(page, writing)
    files["report.html"] = text.encode("utf-8", "replace")
    before = _pictures_of(folder / "report.html")
    try:
        with writable_folder(folder), FileTransaction() as together:
            for name, data in files.items():
                write_bytes(folder / name, data, together)
        for name in before - files.keys():
            (folder / name).unlink(missing_ok=True)
    except InputError as error:
        reason = getattr(error.__cause__, "strerror", None) or error
        raise InputError(f"cannot write the report to {folder}: {reason}; name another folder with -o") from error
    return folder / "report.html"


def _pictures_of(page: Path) -> set[str]:
    """Names of the files of pictures in a report; none if there is no report of mmsbgen."""
    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return set()
    ours = '<meta name="generator" content="mmsbgen ' in text
    return {f"{name}.png" for name in _DRAWN.findall(text)} if ours else set()
