"""Configurations of near problems for one that was never tuned, and what that is said to cost."""

from __future__ import annotations

from typing import Any

import pytest

from mmsbgen.db.records.nearness import problem_distance
from mmsbgen.db.records.tuning_records import Key
from mmsbgen.db.selection.index import Index, Selection
from mmsbgen.families.mmsb import MMSB
from mmsbgen.families.mmsb.axes.common_axes import of_row
from mmsbgen.kernels.space import Traits


def key(make: Any, width: int, **changes: Any) -> Key:
    found: Key = make.key(params={"width": width, "dtype": "float32"}, **changes)
    return found


def index(make: Any, times: dict[int, dict[str, float]], **changes: Any) -> Index:
    """An index of configurations by name and their times by the width of the problem."""
    return Index.of_trials(
        make.trial(key(make, width, **changes), config={"name": name}, time=time)
        for width, tried in times.items()
        for name, time in tried.items()
    )


def choose(index: Index, wanted: Key, **more: Any) -> Selection:
    return index.select(wanted, valid=lambda config: True, default={"name": "default"}, **more)


def test_what_is_good_at_several_near_problems_comes_before_one_winner(make: Any) -> None:
    times = {
        64: {"lucky": 1.0, "sound": 1.02, "poor": 2.0},
        80: {"lucky": 1.6, "sound": 1.0, "poor": 2.0},
        96: {"lucky": 1.6, "sound": 1.0, "poor": 2.0},
    }
    assert choose(index(make, {64: times[64]}), key(make, 70)).config == {"name": "lucky"}
    chosen = choose(index(make, times), key(make, 70))
    assert (chosen.tier, chosen.config) == ("problem", {"name": "sound"})
    assert choose(index(make, times), key(make, 64)).config == {"name": "lucky"}, "an exact record speaks for itself"


def test_far_problems_hardly_count(make: Any) -> None:
    times = {64: {"near": 1.0, "far": 1.1}, 4096: {"near": 9.0, "far": 1.0}}
    assert choose(index(make, times), key(make, 70)).config == {"name": "near"}
    assert choose(index(make, times), key(make, 4000)).config == {"name": "far"}


def test_a_far_problem_does_not_decide_a_tie(make: Any) -> None:
    """The finalists' order, in which the simplest of a tie is first, stands."""
    tied = [("simple", 1.0, 2), ("other", 0.99, 1)]
    near = [make.trial(key(make, 64), config={"name": name}, time=time, round=last) for name, time, last in tied]
    far = [make.trial(key(make, 4096), config={"name": name}, time=t) for name, t in (("other", 1.0), ("simple", 2.0))]
    assert choose(Index.of_trials([*near, *far]), key(make, 66)).config == {"name": "simple"}


def test_one_that_was_not_tried_is_charged_for_it(make: Any) -> None:
    times = {64: {"tried": 1.05, "once": 1.0}, 80: {"tried": 1.0}, 96: {"tried": 1.0}}
    assert choose(index(make, times), key(make, 72)).config == {"name": "tried"}


def test_another_driver_of_the_very_problem_speaks_before_near_problems(make: Any) -> None:
    here = index(make, {64: {"a": 1.0, "b": 1.1}, 80: {"a": 2.0, "b": 1.0}, 96: {"a": 2.0, "b": 1.0}}, driver="1")
    assert choose(here, key(make, 64)).config == {"name": "a"}


