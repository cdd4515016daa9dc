"""What records of other problems and devices let one expect, and what a search makes of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from mmsbgen.backends import open_device
from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.records.canonical_json import utc_now
from mmsbgen.db.records.tuning_records import Key, RunRecord, TrialRecord
from mmsbgen.db.selection.index import Index
from mmsbgen.db.store.tuning_store import Store
from mmsbgen.families.mmsb import MMSB
from mmsbgen.kernels.build import traits_of
from mmsbgen.kernels.problem import Problem
from mmsbgen.kernels.record_key import key_of
from mmsbgen.kernels.space import Config
from mmsbgen.tuner.measure.timing import Patience
from mmsbgen.tuner.run.tune import tune
from mmsbgen.tuner.search.candidates import BudgetSpentError, Candidates, candidates
from mmsbgen.tuner.search.strategies import search
from mmsbgen.tuner.search.surrogate import with_expected

SPEC = MMSB.kernel("update_phi")
HERE = MMSB.problem(K=64, N=500, m=64, n=4, pairs=256)
OTHER = MMSB.problem(K=32, N=500, m=64, n=4, pairs=256)
RUN = "0" * 32
#: A part of the space, so that the tests are quick.
FIXED = {"placement": ("THREAD", "SHARED"), "rows_in_flight": (1, 2), "prefetch": 0}


@pytest.fixture(scope="module")
def key() -> Key:
    with open_device("fake") as device:
        return key_of(device.info, SPEC, HERE)


@pytest.fixture(scope="module")
def space() -> Candidates:
    return space_of(HERE)


def space_of(problem: Problem) -> Candidates:
    with open_device("fake") as device:
        return candidates(SPEC, problem, traits_of(device.info), FIXED)


def truth(config: Config) -> float:
    """Made-up seconds: fastest with wide vectors and few work-items."""
    return 1e-5 * (1 + 4 / int(config["vector_width"])) * (1 + 0.1 * abs(math.log2(int(config["block_size"]) / 64)))


def recorded(key: Key, problem: Problem = OTHER) -> list[TrialRecord]:
    """Records of every eighth configuration."""
    return [
        TrialRecord(run=RUN, key=key, config=config, status="ok", times=(truth(config),))
        for config in space_of(problem).configs[::8]
    ]


def of_other_problem(key: Key) -> Key:
    with open_device("fake") as device:
        return key_of(device.info, SPEC, OTHER)


def expected(space: Candidates, key: Key, trials: Sequence[TrialRecord]) -> tuple[float, ...]:
    return with_expected(space, MMSB, key, Index.of_trials(trials), 10).expected


def test_records_of_another_problem_order_the_configurations(space: Candidates, key: Key) -> None:
    found = expected(space, key, recorded(of_other_problem(key)))
    # Slowdowns above e^0.5 are clipped.
    true = np.log([truth(config) for config in space.configs])
    assert np.corrcoef(found, np.minimum(true, true.min() + 0.5))[0, 1] > 0.7


def test_keys_that_leave_out_a_parameter_have_its_default(space: Candidates, key: Key) -> None:
    own = of_other_problem(key)
    fewer = {name: value for name, value in own.problem.params.items() if name == "K"}
    older = replace(own, problem=replace(own.problem, params=fewer))
    both = expected(space, key, [*recorded(own), *recorded(older)])
    assert len(both) == len(space.configs)
    assert expected(space, key, [*recorded(older), *recorded(own)]) == both


def test_records_of_other_devices_do_not_count(space: Candidates, key: Key) -> None:
    own = of_other_problem(key)
    other = replace(own, device=replace(own.device, name="another", architecture="new"))
    assert expected(space, key, recorded(other)) == ()
    assert expected(space, key, [*recorded(other), *recorded(own)]) == expected(space, key, recorded(own)) != ()


def test_a_keys_own_records_do_not_count_so_that_a_run_that_goes_on_has_the_same_order(
    space: Candidates, key: Key
) -> None:
    others = recorded(of_other_problem(key))
    assert expected(space, key, recorded(key, HERE)) == ()
    assert expected(space, key, [*others, *recorded(key, HERE)]) == expected(space, key, others)


def test_a_space_that_is_tried_as_a_whole_asks_no_records(space: Candidates, key: Key) -> None:
    index = Index.of_trials(recorded(of_other_problem(key)))
    assert with_expected(space, MMSB, key, index, len(space.configs)) is space


def searched(space: Candidates, budget: int) -> list[Config]:
    seen: list[Config] = []

    def ask(configs: Sequence[Config]) -> list[float]:
        for config in configs:
            if config not in seen:
                if len(seen) == budget:
                    raise BudgetSpentError
                seen.append(config)
        return [truth(config) for config in configs]

    search("default", space, ask, budget=budget, seed=1)
    return seen


def test_the_first_trials_are_those_that_records_of_the_device_like_best(space: Candidates) -> None:
    slowdowns = tuple(float(index) for index in reversed(range(len(space.configs))))
    seen = searched(replace(space, expected=slowdowns), 12)
    assert seen[:4] == [space.default, *reversed(space.configs[-3:])]


def test_what_was_expected_wrongly_costs_trials_and_not_the_result(space: Candidates) -> None:
    wrong = tuple(-math.log(truth(config)) for config in space.configs)
    seen = searched(replace(space, expected=wrong), 30)
    assert min(map(truth, seen)) <= 1.05 * min(map(truth, space.configs))


def test_a_tune_begins_with_what_the_store_knows_of_other_problems(store: Store, space: Candidates, key: Key) -> None:
    trials = recorded(of_other_problem(key))
    run = RunRecord(uuid=RUN, started=utc_now(), strategy="exhaustive", budget={}, seed=0)
    store.add_bundle(Bundle([run], [], trials))
    known = with_expected(space, MMSB, key, Index(store), 8).expected
    likely = [space.configs[index] for index in np.argsort(known, kind="stable")]
    report = tune(
        "fake",
        MMSB,
        ["update_phi"],
        HERE,
        store=store,
        budget_trials=8,
        fixed=FIXED,
        check=False,
        patience=Patience(repetitions=3, enough_s=0.0),
        roof_bytes=16 << 20,
    )
    first = [trial.config for trial in report.kernels[0].trials[:4]]
    assert first == [space.default, *[config for config in likely if config != space.default][:3]]
