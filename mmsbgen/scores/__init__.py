"""Agreement of a cover (a set of overlapping communities) with a known one."""

from __future__ import annotations

from mmsbgen.scores.cover import read_cover
from mmsbgen.scores.measures import Scores, evaluate

__all__ = ["Scores", "evaluate", "read_cover"]
