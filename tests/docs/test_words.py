"""Pages are short, and so are their sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from markdown_it import MarkdownIt

from tests.docs.test_pages import PAGES, ROOT

MOST_WORDS, MOST_README_LINES, MOST_WORDS_A_SENTENCE = 40_000, 100, 30
SENTENCE_END = re.compile(r"(?<=[.!?])[)\"']?\s+(?=[A-Z`*\[(\"'0-9])")


def sentences(text: str) -> Iterator[str]:
    """Sentences of paragraphs, lists and headings, without tables and what pictures show."""
    in_table = False
    for token in MarkdownIt().enable("table").parse(text):
        in_table = token.type == "table_open" or (in_table and token.type != "table_close")
        if token.type == "inline" and not in_table:
            parts = [part for part in token.children or [] if part.type != "image"]
            # A sentence may begin with code.
            marks = ["`" * (part.type == "code_inline") for part in parts]
            texts = [part.content or " " * part.type.endswith("break") for part in parts]
            yield from SENTENCE_END.split("".join(m + text + m for m, text in zip(marks, texts, strict=True)))


def words(text: str) -> int:
    return sum(any(letter.isalnum() for letter in word) for word in text.split())


@pytest.mark.parametrize("page", [*PAGES, "CHANGELOG.md"])
def test_no_sentence_is_long(page: str) -> None:
    found = list(sentences((ROOT / page).read_text(encoding="utf-8")))
    assert found
    assert [one for one in found if words(one) > MOST_WORDS_A_SENTENCE] == []


def test_pages_are_short() -> None:
    pages = {page: (ROOT / page).read_text(encoding="utf-8") for page in PAGES if page != "CONTRIBUTING.md"}
    assert sum(len(text.split()) for text in pages.values()) <= MOST_WORDS
    assert len(pages["README.md"].splitlines()) <= MOST_README_LINES


def test_long_sentences_are_seen() -> None:
    text = "One two. Many " + "word " * 30 + "end. *Next* is short.\n\n| a |\n|---|\n| " + "cell " * 40 + "|\n"
    assert [words(one) for one in sentences(text)] == [2, 32, 3]
