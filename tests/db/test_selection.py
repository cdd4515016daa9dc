from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from mmsbgen.db.exchange import jsonl
from mmsbgen.db.exchange.jsonl import Bundle
from mmsbgen.db.records.nearness import parts, problem_distance
from mmsbgen.db.records.tuning_records import Key
from mmsbgen.db.selection.explain_selection import nearest
from mmsbgen.db.selection.index import Index, Selection
from mmsbgen.db.store.tuning_store import Store

DEFAULT = {"block": 1}


def choose(index: Index, key: Key, **changes: Any) -> Selection:
    return index.select(key, **{"valid": lambda config: True, "default": DEFAULT, **changes})


def test_nothing_recorded_gives_the_default(make: Any) -> None:
    chosen = choose(Index.of_trials([]), make.key())
    assert chosen.config == DEFAULT
    assert chosen.tier == "default"
    assert chosen.trial_ref is None
    assert chosen.expected_s is None
    assert "no record for this kernel" in chosen.reason


def test_exact_takes_the_fastest_ok_trial(make: Any) -> None:
    fastest = make.trial(config={"n": 1}, time=1.0)
    index = Index.of_trials(
        [make.trial(config={"n": 0}, time=2.0), fastest, make.trial(config={"n": 2}, time=0.1, status="wrong_result")]
    )
    chosen = choose(index, make.key())
    assert chosen.config == {"n": 1}
    assert chosen.tier == "exact"
    assert chosen.trial_ref == fastest.uid
    assert chosen.expected_s == 1.0
    assert chosen.reason == "tuned for this device, driver, compiler, template and problem"


def test_invalid_records_are_passed_over(make: Any) -> None:
    index = Index.of_trials([make.trial(config={"n": n}, time=1.0 + n) for n in range(3)])
    chosen = choose(index, make.key(), valid=lambda config: config["n"] == 2)
    assert chosen.config == {"n": 2}
    assert "2 records are not valid here" in chosen.reason
    chosen = choose(index, make.key(), valid=lambda config: False)
    assert chosen.tier == "default"
    assert chosen.reason == "no usable record for this kernel; 3 records are not valid here"


def test_nearest_problem_on_the_same_device(make: Any) -> None:
    def key(width: int, dtype: str = "float32") -> Key:
        return make.key(params={"width": width, "dtype": dtype})

    index = Index.of_trials(
        [
            make.trial(key(1024), config={"for": 1024}, time=5.0),
            make.trial(key(64), config={"for": 64}, time=1.0),
            make.trial(key(512, "float64"), config={"for": 512}, time=1.0),
        ]
    )
    chosen = choose(index, key(500))
    assert chosen.config == {"for": 1024}
    assert chosen.tier == "problem"
    assert chosen.reason == "no record for width=500: nearest has width=1024"
    assert choose(index, key(100)).config == {"for": 64}
    assert choose(index, key(100, "float16")).tier == "default"


def test_irrelevant_parameters_add_no_distance_but_are_not_exact(make: Any) -> None:
    index = Index.of_trials([make.trial(make.key(params={"width": 64, "step": "split"}))])
    key = make.key(params={"width": 64, "step": "reflected"})
    assert choose(index, key).tier == "default"
    chosen = choose(index, key, irrelevant={"step"})
    assert chosen.tier == "problem"
    assert chosen.reason == "no record for step=reflected: nearest has step=split"
    chosen = choose(index, make.key(params={"width": 64}), irrelevant=["step"])
    assert chosen.tier == "problem"
    assert chosen.reason == "no record for step=(none): nearest has step=split"
    chosen = choose(index, make.key(params={"width": 32, "step": "reflected"}), irrelevant=["step"])
    assert chosen.reason == "no record for step=reflected, width=32: nearest has step=split, width=64"
    assert choose(index, make.key(params={"width": 64, "step": "split"}), irrelevant=["step"]).tier == "exact"


def test_a_parameter_that_is_left_out_has_its_implied_value(make: Any) -> None:
    """Records of a sparse graph are no nearer to a dense one for being faster, and old ones lack the parameter."""
    index = Index.of_trials(
        [
            make.trial(make.key(params={"width": 64}), config={"for": "none"}, time=1.0),
            make.trial(make.key(params={"width": 64, "degree": 48}), config={"for": 48}, time=8.0),
        ]
    )

    def chosen(**more: int) -> Any:
        return choose(index, make.key(params={"width": 64, **more}), implied={"degree": 6})

    assert (chosen(degree=24).config, chosen(degree=24).tier) == ({"for": 48}, "problem")
    assert chosen(degree=12).config == {"for": "none"}
    assert (chosen().config, chosen().tier) == ({"for": "none"}, "exact")


