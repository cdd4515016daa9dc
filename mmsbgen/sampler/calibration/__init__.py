"""Calibration of link probabilities: a monotone curve fitted on held-out pairs, and how well it holds."""
