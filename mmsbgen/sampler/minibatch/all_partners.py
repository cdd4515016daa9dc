"""All vertices as partners, to first order: stages 2 and 3 of sweeps over sparse rows."""

from __future__ import annotations

from typing import Any

from mmsbgen.sampler.minibatch.partners import Launch
from mmsbgen.sampler.state.arrays import Spec

#: The kernel that sweeps, without noise and with the noise of sampling sweeps.
SWEEP, SWEEP_DRAWN = "sparse_rows", "sparse_draws"


class AllPartners:
    """Non-links count by the sums of columns; nothing is drawn.

    New rows are in their places when the state has exchanged its arrays
    (:meth:`mmsbgen.sampler.state.sparse_state.SparseState.exchange`).
    """

    kernels = (SWEEP, "sparse_totals")
    in_place = True
    bytes_each = 0

    def specs(self, rounds: int) -> list[Spec]:
        """No arrays but those of the state."""
        return []

    def draw(self, queue: Launch, rounds: int, places: int, values: dict[str, Any]) -> None:
        """Nothing is drawn."""

    def update(self, queue: Launch, count: int, values: dict[str, Any], draws: bool) -> None:
        """Queue the sweep, then the sums."""
        for name in (SWEEP_DRAWN if draws else SWEEP, "sparse_totals"):
            queue("update_phi", name, count, values)
