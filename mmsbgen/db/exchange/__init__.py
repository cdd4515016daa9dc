"""Files of tuning records: our own lines, and formats that other programs read."""
