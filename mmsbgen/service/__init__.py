"""The service: the tuning database, kernels and jobs over HTTP, for ``mmsbgen serve``.

:mod:`mmsbgen.service.app` makes the application, :mod:`mmsbgen.service.server` runs it with its workers.
"""
