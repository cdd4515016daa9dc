"""Exports of results: objects of other libraries, tables, and files for other programs."""

from __future__ import annotations

from mmsbgen.export.clustering import Exports
from mmsbgen.export.found import Clustering

__all__ = ["Clustering", "Exports"]
