"""Which recorded configuration a problem runs with, and why."""
