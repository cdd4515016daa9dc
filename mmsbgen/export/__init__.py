"""What a result can be turned into: objects of other libraries, tables, and files that other programs open."""

from __future__ import annotations

from mmsbgen.export.clustering import Exports
from mmsbgen.export.found import Clustering

__all__ = ["Clustering", "Exports"]
