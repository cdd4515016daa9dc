"""Pictures and pages of what a run found and of what the tuning database holds.

Nothing here is imported by ``import mmsbgen``; the modules need Matplotlib (extra ``report``).
"""
