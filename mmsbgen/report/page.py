"""A page of pictures and tables: one HTML file that needs nothing else, and the pictures as PNG files beside it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from mmsbgen._version import __version__
from mmsbgen.base.atomic_files import FileTransaction, writable_folder, write_bytes
from mmsbgen.base.errors import InputError
from mmsbgen.base.id_text import plain
from mmsbgen.base.progress import Stage, stage
from mmsbgen.report.style import Picture

#: Characters of a piece of text.
_LONGEST = 2000


@dataclass(frozen=True)
class Tile:
    """A number that is seen first, and what it is."""

    value: str
    name: str


@dataclass(frozen=True)
class Table:
    """Rows of text or numbers beside a picture; ``right`` are the columns of numbers.

    ``note`` says what was left out; with ``folded`` the reader opens the table.
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
        """Its place in the page's address."""
        return "".join(c if c.isalnum() else "-" for c in self.title.lower())


@dataclass(frozen=True)
class Notice:
    """What must not be overlooked; ``kind`` is ``good``, ``warning`` or ``note``."""

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
    """Text of any origin, printable and of bounded length; what was made here is left as it is."""
    return value if isinstance(value, Markup) else plain(value, _LONGEST)


def html(page: HtmlPage, writing: Stage | None = None) -> str:
    """The page as one HTML document; nothing in it asks for another file or host, or runs."""
    svg: dict[str, Markup] = {}
    for picture in page.pictures:
        svg[picture.name] = Markup(picture.svg())
        if writing is not None:
            writing.tell(len(page.pictures) + len(svg))
    return _environment().get_template("page.html.jinja").render(page=page, svg=svg, version=__version__)


def with_distinct_names(sections: Sequence[Section]) -> list[Section]:
    """The sections, a picture whose name another one before it has under a name of its own."""
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
    """Write ``report.html`` and a PNG a picture into ``folder``, all or none; returns the page's path.

    Raises :class:`InputError` where the folder cannot be written.
    """
    pictures = page.pictures
    files: dict[str, bytes] = {}
    with stage("writing pictures", 2 * len(pictures)) as writing:
        for picture in pictures:
            files[f"{picture.name}.png"] = picture.png()
            writing.tell(len(files))
        text = html(page, writing)
    files["report.html"] = text.encode("utf-8", "replace")
    try:
        with writable_folder(folder), FileTransaction() as together:
            for name, data in files.items():
                write_bytes(folder / name, data, together)
    except InputError as error:
        reason = getattr(error.__cause__, "strerror", None) or error
        raise InputError(f"cannot write the report to {folder}: {reason}; name another folder with -o") from error
    return folder / "report.html"
