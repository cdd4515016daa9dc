"""Kernels over sparse rows: rows that keep their largest entries, and one value for the rest."""
