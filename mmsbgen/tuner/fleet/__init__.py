"""A tuning run over several devices, with Dask."""
