"""A run: iterations, evaluations, checkpoints, results."""
