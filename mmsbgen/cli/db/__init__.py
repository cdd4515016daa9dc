"""The commands ``mmsbgen db``."""
