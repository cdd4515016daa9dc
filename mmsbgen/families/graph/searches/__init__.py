"""Breadth-first searches from many sources at once."""
