"""OpenCL devices: CPUs and GPUs."""