def test_exact_records_come_before_faster_ones_that_differ_in_irrelevant_parameters(
    memory: Store, make: Any, tmp_path: Path
) -> None:
    def key(step: str, noise: bool = True) -> Key:
        return make.key(params={"width": 64, "step": step, "noise": noise})

    def from_(name: str, of: Key, time: float) -> Any:
        return make.trial(of, config={"from": name}, time=time)

    exact = from_("exact", key("split"), 9.0)
    one, two = from_("one", key("reflected"), 5.0), from_("two", key("reflected", False), 1.0)
    soft = {"step", "noise"}
    chosen = choose(Index.of_trials([two, one, exact]), key("split"), irrelevant=soft)
    assert (chosen.tier, chosen.config) == ("exact", {"from": "exact"})
    chosen = choose(Index.of_trials([two, one]), key("split"), irrelevant=soft)
    assert (chosen.tier, chosen.config) == ("problem", {"from": "one"}), "the one that differs in less"
    assert chosen.reason == "no record for step=split: nearest has step=reflected"

    jsonl.write(Bundle(runs=[make.run], trials=[exact]), tmp_path / "a.jsonl")
    memory.add_trial(one)
    chosen = choose(Index(memory, shipped=tmp_path), key("split"), irrelevant=soft)
    assert (chosen.tier, chosen.config) == ("exact", {"from": "exact"}), "a shipped exact one before an own near one"


def test_another_driver_or_toolchain_is_the_architecture_tier(make: Any) -> None:
    index = Index.of_trials([make.trial(make.key(driver="550.2"))])
    chosen = choose(index, make.key())
    assert chosen.tier == "architecture"
    assert chosen.reason == "no record for driver 580.1: nearest has driver 550.2"
    chosen = choose(index, make.key(driver="550.2", options=""))
    assert chosen.tier == "architecture"
    assert chosen.reason == "no record for compiler options (none): nearest has compiler options -O3"


def test_architecture_then_vendor(make: Any) -> None:
    h100 = make.trial(make.key(name="H100", driver="1"), config={"on": "H100"})
    a100 = make.trial(make.key(name="A100", architecture="sm_80"), config={"on": "A100"})
    mi300 = make.trial(make.key(name="MI300", vendor="AMD", architecture="gfx942"), config={"on": "MI300"})
    opencl = make.trial(make.key(backend="opencl"), config={"on": "opencl"})
    everything = [opencl, mi300, a100, h100]
    chosen = choose(Index.of_trials(everything), make.key())
    assert (chosen.tier, chosen.config) == ("architecture", {"on": "H100"})
    assert chosen.reason == "no record for device H200: nearest has device H100"
    chosen = choose(Index.of_trials(everything[:3]), make.key())
    assert (chosen.tier, chosen.config) == ("vendor", {"on": "A100"})
    assert choose(Index.of_trials(everything[:2]), make.key()).tier == "default"


def test_unknown_architectures_are_not_the_same(make: Any) -> None:
    index = Index.of_trials([make.trial(make.key(name="Xeon", architecture="", vendor="Intel", kind="cpu"))])
    assert choose(index, make.key(name="Core", architecture="", vendor="Intel", kind="cpu")).tier == "vendor"
    assert choose(index, make.key(name="Arc", architecture="", vendor="Intel", kind="gpu")).tier == "default"


def test_same_device_comes_before_nearer_problem_elsewhere(make: Any) -> None:
    far = make.key(driver="1", params={"width": 8})
    index = Index.of_trials(
        [make.trial(far, config={"on": "H200"}), make.trial(make.key(name="H100"), config={"on": "H100"})]
    )
    assert choose(index, make.key(params={"width": 1024})).config == {"on": "H200"}


def test_next_tier_when_the_better_one_has_nothing_valid(make: Any) -> None:
    index = Index.of_trials([make.trial(config={"n": 0}), make.trial(make.key(name="H100"), config={"n": 1})])
    chosen = choose(index, make.key(), valid=lambda config: config["n"] == 1)
    assert chosen.tier == "architecture"
    assert chosen.reason.endswith("1 record is not valid here")


