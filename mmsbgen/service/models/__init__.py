"""Models of requests and answers."""