def test_a_configuration_is_carried_over_with_the_sizes(make: Any) -> None:
    records = Index.of_trials([make.trial(key(make, 64), config={"block": 16})])
    chosen = records.select(
        key(make, 128),
        valid=lambda config: config["block"] == 32,
        default={},
        carry=lambda config, before, after: {"block": config["block"] * after["width"] // before["width"]},
    )
    assert (chosen.config, chosen.tier) == ({"block": 32}, "problem")
    assert "carried over to this problem's sizes" in chosen.reason


def test_weights_of_sizes(make: Any) -> None:
    a, b = {"n": 1, "m": 1}, {"n": 10, "m": 10}
    assert problem_distance(a, b, weights={"n": 0.5}) == pytest.approx(1.5 * problem_distance(a, {"n": 10, "m": 1}))
    assert MMSB.weights == {"N": 0.25}


GPU = Traits("cuda", "gpu", 1024, 48 << 10, 32, True, 4, 132)
BLOCK = {
    "placement": "RRR",
    "team": "block",
    "vector_width": 4,
    "block_size": 128,
    "rows_in_flight": 2,
    "prefetch": 0,
    "normalise": True,
    "reduction": "shuffle",
}


@pytest.mark.parametrize(
    ("before", "after", "size"),
    [(1024, 1024, 128), (1024, 2048, 256), (1024, 256, 32), (1024, 128, 32), (1024, 3000, 384), (1024, 100000, 1024)],
)
def test_a_block_that_shares_a_row_keeps_its_part_of_it(before: int, after: int, size: int) -> None:
    carried = of_row(BLOCK, MMSB.problem(K=before), MMSB.problem(K=after), GPU)
    assert carried == BLOCK | {"block_size": size}
    alone = BLOCK | {"team": "subgroup"}
    assert of_row(alone, MMSB.problem(K=before), MMSB.problem(K=after), GPU) == alone


def test_the_family_carries_over_what_is_not_valid_as_it_is() -> None:
    carry = MMSB.carried("update_phi", GPU)
    at_1024, at_128 = dict(MMSB.problem(K=1024)), dict(MMSB.problem(K=128))
    assert carry(BLOCK | {"block_size": 64}, at_1024, dict(MMSB.problem(K=512))) == BLOCK | {"block_size": 64}
    assert carry(BLOCK, at_1024, at_128) == BLOCK | {"block_size": 32}, "128 work-items for a row of 32 vectors"
    assert carry({"old": 1}, at_1024, at_128) == {"old": 1}, "a record with other axes is left for the check to refuse"
    assert carry(BLOCK, {"gone": 1}, at_128) == BLOCK


def test_a_stale_record_of_a_near_problem_hides_no_current_one(make: Any) -> None:
    def trial(width: int, program: str, time: float, **more: Any) -> Any:
        stamp = "2026-01-01T00:00:00Z" if program == "new" else "2025-01-01T00:00:00Z"
        return make.trial(
            key(make, width), time, config={"name": "a"}, extra={"program": program}, created_at=stamp, **more
        )

    old = [trial(64, "old", 1.0, round=1)]
    for new in (trial(64, "new", 2.0, run="b" * 32), trial(96, "new", 2.0)):
        chosen = choose(Index.of_trials([*old, new]), key(make, 70), program=lambda key, config: "new")
        assert (chosen.tier, chosen.trial_ref) == ("problem", new.uid)
    chosen = choose(Index.of_trials([*old, new]), key(make, 70), program=lambda key, config: "old")
    assert chosen.trial_ref == old[0].uid


def test_slowdowns_are_those_of_the_newest_programs(make: Any) -> None:
    """What was fast with an older program is slow today."""
    trials = [
        make.trial(
            key(make, 64), time, config={"name": name}, run=run * 32, round=round_, created_at=stamp, extra=extra
        )
        for name, time, run, round_, stamp, extra in (
            ("a", 1.0, "a", 1, "2025-01-01T00:00:00Z", {"program": "old"}),
            ("a", 3.0, "b", 0, "2026-01-01T00:00:00Z", {"program": "new"}),
            ("b", 2.0, "b", 0, "2026-01-01T00:00:00Z", {"program": "new"}),
        )
    ]
    chosen = choose(Index.of_trials(trials), key(make, 70), program=lambda key, config: "new")
    assert chosen.config == {"name": "b"}
    assert choose(Index.of_trials(trials), key(make, 70)).config == {"name": "b"}
