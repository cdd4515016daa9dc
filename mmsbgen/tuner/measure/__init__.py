"""Measuring one configuration: a child process, timing, roofs, energy."""