def test_the_next_device_of_a_tier_is_asked_too(make: Any) -> None:
    near = make.trial(make.key(driver="1"), config={"n": 0})
    index = Index.of_trials([near, make.trial(make.key(name="H100"), config={"n": 1})])
    for _ in range(2):
        chosen = choose(index, make.key(), valid=lambda config: config["n"] == 1)
        assert (chosen.tier, chosen.config) == ("architecture", {"n": 1})
        assert chosen.reason == "no record for device H200: nearest has device H100; 1 record is not valid here"


def test_shipped_records_are_used_where_the_users_are_not_valid(memory: Store, make: Any, tmp_path: Path) -> None:
    jsonl.write(Bundle(runs=[make.run], trials=[make.trial(config={"from": "package"})]), tmp_path / "h200.jsonl")
    memory.add_trial(make.trial(config={"from": "user"}))
    index = Index(memory, shipped=tmp_path)
    chosen = choose(index, make.key(), valid=lambda config: config["from"] == "package")
    assert (chosen.tier, chosen.config) == ("exact", {"from": "package"})


def test_other_template_is_stale_and_never_used(make: Any) -> None:
    old = [make.trial(make.key(template="old"), config={"n": n}, time=1e-6) for n in range(3)]
    chosen = choose(Index.of_trials(old), make.key())
    assert chosen.tier == "default"
    assert chosen.reason.endswith("3 records have another template digest: stale")
    chosen = choose(Index.of_trials([*old, make.trial(make.key(driver="1"))]), make.key())
    assert chosen.tier == "architecture"
    assert chosen.reason.endswith("; 3 records have another template digest: stale")
    assert "stale" not in choose(Index.of_trials([*old, make.trial()]), make.key()).reason


def test_other_kernels_do_not_matter(make: Any) -> None:
    assert choose(Index.of_trials([make.trial(make.key(kernel="scatter"))]), make.key()).tier == "default"


@pytest.mark.alone
def test_warm_look_up_does_no_io_and_is_fast(memory: Store, make: Any) -> None:
    for width in range(1, 51):
        for n in range(4):
            memory.add_trial(make.trial(make.key(params={"width": width}), config={"n": n}, time=1.0 + n))
    statements: list[str] = []
    event.listen(memory.database.engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    index = Index(memory, shipped=None)
    key = make.key(params={"width": 60})
    first = choose(index, key)
    assert statements
    statements.clear()
    memory.close()
    started = time.perf_counter()
    for _ in range(100):
        assert choose(index, key) == first
    assert (time.perf_counter() - started) / 100 < 1e-3
    assert statements == []
    assert choose(index, make.key(params={"width": 20})).tier == "exact"
    assert statements == []


def test_records_are_read_once(memory: Store, make: Any) -> None:
    index = Index(memory, shipped=None)
    assert choose(index, make.key()).tier == "default"
    memory.add_trial(make.trial())
    assert choose(index, make.key()).tier == "default"
    assert choose(Index(memory, shipped=None), make.key()).tier == "exact"


@pytest.mark.parametrize("name", ["h200.jsonl", "h200.jsonl.gz"])
def test_shipped_records_are_used_but_the_users_win(memory: Store, make: Any, tmp_path: Path, name: str) -> None:
    shipped = make.trial(config={"from": "package"}, time=1e-6)
    jsonl.write(Bundle(runs=[make.run], trials=[shipped]), tmp_path / name)
    chosen = choose(Index(memory, shipped=tmp_path), make.key())
    assert chosen.config == {"from": "package"}
    assert chosen.reason.endswith(f"(shipped in {name})")
    assert choose(Index(shipped=tmp_path), make.key()).tier == "exact"
    memory.add_trial(make.trial(config={"from": "user"}, time=1.0))
    assert choose(Index(memory, shipped=tmp_path), make.key()).config == {"from": "user"}


def test_caller_may_change_the_answer(make: Any) -> None:
    index = Index.of_trials([make.trial()])
    choose(index, make.key()).config["block"] = 0
    assert choose(index, make.key()).config == {"block": 64}


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [
        ({"n": 2, "m": 3}, {"n": 2.0, "m": 3}, 0.0),
        ({"n": 1}, {"n": 10}, 2.302585093),
        ({"n": 1, "m": 10}, {"n": 10, "m": 1}, 4.605170186),
        ({"n": 0}, {"n": 0}, 0.0),
        ({"n": 0}, {"n": 1}, float("inf")),
        ({"n": 1}, {}, float("inf")),
        ({"t": "a"}, {"t": "b"}, float("inf")),
        ({"t": True}, {"t": 1}, float("inf")),
        ({"n": 10**400}, {"n": 10**401}, 2.302585093),
    ],
)
def test_distance(a: dict[str, Any], b: dict[str, Any], distance: float) -> None:
    assert problem_distance(a, b) == pytest.approx(distance)
    assert problem_distance(b, a) == pytest.approx(distance)


