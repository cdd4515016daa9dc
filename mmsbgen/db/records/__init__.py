"""Record types of the tuning database: keys, trials, devices, and their ranking."""
