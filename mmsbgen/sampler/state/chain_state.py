"""The host's part of a chain's state, as an immutable value."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from mmsbgen.kernels.family import Array
from mmsbgen.sampler.options.phases import Phases


class ChainState(NamedTuple):
    """Counters, sums of running means, and the phases of the run.

    ``published_sum`` ``[H]`` is the sum of the validation pairs' probabilities, as the published programs define them,
    over ``published_evaluations``.  ``beta_sum`` ``[K]`` is the sum of beta over ``averaged`` samples, ``beta_squares``
    ``[K]`` the sum of its squared deviations from their mean.
    """

    published_sum: Array
    beta_sum: Array
    beta_squares: Array
    iteration: int = 0
    vertex_updates: int = 0
    clips: int = 0
    """Number of coordinates whose flow the split step has bounded."""
    samples: int = 0
    """Number of evaluations in the running means of the validation pairs."""
    averaged: int = 0
    """Number of samples in the posterior means of pi and beta."""
    published_evaluations: int = 0
    course: Phases = Phases()

    @classmethod
    def first(cls, n_pairs: int, k: int) -> ChainState:
        """The state before the first iteration."""
        return cls(np.zeros(n_pairs), np.zeros(k), np.zeros(k))

    def counted(self, iterations: int, vertices: int) -> ChainState:
        """The state with ``iterations`` and updated ``vertices`` added to the counters."""
        return self._replace(iteration=self.iteration + iterations, vertex_updates=self.vertex_updates + vertices)

    def with_sample(self, beta: Array) -> ChainState:
        """The state with ``beta`` ``[K]`` in the posterior means."""
        n = self.averaged
        off = beta - self.beta_sum / max(1, n)
        return self._replace(
            beta_sum=self.beta_sum + beta,
            beta_squares=self.beta_squares + n / (n + 1) * off**2,
            averaged=n + 1,
        )

    def to_given_length(self) -> ChainState:
        """The state of a run of open length that optimises on to a given length; its means restart."""
        course = replace(self.course, settled_at=None, sampling_from=None, closing_from=None, end=None)
        none = np.zeros_like(self.beta_sum)
        return self._replace(samples=0, averaged=0, beta_sum=none, beta_squares=none, course=course)
