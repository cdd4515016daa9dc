"""The tuning database: measured configurations by device, and the selection of configurations.

It stores strings, numbers and JSON only, and does not depend on any family of kernels.
"""
