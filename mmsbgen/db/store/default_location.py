"""The location of the tuning database if none is named, without SQLAlchemy, whose import takes half a second."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_data_path

URL_VARIABLE = "MMSBGEN_DATABASE_URL"


def default_location() -> str | Path:
    """A URL or path from the environment, else the path of a file in the user's data folder."""
    return os.environ.get(URL_VARIABLE) or user_data_path("mmsbgen") / "tuning.sqlite3"
