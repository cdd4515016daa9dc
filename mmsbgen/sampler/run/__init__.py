"""A run: iterations, evaluations, refinement, pruning."""
