"""Ratings: files and objects in; ids, duplicates and splits."""

from __future__ import annotations

from mmsbgen.ratings.rating_files import read_ratings
from mmsbgen.ratings.rating_sources import as_ratings
from mmsbgen.ratings.ratings import Ratings

__all__ = ["Ratings", "as_ratings", "read_ratings"]
