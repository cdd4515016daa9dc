"""Candidates that really fail, on real devices: each costs itself only."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace

import psutil
import pytest

from mmsbgen.backends import Device
from mmsbgen.base.errors import InputError
from mmsbgen.db.selection.index import Index
from mmsbgen.db.store.tuning_store import Store
from mmsbgen.families import resolve_family
from mmsbgen.tuner.measure import measurer as measurer_module
from mmsbgen.tuner.measure.measurer import Measurer, TrialLimits, WorkerLostError
from mmsbgen.tuner.run.tune import tune

LIMITS = TrialLimits(compile_s=4.0, run_s=4.0)
"""Many times what good candidates take here, so that they keep them where other programs have the cores."""
SMALL_ROOFS = 32 << 20


@pytest.mark.slow
def test_a_run_survives_one_of_each_and_finds_the_best(opencl_device: Device, store: Store, faulty: str) -> None:
    """A reset of the device, which PoCL does not have, is the loss of the thread that is the device there."""
    family = resolve_family(faulty)
    pocl = "Portable" in opencl_device.info.platform
    report = tune(
        opencl_device.info.spec,
        faulty,
        ["twice"],
        family.problem(),
        store=store,
        strategy="exhaustive",
        # The child holds a quarter of a GB by itself; elsewhere a compiler that works without end takes more and more.
        limits=replace(LIMITS, memory_bytes=1000 * 10**6 if pocl else 4 * 10**9),
        fixed={"block_size": 64},
        roof_bytes=SMALL_ROOFS,
        # What compiles ahead meets every fault too, which is seen once.
        compilers=None if pocl else 0,
    )
    assert report.status == "finished"
    (kernel,) = report.kernels
    stored = {str(trial.config["fault"]): trial for trial in store.trials(run=report.run) if trial.round == 0}
    own_code = ("compile_error",) if not pocl else ()
    wanted = {
        "slow": ("ok",),
        "none": ("ok",),
        "does not compile": ("compile_error",),
        "compiles without end": ("timeout",),
        "wrong": ("wrong_result",),
        "not a number": ("wrong_result",),
        "writes behind the end": ("wrong_result",),
        "writes an input": ("wrong_result",),
        "hangs": ("timeout",),
        "crashes": ("crashed",),
        "traps": ("crashed",),
        # Without operands in its assembler a platform refuses what these would do to the process.
        "leaves": own_code or ("crashed",),
        "allocates without end": own_code or ("crashed",),
        "loses the device": own_code or ("timeout",),
        "too much local memory": ("compile_error", "launch_error"),
        "cannot be checked": ("invalid",),
    }
    assert stored.keys() == wanted.keys() == set(family.kernel("twice").space.axes[0].values)
    for fault, statuses in wanted.items():
        assert stored[fault].status in statuses, f"{fault}: {stored[fault].status} {stored[fault].message}"
    assert kernel.statuses == Counter(trial.status for trial in stored.values())
    assert all(trial.message for trial in stored.values() if trial.status != "ok")
    said = {
        "crashes": "SIG",
        "traps": "SIGILL",
        "compiles without end": f"not done after {LIMITS.compile_s:g} s (compiling)",
        "hangs": f"not done after {LIMITS.run_s:g} s (running)",
        "not a number": "not finite",
        "writes behind the end": "64 bytes behind the end of y were overwritten, the first at +64",
        "writes an input": "the input x was overwritten",
    }
    if pocl:
        said |= {
            "leaves": "the process died: exit code 0",
            "allocates without end": "of memory, the limit is 1.00 GB (running)",
            "loses the device": f"not done after {LIMITS.run_s:g} s (running)",
        }
    for fault, message in said.items():
        assert message in stored[fault].message, f"{fault}: {stored[fault].message}"
    assert kernel.best is not None
    assert kernel.best.config["fault"] == "none"
    assert kernel.best.round == 2
    best = store.best(kernel.key)
    assert best is not None
    assert best.config == kernel.best.config
    chosen = Index(store).select(kernel.key, valid=lambda config: True, default={})
    assert (chosen.tier, chosen.config) == ("exact", dict(kernel.best.config))


@pytest.mark.opencl
def test_a_child_that_is_killed_is_replaced(pocl_device: Device, faulty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[None] = []
    monkeypatch.setattr(measurer_module, "prepare", lambda: children.append(None))
    problem = resolve_family(faulty).problem(n=1000)
    with Measurer(pocl_device.info.spec, faulty, LIMITS) as measurer:
        measurer.load("twice", problem)
        good = {"fault": "none", "block_size": 16}
        assert measurer.measure(good).status == "ok"
        assert len(children) == 1
        assert measurer.measure({"fault": "crashes", "block_size": 16}).status == "crashed"
        assert len(children) == 2, "tried again in a child that had served nobody else"
        outcome = measurer.measure(good)
        assert outcome.status == "ok"
        assert outcome.timing is not None
        assert len(outcome.timing.times) >= 7
        with pytest.raises(WorkerLostError, match="died"):
            measurer.turns([good, {"fault": "crashes", "block_size": 16}], rounds=3)
        assert [len(timing.times) for timing in measurer.turns([good, good], rounds=3)] == [3, 3]


@pytest.mark.opencl
def test_inputs_that_do_not_fit_are_an_input_error(
    pocl_device: Device, store: Store, faulty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device of the child, whose inputs they are, has a GB of memory."""
    monkeypatch.setenv("POCL_MEMORY_LIMIT", "1")
    problem = resolve_family(faulty).problem(n=1000, room=(1 << 26) + (1 << 24))
    with Measurer(pocl_device.info.spec, "mmsb", LIMITS) as measurer:
        measurer.load("nothing", problem)
        with pytest.raises(InputError, match="no kernel"):
            measurer.measure({})
    with pytest.raises(InputError, match="cannot allocate"):
        tune(pocl_device.info.spec, faulty, None, problem, store=store, roof_bytes=SMALL_ROOFS)
    (run,) = store.runs()
    assert run.status == "failed"


_OWNER = """
from mmsbgen.tuner.measure.measurer import Measurer
measurer = Measurer("fake", "mmsb")
measurer.open()
print(measurer._child.pid, flush=True)
__import__("time").sleep(60)
"""


@pytest.mark.slow
def test_children_die_with_their_parent() -> None:
    owner = subprocess.Popen([sys.executable, "-c", _OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner.stdout:
        child = psutil.Process(int(owner.stdout.readline()))
        assert child.is_running()
        owner.kill()
        owner.wait()
    with contextlib.suppress(psutil.NoSuchProcess):
        deadline = time.monotonic() + 10
        while child.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
            time.sleep(0.05)
