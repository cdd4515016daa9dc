"""Which configuration a kernel gets, from an empty database to a stored tune for exactly this problem."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import numpy as np
import pytest

from mmsbgen.backends import open_device
from mmsbgen.backends.fake import FakeDevice, FakeEvent, FakeKernel
from mmsbgen.backends.opencl.opencl_device import OpenCLKernel
from mmsbgen.base.errors import CompileError, InputError, LaunchError
from mmsbgen.db.records.tuning_records import RunRecord, TrialRecord
from mmsbgen.db.selection.index import Index
from mmsbgen.db.store.tuning_store import open_store
from mmsbgen.detection.detect import Request, perform
from mmsbgen.families.mmsb import MMSB
from mmsbgen.kernels import runtime
from mmsbgen.kernels.build import upload
from mmsbgen.kernels.record_key import key_of
from mmsbgen.kernels.runtime import KernelChoice, Runtime, by_tier
from mmsbgen.kernels.space import describe
from tests.records import program

pytestmark = pytest.mark.opencl

LINKS = np.array([(a, (a + step) % 40) for a in range(40) for step in (1, 2, 5)])
TUNED = {
    "placement": "THREAD",
    "team": "item",
    "vector_width": 2,
    "block_size": 2,
    "rows_in_flight": 1,
    "prefetch": 0,
    "normalise": True,
    "reduction": "none",
}


def tiers(found) -> dict[str, str]:
    return {kernel["kernel"]: kernel["tier"] for kernel in found.record["kernels"]}


def detect(database: Path, k: int = 5, **more):
    messages: list[str] = []
    options = {"n_communities": k, "iterations": 3, "mini_batch": "random-node", "mini_batch_size": 8, "n_partners": 4}
    request = Request(
        options, device="pocl", database=database, on_message=messages.append, on_detail=messages.append, **more
    )
    return perform(LINKS, request), "\n".join(messages)


def store(database: Path, problem: dict, *configs: dict, kernel: str = "update_phi", **device: str) -> None:
    """Store a tune of a kernel on PoCL, of the problem that a run had, for a device with some other values."""
    spec = MMSB.kernel(kernel)
    with open_device("pocl") as pocl, open_store(database) as there:
        info = dataclasses.replace(pocl.info, **device)
        run = RunRecord(strategy="exhaustive")
        there.begin_run(run)
        for place, config in enumerate(configs):
            key = key_of(info, spec, MMSB.problem(**problem))
            times, extra = (1e-3 * (1 + place),), program(key, config)
            there.add_trial(TrialRecord(run=run.uuid, key=key, config=config, status="ok", times=times, extra=extra))


def test_a_run_without_a_database_says_that_it_takes_defaults(tmp_path):
    found, messages = detect(tmp_path / "empty.sqlite3")
    assert set(tiers(found).values()) == {"default"}
    assert f"There is no tuning database at {tmp_path / 'empty.sqlite3'}: no records of yours are used." in messages
    assert messages.count("no record for this kernel") == 1, "one line for all kernels alike"
    assert not (tmp_path / "empty.sqlite3").exists()


def test_tiers_from_exact_to_default(tmp_path):
    problem = detect(tmp_path / "none")[0].record["problem"]
    exact = tmp_path / "exact.sqlite3"
    store(exact, problem, TUNED)
    found, messages = detect(exact)
    assert tiers(found)["update_phi"] == "exact"
    kernels = {kernel["kernel"]: kernel for kernel in found.record["kernels"]}
    assert kernels["update_phi"]["config"] == TUNED
    assert tiers(found)["theta_partial"] == "default"
    assert "Configurations, exact: update_phi (tuned for this device" in messages
    untuned = detect(tmp_path / "none")[0]
    assert kernels["update_phi"]["config"] != untuned.record["kernels"][1]["config"]

    assert tiers(detect(exact, k=6)[0])["update_phi"] == "problem"
    for tier, changes in (
        ("architecture", {"driver": "another", "compiler": "another 1"}),
        ("vendor", {"name": "another", "architecture": "another"}),
        ("default", {"name": "another", "architecture": "another", "vendor": "another"}),
    ):
        database = tmp_path / f"{tier}.sqlite3"
        store(database, problem, TUNED, **changes)
        found, messages = detect(database)
        assert tiers(found)["update_phi"] == tier
        assert f"{tier}: " in messages


def test_a_stored_configuration_that_is_not_valid_here_is_passed_over(tmp_path):
    problem = detect(tmp_path / "none")[0].record["problem"]
    database = tmp_path / "tune.sqlite3"
    store(database, problem, TUNED | {"vector_width": 3}, TUNED)
    found, messages = detect(database)
    assert tiers(found)["update_phi"] == "exact"
    assert "1 record is not valid here" in messages


def crashing(monkeypatch, *configs: dict) -> list[dict]:
    """Let the compiler crash for these configurations of update_phi; returns all of it that are tried."""
    real, tried = runtime.build, []

    def build(device, spec, problem, config, *more):
        if spec.name == "update_phi":
            tried.append(dict(config))
        if dict(config) in configs:
            raise CompileError("the compiler crashed")
        return real(device, spec, problem, config, *more)

    monkeypatch.setattr(runtime, "build", build)
    return tried


def test_one_that_does_not_compile_is_reported_and_replaced_by_the_next_best(tmp_path, monkeypatch, caplog):
    problem = detect(tmp_path / "none")[0].record["problem"]
    database = tmp_path / "tune.sqlite3"
    configs = [TUNED | {"block_size": block} for block in (1, 2, 4)]
    store(database, problem, *configs)
    tried = crashing(monkeypatch, *configs[:2])
    found, messages = detect(database)
    kernel = next(kernel for kernel in found.record["kernels"] if kernel["kernel"] == "update_phi")
    assert (kernel["tier"], kernel["config"]) == ("exact", configs[2])
    assert tried[:3] == configs
    assert all(tried.count(config) == 1 for config in configs[:2])
    assert caplog.text.count("the compiler crashed") == 2, "once each"
    for block in (1, 2):
        assert f"the configuration of tier exact did not compile: {describe(configs[block - 1])}" in messages
    assert "`mmsbgen tune` finds" not in messages


def test_the_default_is_taken_when_nothing_else_compiles(tmp_path, monkeypatch, caplog):
    problem = detect(tmp_path / "none")[0].record["problem"]
    database = tmp_path / "tune.sqlite3"
    store(database, problem, TUNED)
    store(database, problem, TUNED, TUNED | {"block_size": 4}, driver="another")
    tried = crashing(monkeypatch, TUNED, TUNED | {"block_size": 4})
    found, messages = detect(database)
    assert tiers(found)["update_phi"] == "default"
    assert tried[:2] == [TUNED, TUNED | {"block_size": 4}], "the same one of another tier is not tried again"
    for tier in ("exact", "architecture"):
        assert f"the configuration of tier {tier} did not compile" in messages
    assert caplog.text.count("the compiler crashed") == 2


def test_a_kept_one_that_does_not_compile_is_looked_up(tmp_path, monkeypatch, caplog):
    other = TUNED | {"block_size": 4}
    problem = MMSB.problem(**detect(tmp_path / "none")[0].record["problem"])
    store(tmp_path / "tune.sqlite3", dict(problem), other)
    crashing(monkeypatch, TUNED)
    with open_device("pocl") as device, open_store(tmp_path / "tune.sqlite3") as there:
        runtime = Runtime(device, MMSB, Index(there), {}, {"update_phi": TUNED})
        for _ in range(2):
            runtime.kernel("update_phi", problem)
            choice = runtime.choices["update_phi"]
            assert (choice.tier, choice.config) == ("exact", other)
            assert "the configuration of tier kept did not compile" in choice.reason
    assert caplog.text.count("the compiler crashed") == 1


def test_a_variant_follows_the_choice_that_compiled(tmp_path, monkeypatch):
    """A mode of gather_rows must not go back to the configuration that was given up."""
    real, problem = runtime.build, MMSB.problem(K=5, N=40, m=8)
    with open_device("pocl") as device, open_store(tmp_path / "t.sqlite3") as there:
        spec = MMSB.kernel("gather_rows")
        run = RunRecord(strategy="exhaustive")
        there.begin_run(run)
        config = dict(spec.default(problem, runtime.traits_of(device.info))) | {"block_size": 4}
        key = key_of(device.info, spec, problem)
        extra = program(key, config)
        there.add_trial(TrialRecord(run=run.uuid, key=key, config=config, status="ok", times=(1e-3,), extra=extra))

        def build(device, spec, problem, config, *more):
            if config["block_size"] == 4:
                raise CompileError("no")
            return real(device, spec, problem, config, *more)

        monkeypatch.setattr(runtime, "build", build)
        chosen = Runtime(device, MMSB, Index(there))
        assert chosen.kernel("gather_rows", problem).config["block_size"] != 4
        assert chosen.variant("gather_rows", problem, accumulate=True).config["accumulate"] is True
        assert chosen.choices["gather_rows"].config["accumulate"] is False


def test_a_mode_that_is_asked_for_is_not_left_to_a_record(tmp_path):
    problem = MMSB.problem(K=5, N=40, m=8)
    with open_device("pocl") as device, open_store(tmp_path / "t.sqlite3") as there:
        spec = MMSB.kernel("gather_rows")
        run = RunRecord(strategy="exhaustive")
        there.begin_run(run)
        recorded = {"block_size": 4, "accumulate": True}
        key = key_of(device.info, spec, problem)
        extra = program(key, recorded)
        there.add_trial(TrialRecord(run=run.uuid, key=key, config=recorded, status="ok", times=(1e-3,), extra=extra))
        chosen = Runtime(device, MMSB, Index(there))
        assert chosen.kernel("gather_rows", problem).config == recorded
        assert chosen.kernel("gather_rows", problem, accumulate=False).config == recorded | {"accumulate": False}
        assert chosen.choices["gather_rows"].config["accumulate"] is False
        fixed = Runtime(device, MMSB, Index(there), {"gather_rows": recorded})
        assert fixed.kernel("gather_rows", problem, accumulate=False).config == recorded


def launches_refused(monkeypatch, refuses) -> list[int]:
    """Let PoCL refuse launches of update_phi in some sizes of blocks; returns the sizes that are asked for."""
    real, asked = OpenCLKernel._check, []

    def check(self, grid, block, args, shared):
        if self.name == "update_phi":
            asked.append(block[0])
            if refuses(block[0]):
                raise LaunchError("too many resources requested")
        return real(self, grid, block, args, shared)

    monkeypatch.setattr(OpenCLKernel, "_check", check)
    return asked


def test_one_whose_first_launch_is_refused_is_replaced_by_the_next_best(tmp_path, monkeypatch, caplog):
    problem = detect(tmp_path / "none")[0].record["problem"]
    database = tmp_path / "tune.sqlite3"
    configs = [TUNED | {"block_size": 1}, TUNED | {"block_size": 2}, TUNED | {"block_size": 4, "normalise": False}]
    store(database, problem, *configs)
    # What the kernel does was settled when it was built, so the last one's way of speed is taken in that mode.
    used = configs[2] | {"normalise": True}
    straight = detect(tmp_path / "none", configs={"update_phi": used})[0]

    asked = launches_refused(monkeypatch, lambda block: block < 4)
    found, _ = detect(database)
    kernel = next(kernel for kernel in found.record["kernels"] if kernel["kernel"] == "update_phi")
    assert (kernel["tier"], kernel["config"]) == ("exact", used)
    for config in configs[:2]:
        assert f"the configuration of tier exact could not be launched: {describe(config)}" in kernel["reason"]
    assert asked == [1, 2, 4, 4, 4], "refused ones are not asked for again"
    assert caplog.text.count("too many resources requested") == 2, "once each"
    assert np.array_equal(found.memberships.values, straight.memberships.values)
    assert [row["perplexity"] for row in found.trace] == [row["perplexity"] for row in straight.trace]


@pytest.mark.parametrize("configs", [{}, {"update_phi": TUNED}], ids=["default", "fixed"])
def test_where_nothing_else_is_known_the_error_says_how_to_choose(tmp_path, monkeypatch, configs):
    launches_refused(monkeypatch, lambda block: True)
    with pytest.raises(
        LaunchError, match="update_phi .block_size=.*too many resources requested.*configs={'update_phi'"
    ):
        detect(tmp_path / "none", configs=configs)


def test_a_variant_whose_launch_is_refused_leaves_the_choice(tmp_path, monkeypatch, caplog):
    problem = MMSB.problem(K=5, N=40, m=8)
    spec = MMSB.kernel("gather_rows")
    with FakeDevice() as device:
        config = dict(spec.default(problem, runtime.traits_of(device.info))) | {"block_size": 4}
        chosen = Runtime(device, MMSB, None, {}, {"gather_rows": config})
        kernel = chosen.kernel("gather_rows", problem)
        assert kernel.kernels["gather_rows"].configuration == describe(config), "told where queued work fails"
        variant = chosen.variant("gather_rows", problem, accumulate=True)
        values = arguments(device, spec, problem)
        kernel.launch(8, values)
        check = FakeKernel._check
        monkeypatch.setattr(
            FakeKernel,
            "_check",
            lambda self, grid, block, *rest: refuse("no") if block == (4,) else check(self, grid, block, *rest),
        )
        variant.launch(8, values)
        assert variant.config["accumulate"] is True
        assert variant.config["block_size"] != 4
        assert variant.choice.tier == "default"
        assert chosen.choices["gather_rows"].config == kernel.config == config
    assert caplog.text.count("the next best configuration") == 1


def refuse(text: str):
    raise LaunchError(text)


def arguments(device, spec, problem) -> dict:
    return upload(device, spec.workload(spec.check_problem(problem), 0))


@pytest.mark.parametrize("when", ["refused", "running"])
def test_a_failure_that_the_device_does_not_survive_names_kernel_configuration_and_remedy(when, monkeypatch, caplog):
    """Nothing else is tried: what was written is not known, or every further call fails."""
    problem, spec = MMSB.problem(K=5, N=40, m=8), MMSB.kernel("gather_rows")
    with FakeDevice() as device:
        config = dict(spec.default(problem, runtime.traits_of(device.info))) | {"block_size": 4}
        kernel = Runtime(device, MMSB, None, {}, {"gather_rows": config}).kernel("gather_rows", problem)
        values = arguments(device, spec, problem)
        if when == "refused":
            monkeypatch.setattr(FakeKernel, "launch", lambda *_: refuse("illegal memory access"))
            monkeypatch.setattr(FakeDevice, "synchronize", lambda _: refuse("the context is lost"))
        else:
            monkeypatch.setattr(FakeEvent, "wait", lambda _: refuse("illegal memory access"))
        with pytest.raises(LaunchError) as caught:
            kernel.launch(8, values)
        compiled = len(device.sources)
    message = str(caught.value)
    assert message.startswith(f"gather_rows ({describe(config)}): illegal memory access")
    assert "configs={'gather_rows': {...}} of mmsbgen.detection.detect.Request" in message
    assert "mmsbgen tune --device fake:0 --kernel gather_rows" in message
    assert ("the context is lost" in message) is (when == "refused")
    assert (compiled, caplog.text) == (1, "")


def test_only_the_first_launch_is_waited_for(monkeypatch):
    problem, spec, waits = MMSB.problem(K=5, N=40, m=8), MMSB.kernel("gather_rows"), []
    with FakeDevice() as device:
        kernel = Runtime(device, MMSB).kernel("gather_rows", problem)
        values = arguments(device, spec, problem)
        monkeypatch.setattr(FakeEvent, "wait", lambda _: waits.append(1))
        for _ in range(3):
            kernel.launch(8, values)
        assert len(device.launches) == 3
    assert len(waits) == 1


def test_fixed_configurations_are_taken_or_refused(tmp_path):
    found, _ = detect(tmp_path / "none", configs={"update_phi": TUNED})
    assert tiers(found)["update_phi"] == "fixed"
    with pytest.raises(InputError, match="update_phi: the configuration asked for .* is refused: vector_width=3"):
        detect(tmp_path / "none", configs={"update_phi": TUNED | {"vector_width": 3}})


def test_kept_configurations_that_are_no_longer_valid_are_looked_up_anew():
    problem = MMSB.problem(K=5, N=40, m=8, n=4)
    with open_device("pocl") as device:
        kept = {"update_phi": TUNED | {"gone": 1}, "update_beta": {"block_size": 4}}
        runtime = Runtime(device, MMSB, None, {}, kept)
        runtime.kernel("update_phi", problem)
        runtime.kernel("update_beta", problem)
        assert {name: choice.tier for name, choice in runtime.choices.items()} == {
            "update_phi": "default",
            "update_beta": "kept",
        }


def test_records_of_another_size_are_told_in_one_line_and_each_at_level_debug(tmp_path, caplog):
    problem = detect(tmp_path / "none")[0].record["problem"]
    database = tmp_path / "tune.sqlite3"
    store(database, problem, TUNED)
    store(database, problem, {"block_size": 4}, kernel="update_beta")
    caplog.set_level(logging.DEBUG, logger="mmsbgen")
    found, messages = detect(database, k=6)
    assert {name for name, tier in tiers(found).items() if tier == "problem"} >= {"update_phi", "update_beta"}
    (line,) = (line for line in messages.splitlines() if line.startswith("Configurations, problem: "))
    assert "update_beta" in line
    assert "`mmsbgen tune` with this graph and K measures" in line
    assert "update_phi: tier problem: no record for K=6: nearest has K=" in caplog.text


def test_kernels_alike_share_a_line():
    choices = {
        name: KernelChoice(name, {}, tier, why, "")
        for name, tier, why in [("a", "x", "r"), ("b", "y", "r"), ("c", "x", "r")]
    }
    assert by_tier(choices) == ["x: a, c (r)", "y: b (r)"]
