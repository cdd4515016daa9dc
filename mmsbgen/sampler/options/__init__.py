"""Options of a run, and its phases."""
