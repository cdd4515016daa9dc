"""Values of the tuning database: keys, trials, devices, and how they are ordered."""
