"""The sampler: state, mini-batches, steps, held-out metrics, checkpoints and communities."""
