"""Files of tuning records: our JSON lines, and formats that other programs read."""
