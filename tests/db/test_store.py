from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from mmsbgen.base.errors import InputError
from mmsbgen.db.records.ranking import candidate, ranked
from mmsbgen.db.records.tuning_records import RoofRecord, RunRecord, TrialRecord, newest_rates
from mmsbgen.db.selection.index import Index
from mmsbgen.db.store.tuning_store import Store


def full_trial(make: Any) -> TrialRecord:
    return make.trial(
        config={"block": 64, "place": "RRS", "deep": [1, {"x": None}]},
        message="warning: \0 näh \udc80",
        times=(3e-3, 1e-3, 2e-3, 0.1 + 0.2),
        bytes_moved=2**40,
        roof_gbps=4000.5,
        registers=40,
        spill_bytes=0,
        shared_bytes=1024,
        compile_s=1.25,
        energy_j=0.5,
        round=2,
        extra={"origin": {"text": "nul \0"}},
    )


def test_trial_comes_back_as_it_went(store: Store, make: Any) -> None:
    trial = full_trial(make)
    assert store.add_trial(trial)
    (back,) = store.trials()
    assert back == trial
    assert "\0" not in back.message
    assert back.uid == trial.uid
    assert back.median_s == pytest.approx(2.5e-3)
    assert back.roof_fraction == pytest.approx(2**40 / 2.5e-3 / 1e9 / 4000.5)


def test_same_trial_is_stored_once(store: Store, make: Any) -> None:
    trial = make.trial()
    assert store.add_trial(trial)
    assert not store.add_trial(replace(trial, times=(9.0,)))
    assert store.add_trial(replace(trial, round=1))
    assert [t.round for t in store.trials()] == [1, 0]


def test_trial_of_unknown_run_is_refused(store: Store, make: Any) -> None:
    with pytest.raises(InputError, match="begin it first"):
        store.add_trial(make.trial(run="f" * 32))
    assert store.trials() == []


def test_filters(store: Store, make: Any) -> None:
    keys = [
        make.key(),
        make.key(kernel="scatter", params={"width": 7, "dtype": "float64"}),
        make.key(name="Radeon", vendor="AMD"),
    ]
    for n, key in enumerate(keys):
        store.add_trial(make.trial(key, config={"n": n}))
    store.add_trial(make.trial(status="timeout", time=None, message="10 s", config={"n": 3}))

    def found(**filters: Any) -> list[int]:
        return sorted(t.config["n"] for t in store.trials(**filters))

    assert found() == [0, 1, 2, 3]
    assert found(kernel="scatter") == [1]
    assert found(kernel="rows/gather") == [0, 2, 3]
    assert found(kernel="other/gather") == []
    assert found(device="radeon") == [2]
    assert found(device="CUDA: H") == [0, 1, 3]
    assert found(problem={"width": 7}) == [1]
    assert found(problem={"width": 7, "dtype": "float32"}) == []
    assert found(status="timeout") == [3]
    assert found(key=keys[0]) == [0, 3]
    assert found(run=make.run.uuid) == [0, 1, 2, 3]
    assert found(run="f" * 32) == []
    assert len(store.trials(limit=2)) == 2
    assert {d.name for d in store.devices()} == {"H200", "Radeon"}
    assert {p.params["width"] for p in store.problems()} == {7, 1024}


def test_a_device_is_one_row_whatever_its_description(store: Store, make: Any) -> None:
    store.add_trial(make.trial(make.key(memory_bytes=1)))
    store.add_trial(make.trial(make.key(memory_bytes=2, extra={"bus": 3}), config={}))
    (device,) = store.devices()
    assert device.memory_bytes == 1


def test_runs_begin_resume_and_end(store: Store, make: Any) -> None:
    run = RunRecord(strategy="random", budget={"trials": 3}, seed=2**62, versions={"a": "b"}, extra={"who": "me"})
    store.begin_run(run)
    assert run in store.runs()
    store.finish_run(run.uuid, status="interrupted")
    (ended,) = [r for r in store.runs() if r.uuid == run.uuid]
    assert ended.status == "interrupted"
    assert ended.finished is not None
    assert ended.finished >= run.started
    store.begin_run(run)
    assert run in store.runs()
    with pytest.raises(InputError, match="begin it first"):
        store.finish_run("f" * 32)
    with pytest.raises(ValueError, match="status"):
        store.finish_run(run.uuid, status="done")


def test_roofs(store: Store, make: Any) -> None:
    roofs = [
        RoofRecord(run=make.run.uuid, device=make.device(), kind="copy", gbps=4272.0),
        RoofRecord(run=make.run.uuid, device=make.device(), kind="gather", row_bytes=4096, gbps=4323.0),
        RoofRecord(run=make.run.uuid, device=make.device(driver="1"), kind="copy", gbps=1.0),
        RoofRecord(run=make.run.uuid, device=make.device(driver="1"), kind="update in 4 MiB", row_bytes=64, gbps=2.0),
        RoofRecord(run=make.run.uuid, device=make.device(driver="1"), kind="launch", gbps=1e-4),
    ]
    store.add_roofs(roofs)
    store.add_roofs(roofs)
    assert set(r.uid for r in store.roofs()) == {r.uid for r in roofs}
    assert sorted(r.gbps for r in store.roofs(device=make.device())) == [4272.0, 4323.0]
    assert [roof.run for roof in store.roofs()].count(make.run.uuid) == 5
    assert newest_rates(roofs)[1][make.device(driver="1").key] == {}, "no gathers"
    for kind, row_bytes in (("updates", 64), ("update in 4 MiB", None), ("launch", 64), ("gather", None)):
        with pytest.raises(ValueError, match="kind must be one of|a roof of rows has row_bytes"):
            RoofRecord(run=make.run.uuid, device=make.device(), kind=kind, row_bytes=row_bytes, gbps=1.0)


