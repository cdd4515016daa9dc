"""Selection of a recorded configuration for a problem, with the reason."""
