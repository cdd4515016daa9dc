"""The tuner: search a kernel's space on one device, check and time each configuration, store what came of it.

``tune`` runs it, ``search`` has the strategies, ``measure`` and ``worker`` the child process that does the
measuring, ``limits`` the device's own roofs.  Nothing here knows any family of kernels.
"""
