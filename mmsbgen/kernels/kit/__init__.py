"""What declarations of kernels share, whatever their family: the type of reals, axes, teams, limits of devices."""
