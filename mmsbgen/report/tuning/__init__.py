"""The page of a tuning database."""
