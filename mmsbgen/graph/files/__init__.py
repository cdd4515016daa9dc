"""Graphs from files: edge lists, tables, and formats of other programs."""
