"""What every part may use: errors, files, memory of the host, progress."""
