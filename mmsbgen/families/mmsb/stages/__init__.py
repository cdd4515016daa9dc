"""Kernels of the stages of an iteration."""
