"""The NumPy float64 reference, check inputs and tolerances."""
