"""For the page of the command line: an option without a default shows none, where click has a mark of its own."""

from __future__ import annotations

from typing import Any


def on_page_content(html: str, **kwargs: Any) -> str:
    """Called by mkdocs for each page."""
    return html.replace("<code>Sentinel.UNSET</code>", "")
