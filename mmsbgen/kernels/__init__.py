"""From a problem to a kernel: problem, space, rendering, build, record key, runtime."""
