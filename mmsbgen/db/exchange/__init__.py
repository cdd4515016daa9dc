"""Files of tuning records: our own and other programs'."""
