"""Belief propagation: its kernel, arguments and reference."""
