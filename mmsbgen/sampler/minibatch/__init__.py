"""Mini-batches and partners."""