def test_best_is_exact_and_ok(store: Store, make: Any) -> None:
    store.add_trial(make.trial(config={"n": 0}, time=2.0))
    store.add_trial(make.trial(config={"n": 1}, time=1.0))
    store.add_trial(make.trial(config={"n": 2}, time=0.5, status="wrong_result"))
    store.add_trial(make.trial(make.key(driver="1"), config={"n": 3}, time=0.1))
    best = store.best(make.key())
    assert best is not None
    assert best.config == {"n": 1}
    assert store.best(make.key(driver="2")) is None


def test_finalists_outrank_the_search(make: Any) -> None:
    def trial(name: str, time: float, **changes: Any) -> TrialRecord:
        return make.trial(config={"name": name}, time=time, **changes)

    other = "f" * 32
    trials = [
        trial("a", 1.00),
        trial("b", 1.01),
        trial("c", 1.02),
        trial("a", 1.10, round=1),
        trial("b", 1.08, round=1),
        trial("d", 1.05, run=other),
        trial("e", 1.09, run=other),
    ]
    names = {t.uid: (t.config["name"], t.round) for t in trials}
    order = [names[c.uid] for c in ranked(map(candidate, trials))]
    assert order == [("d", 0), ("b", 1), ("e", 0), ("a", 1), ("c", 0)]


def _minute(minute: int) -> str:
    return f"2026-01-01T00:{minute:02}:00Z"


def test_the_verdict_of_a_later_run_stands(store: Store, make: Any) -> None:
    """A run that was killed before its finals, and the one that went on from what it had."""
    later = RunRecord(strategy="again")
    store.begin_run(later)

    def add(name: str, time: float, minute: int, **changes: Any) -> None:
        store.add_trial(make.trial(config={"name": name}, time=time, created_at=_minute(minute), **changes))

    def order() -> list[tuple[str, int]]:
        (found,) = Index(store, shipped=None).groups(make.key())
        return [(json.loads(c.config_json)["name"], c.round) for c in found.candidates]

    for name, time in (("x", 0.95), ("y", 0.97), ("z", 0.99)):
        add(name, time, 1)
    assert order() == [("x", 0), ("y", 0), ("z", 0)]
    add("y", 1.00, 2, run=later.uuid, round=2)
    add("x", 1.10, 2, run=later.uuid, round=1)
    best = store.best(make.key())
    assert best is not None
    assert (best.config, best.round) == ({"name": "y"}, 2)
    assert order() == [("y", 2), ("x", 1), ("z", 0)], "z was slower than both beside them"


def test_a_tune_from_the_start_replaces_what_it_measured_again(make: Any) -> None:
    def trial(name: str, time: float, run: int, **changes: Any) -> TrialRecord:
        return make.trial(config={"name": name}, time=time, run=f"{run:032}", created_at=_minute(run), **changes)

    before = [trial("a", 1.0, 1, round=2), trial("b", 1.1, 1, round=1), trial("c", 1.2, 1)]
    killed = [trial("b", 0.5, 3)]
    retuned = [trial("a", 1.5, 2), trial("b", 1.3, 2, round=2), trial("d", 1.29, 2, round=1)]
    for trials in (before + killed + retuned, retuned + killed + before):
        found = ranked(map(candidate, trials))
        names = {t.uid: (t.config["name"], int(t.run)) for t in trials}
        assert [names[c.uid] for c in found] == [("b", 2), ("d", 2), ("a", 2), ("c", 1)]


def test_a_part_of_the_space_does_not_bar_the_rest(make: Any) -> None:
    """A run with fixed axes says nothing of what it did not time."""

    def trial(name: str, time: float, run: int, **changes: Any) -> TrialRecord:
        return make.trial(config={"name": name}, time=time, run=f"{run:032}", created_at=_minute(run), **changes)

    trials = [trial("a", 0.5, 1), trial("b", 0.9, 1), trial("b", 1.0, 2, round=2), trial("c", 1.1, 2, round=1)]
    assert [json.loads(c.config_json)["name"] for c in ranked(map(candidate, trials))] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"times": (math.nan,)}, "positive seconds"),
        ({"times": (math.inf,)}, "positive seconds"),
        ({"times": (0.0,)}, "positive seconds"),
        ({"times": ()}, "needs times"),
        ({"status": "good"}, "status must be one of"),
        ({"config": {"x": math.nan}}, "JSON"),
        ({"roof_gbps": math.inf}, "roof_gbps"),
        ({"registers": -1}, "registers"),
        ({"bytes_moved": 2**63}, "bytes_moved"),
        ({"bytes_moved": 1.5}, "bytes_moved"),
        ({"created_at": "2026-01-01T00:00:00"}, "offset"),
        ({"run": "me"}, "UUID"),
    ],
)
def test_records_refuse_what_would_lie(make: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make.trial(**changes)


def test_records_take_plain_json_of_library_scalars(make: Any) -> None:
    numpy = pytest.importorskip("numpy")
    trial = make.trial(config={"block": numpy.int32(64), "fast": numpy.bool_(True)}, bytes_moved=numpy.int64(5))
    assert trial.config == {"block": 64, "fast": True}
    assert type(trial.config["block"]) is int
    assert trial.config_digest == make.trial(config={"fast": True, "block": 64}).config_digest


def test_times_are_kept_in_utc(make: Any) -> None:
    trial = make.trial(created_at="2026-01-01T01:30:00+02:00")
    assert trial.created_at == "2025-12-31T23:30:00.000000Z"
