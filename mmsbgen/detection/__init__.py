"""Detection: from a request to communities and files."""
