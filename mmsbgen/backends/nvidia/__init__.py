"""NVIDIA GPUs by CUDA: compile, load, launch."""
