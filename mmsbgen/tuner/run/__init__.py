"""A tuning run: trials, finals, report."""
