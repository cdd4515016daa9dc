"""The tuner: search a kernel's space on one device, check and time each configuration, store what came of it.

Nothing here knows any family of kernels.
"""
