"""A tuning run over several devices, by Dask."""
