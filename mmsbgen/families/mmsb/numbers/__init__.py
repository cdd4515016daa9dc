"""Row layout, stored number types and counter-based random numbers."""
