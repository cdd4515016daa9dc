"""Scores of a cover (a set of overlapping communities): agreement with a known one, and structure of its own."""

from __future__ import annotations

from mmsbgen.scores.cover import read_cover
from mmsbgen.scores.measures import Scores, evaluate
from mmsbgen.scores.structure import Structure, structure

__all__ = ["Scores", "Structure", "evaluate", "read_cover", "structure"]
