"""How well a cover (a set of overlapping communities) agrees with a known one."""

from __future__ import annotations

from mmsbgen.scores.cover import read_cover
from mmsbgen.scores.measures import Scores, evaluate

__all__ = ["Scores", "evaluate", "read_cover"]
