"""What records of other devices or problems are worth to a search: each sweep is searched with and without them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from replay import Replay, Sweep, replay

from mmsbgen.db.records.tuning_records import Key
from mmsbgen.db.selection.index import Index
from mmsbgen.kernels.family import KernelFamily
from mmsbgen.tuner.search.candidates import ExpectedTimes
from mmsbgen.tuner.search.transfer_model import expected_slowdowns

__all__ = ["AFTER", "KEPT", "expected_by", "transfers"]

#: Trials after which the loss is asked, and the loss whose trials are counted.
AFTER = (1, 5, 10, 20)
_NEAR = 0.03

Kept = Callable[[Key, Key], bool]
"""Whether a search for one key knows the records of another."""
KEPT: dict[str, Kept] = {
    "other devices": lambda here, there: there.device.identity != here.device.identity,
    "other problems": lambda here, there: (
        there.device.identity == here.device.identity and there.problem.params != here.problem.params
    ),
}
"""Which records a search knows, by what it leaves out of the rest."""


def transfers(have: Sequence[Sweep], index: Index, family: KernelFamily, seeds: int) -> list[list[str]]:
    """Rows of a table: medians of the loss after some trials with and without records, and the worst of all sweeps."""
    rows = []
    for name, kept in KEPT.items():
        pairs: list[tuple[list[Replay], list[Replay]]] = []
        for sweep in have:
            if (expected := expected_by(kept, sweep, index, family)) is not None:
                share = min(AFTER[-1], len(sweep.configs) // 2) / len(sweep.configs)
                without = [replay(sweep, "default", seed=s, share=share) for s in range(seeds)]
                known = [replay(sweep, "default", seed=s, share=share, expected=expected) for s in range(seeds)]
                pairs.append((without, known))
        if not pairs:
            continue
        cells = []
        for count in AFTER:
            long = [pair for pair in pairs if pair[0][0].tried >= count]
            losses = [f"{_median_loss([pair[i] for pair in long], count):.1%}" for i in (0, 1) if long]
            cells.append(", ".join(losses))
        more = [_trials(known) - _trials(without) for without, known in pairs]
        fewer, same = sum(x < 0 for x in more), sum(x == 0 for x in more)
        rows.append([name, str(len(pairs)), *cells, f"{fewer}, {same}, {len(more) - fewer - same}", f"{max(more):.0f}"])
    return rows


def expected_by(kept: Kept, sweep: Sweep, index: Index, family: KernelFamily) -> ExpectedTimes | None:
    """What the records that ``kept`` leaves let one expect of a sweep."""
    groups = [group for group in index.groups(sweep.key) if kept(sweep.key, group.key)]
    return expected_slowdowns(family, sweep.key, groups, sweep.configs)


def _median_loss(runs: Sequence[Sequence[Replay]], count: int) -> float:
    """Median over sweeps of the median over seeds."""
    return statistics.median(statistics.median(run.losses[count - 1] for run in of) for of in runs)


def _trials(runs: Sequence[Replay]) -> float:
    """Median of the trials until the loss is 3 %, or of one more than there were."""
    return statistics.median(
        next((place for place, loss in enumerate(run.losses, 1) if loss <= _NEAR), run.tried + 1) for run in runs
    )
