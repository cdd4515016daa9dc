"""Kernels of star mini-batches."""
