"""The chain: its plan, its kernels and its iterations."""
