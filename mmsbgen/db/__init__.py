"""The tuning database: what was tried on which device, and which configuration to run.

It knows strings, numbers and JSON, and no family of kernels.
"""
