"""The site: builds without a warning, needs no other host, and what is generated in it is what the code says now."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from markdown_it import MarkdownIt

import mmsbgen
from mmsbgen.cli import main
from tests.docs.test_pages import PAGES, ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr, built.stderr
    return folder


class _Loads(HTMLParser):
    """Addresses that a page loads by itself, and its diagrams that a script of another host would draw."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in ("script", "img", "iframe", "source", "embed", "video", "audio"):
            self.found.append(given.get("src", ""))
        elif tag == "link" and given.get("rel") not in ("canonical", "next", "prev", "edit"):
            self.found.append(given.get("href", ""))
        if "mermaid" in given.get("class", "").split():
            self.found.append("https: a mermaid diagram")


@pytest.mark.slow
def test_it_needs_no_other_host(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        loads = _Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        foreign = [address for address in loads.found if re.match(r"(https?:)?//|https:", address)]
        assert not foreign, f"{page.relative_to(site)} loads {foreign}"
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        assert not re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", text), style


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("page", ["index.html", "how-to/resume.html"])
def test_search_works_in_a_folder(site: Path, browser: Browser, page: str) -> None:
    """Without a server: browsers start no workers for files."""
    opened = browser.new_page()
    opened.goto(f"file://{site}/{page}")
    opened.locator("input.md-search__input").fill("checkpoint")
    link = opened.locator("a.md-search-result__link[href*='how-to/resume.html']").first
    link.wait_for(timeout=20_000)
    address = link.get_attribute("href")
    assert address is not None
    opened.goto(address)
    assert "checkpoint" in opened.locator("article").inner_text()
    opened.close()


@pytest.mark.slow
def test_references_are_whole(site: Path) -> None:
    api = (site / "reference" / "api.html").read_text(encoding="utf-8")
    for name in set(mmsbgen.__all__) - {"__version__"}:
        assert re.search(rf'id="mmsbgen\.[a-z_.]+\.{name}"', api), name
    assert not re.search(r":(?:class|func|meth|mod|data|attr):<|:(?:class|func|meth|mod):`", api)
    words = re.sub(r"<[^>]+>", "", (site / "reference" / "cli.html").read_text(encoding="utf-8"))
    assert "UNSET" not in words, "defaults that are none"
    for path, command in _commands(main, ("mmsbgen",)):
        assert " ".join(path) in words
        for option in _options(command):
            assert option in words, f"{' '.join(path)} {option}"


@pytest.mark.slow
def test_what_is_generated_is_current(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "pages" / "schema_page.py"), "--output", str(tmp_path)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60)
    for name in ("reference/schema.md", "pictures/schema.svg"):
        now = (ROOT / "docs" / name).read_text(encoding="utf-8")
        assert now == (tmp_path / name).read_text(encoding="utf-8"), f"{name}: renew it by scripts/docs --update"


def _commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            if not found.hidden:
                yield from _commands(found, (*path, name))


def _options(command: click.Command) -> set[str]:
    context = click.Context(command)
    return {
        name
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option) and not parameter.hidden
        for name in (*parameter.opts, *parameter.secondary_opts)
    }


def _spans(page: str) -> list[str]:
    tokens = MarkdownIt().enable("table").parse((ROOT / page).read_text(encoding="utf-8"))
    return [part.content for token in tokens for part in token.children or () if part.type == "code_inline"]


def test_commands_and_options_in_the_text_exist() -> None:
    commands = dict(_commands(main, ("mmsbgen",)))
    known = {option for command in commands.values() for option in _options(command)}
    scripts = "\n".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "scripts").rglob("*")
        if path.is_file() and path.suffix in ("", ".py")
    )
    for page in PAGES:
        if page == "CONTRIBUTING.md":
            continue
        for span in _spans(page):
            words = shlex.split(span, comments=False, posix=False)
            if words[:1] == ["mmsbgen"]:
                path = max((path for path in commands if list(path) == words[: len(path)]), key=len)
                rest = words[len(path) :]
                command = commands[path]
                if isinstance(command, click.Group) and rest and re.fullmatch(r"[a-z][a-z-]*", rest[0]):
                    pytest.fail(f"{page}: {span!r}: there is no such command")
                given = {word.partition("=")[0] for word in rest if re.match(r"--?[A-Za-z]", word)}
                assert given <= _options(command) | _options(main), f"{page}: {span!r}"
            elif words and re.fullmatch(r"--[a-z][a-z-]*", words[0]):
                assert words[0] in known or re.search(rf"{words[0]}\b", scripts), f"{page}: {span!r} is no option"
