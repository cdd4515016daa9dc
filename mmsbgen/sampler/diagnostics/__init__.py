"""Diagnostics of a chain: held-out metrics, convergence, communities."""
