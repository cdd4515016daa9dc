"""The page of a detection run."""
