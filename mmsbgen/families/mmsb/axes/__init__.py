"""Axes, constraints and default configurations of the MMSB kernels."""
