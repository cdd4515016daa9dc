"""Kernels of block mini-batches."""
