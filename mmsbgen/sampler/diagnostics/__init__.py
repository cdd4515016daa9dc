"""What is measured of a chain: held-out metrics, convergence, communities."""
