"""Generated kernels: problems, search spaces, rendering, building, record keys, selection at run time."""
