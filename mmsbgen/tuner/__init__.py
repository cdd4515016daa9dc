"""The tuner: searches a kernel's space on one device, checks and times each configuration, and stores the results.

It is independent of any family of kernels.
"""
