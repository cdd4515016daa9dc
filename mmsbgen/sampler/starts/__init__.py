"""Starts of a chain."""
