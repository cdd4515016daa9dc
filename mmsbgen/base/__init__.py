"""Common utilities: errors, files, processes, options, progress, memory of the host."""
