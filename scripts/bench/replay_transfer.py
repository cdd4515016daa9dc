"""What records of other problems are worth to a search: each sweep is searched with and without them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from replay import Replay, Sweep, replay

from mmsbgen.db.selection.index import Index
from mmsbgen.kernels.family import KernelFamily
from mmsbgen.tuner.search.transfer_model import expected_slowdowns

__all__ = ["AFTER", "expected_by", "transfer"]

#: Trials after which the loss is asked, and the losses whose trials are counted.
AFTER = (1, 5, 10, 20)
_NEAR = (0.01, 0.03)


def transfer(have: Sequence[Sweep], index: Index, family: KernelFamily, seeds: int) -> list[str]:
    """A row of a table: medians of the loss after some trials, and of the trials to come near, without and with.

    The last cells say in how many sweeps records save trials until the loss is 3 %, and how many they cost at worst.
    """
    pairs: list[tuple[list[Replay], list[Replay]]] = []
    for sweep in have:
        if expected := expected_by(sweep, index, family):
            share = min(AFTER[-1], len(sweep.configs) // 2) / len(sweep.configs)
            without = [replay(sweep, "default", seed=s, share=share) for s in range(seeds)]
            known = [replay(sweep, "default", seed=s, share=share, expected=expected) for s in range(seeds)]
            pairs.append((without, known))
    cells = []
    for count in AFTER:
        long = [pair for pair in pairs if pair[0][0].tried >= count]
        losses = [f"{_median_loss([pair[i] for pair in long], count):.1%}" for i in (0, 1) if long]
        cells.append(", ".join(losses))
    for near in _NEAR:
        trials = [[_trials(pair[i], near) for pair in pairs] for i in (0, 1)]
        cells.append(", ".join(f"{statistics.median(some):g}" for some in trials if some))
    more = [_trials(known, _NEAR[1]) - _trials(without, _NEAR[1]) for without, known in pairs]
    fewer, same = sum(x < 0 for x in more), sum(x == 0 for x in more)
    return [
        str(len(pairs)),
        *cells,
        f"{fewer}, {same}, {len(more) - fewer - same}",
        f"{max(more, default=0):.0f}",
    ]


def expected_by(sweep: Sweep, index: Index, family: KernelFamily) -> tuple[float, ...]:
    """What the records of other problems let one expect of a sweep."""
    groups = [group for group in index.groups(sweep.key) if group.key.problem.params != sweep.key.problem.params]
    return expected_slowdowns(family, sweep.key, groups, sweep.configs)


def _median_loss(runs: Sequence[Sequence[Replay]], count: int) -> float:
    """Median over sweeps of the median over seeds."""
    return statistics.median(statistics.median(run.losses[count - 1] for run in of) for of in runs)


def _trials(runs: Sequence[Replay], near: float) -> float:
    """Median of the trials until the loss is ``near``, or of one more than there were."""
    return statistics.median(
        next((place for place, loss in enumerate(run.losses, 1) if loss <= near), run.tried + 1) for run in runs
    )
