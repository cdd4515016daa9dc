"""Sweeps over sparse rows that several ranks share."""
