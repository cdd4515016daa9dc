"""The commands of ``mmsbgen graph``."""
