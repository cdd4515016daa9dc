"""Commands on runs of detection and their results."""