@pytest.mark.parametrize(
    ("changes", "part", "wanted", "found"),
    [
        ({"driver": "590"}, "driver", "590", "580.1"),
        ({"options": "-O0"}, "compiler options", "-O0", "-O3"),
        ({"template": "bbbb"}, "template digest", "bbbb", "aaaa"),
        ({"params": {"width": 1, "count": 4096, "dtype": "float32"}}, "problem.width", 1, 1024),
        ({"name": "H300"}, "device", "H300", "H200"),
        ({"compute_units": 60}, "compute units", 60, 132),
    ],
)
def test_explain_names_the_part_that_differs(
    memory: Store, make: Any, changes: dict[str, Any], part: str, wanted: Any, found: Any
) -> None:
    memory.add_trial(make.trial(config={"n": 0}))
    memory.add_trial(make.trial(make.key(name="Radeon", vendor="AMD", architecture="gfx"), config={"n": 1}))
    key = make.key(**changes)
    near = nearest(parts(key), Index(memory).groups(key))[0]
    (difference,) = near.differences
    assert (difference.part, difference.wanted, difference.found) == (part, wanted, found)
    assert near.stale == (part == "template digest")


def test_explain_an_exact_record_and_an_empty_store(memory: Store, make: Any) -> None:
    assert nearest(parts(make.key()), Index(memory).groups(make.key())) == []
    memory.add_trial(make.trial())
    (near,) = nearest(parts(make.key()), Index(memory).groups(make.key()))
    assert near.differences == ()
    assert near.configurations == 1


def test_a_stale_record_hides_no_current_one_of_its_configuration(make: Any) -> None:
    """The older run re-timed its finalists, so its records rank first."""
    older, newer = (
        {"run": run, "created_at": f"{year}-01-01T00:00:00Z"} for run, year in (("a" * 32, 2025), ("b" * 32, 2026))
    )
    old = [make.trial(time=1e-3, round=1, extra={"program": "old"}, **older)]
    old.append(make.trial(config={"block": 32}, time=2e-3, round=1, extra={"program": "old"}, **older))
    new = make.trial(time=3e-3, extra={"program": "new"}, **newer)
    index = Index.of_trials([*old, new])
    chosen = choose(index, make.key(), program=lambda key, config: "new")
    assert (chosen.tier, chosen.config, chosen.trial_ref) == ("exact", {"block": 64}, new.uid)
    again = choose(Index.of_trials([*old, new]), make.key(), program=lambda key, config: "old")
    assert again.trial_ref in {trial.uid for trial in old}, "the package of before finds its own"
    (near,) = nearest(parts(make.key()), index.groups(make.key()))
    assert near.configurations == 2


def test_many_stale_records_hide_no_current_one(make: Any) -> None:
    rendered: list[int] = []

    def program(key: Key, config: Any) -> str:
        rendered.append(config["n"])
        return "new"

    trials = []
    for n in range(100):
        config = {"n": n}
        trials.append(
            make.trial(config=config, time=1.0 + n, extra={"program": "old"}, created_at="2025-01-01T00:00:00Z")
        )
    key = make.key()
    stale = choose(Index.of_trials(trials), key, program=program)
    assert (stale.tier, len(rendered)) == ("default", 64), "rendering is bounded"
    rendered.clear()
    newer = make.trial(config={"n": 99}, time=500.0, run="b" * 32, extra={"program": "new"})
    chosen = choose(Index.of_trials([*trials, newer]), key, program=program)
    assert (chosen.trial_ref, chosen.expected_s) == (newer.uid, 500.0)
    assert len(rendered) == 65
