"""What a chain knows of itself beside its arrays on the device: a value, which a sampler gives and takes back."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from mmsbgen.kernels.family import Array
from mmsbgen.sampler.options.phases import Phases


class ChainState(NamedTuple):
    """Counters, sums behind running means, and the course of the run.

    ``published_sum`` ``[H]`` adds up the validation pairs' probabilities as the published programs have them, over
    ``published_evaluations``; ``beta_sum`` ``[K]`` adds up beta over ``averaged`` samples.
    """

    published_sum: Array
    beta_sum: Array
    iteration: int = 0
    vertex_updates: int = 0
    clips: int = 0
    """Coordinates whose flow the split step has bounded."""
    samples: int = 0
    """Evaluations behind the running means of the validation pairs."""
    averaged: int = 0
    """Samples behind the posterior means of pi and beta."""
    published_evaluations: int = 0
    course: Phases = Phases()

    @classmethod
    def first(cls, n_pairs: int, k: int) -> ChainState:
        """That of a chain that is yet to start."""
        return cls(np.zeros(n_pairs), np.zeros(k))

    def counted(self, iterations: int, vertices: int) -> ChainState:
        """After ``iterations`` that updated so many ``vertices``."""
        return self._replace(iteration=self.iteration + iterations, vertex_updates=self.vertex_updates + vertices)

    def to_given_length(self) -> ChainState:
        """Of a run that looked for its end and now goes on to a given one: all means begin anew."""
        course = replace(self.course, settled_at=None, sampling_from=None, closing_from=None, end=None)
        return self._replace(samples=0, averaged=0, beta_sum=np.zeros_like(self.beta_sum), course=course)
