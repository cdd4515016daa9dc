"""Energy of a launch: the arithmetic by a real counter of another quantity, NVML's where there is a GPU."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from click.testing import CliRunner

from mmsbgen.backends import Device, Event
from mmsbgen.base.errors import InputError, MmsbgenError
from mmsbgen.cli import main
from mmsbgen.db.records.ranking import check_objective
from mmsbgen.db.store.tuning_store import Store, open_store
from mmsbgen.families import resolve_family
from mmsbgen.tuner.measure.timing import NvmlMeter, measure_energy, meter_of
from mmsbgen.tuner.run.earlier_trials import known_trials
from mmsbgen.tuner.run.tune import tune

SPIN = """
__kernel void spin(__global float* y, const uint turns)
{
    float sum = y[get_global_id(0)];
    for (uint i = 0; i < turns; ++i) sum = sum * 0.999f + 1.0f;
    y[get_global_id(0)] = sum;
}
"""


class Work:
    """Counts the turns of all launches so far, in steps of ``step``: coarse, as NVML is, and blind to load."""

    name = "work"

    def __init__(self, step: int) -> None:
        self.step, self.turns = step, 0

    def joules(self) -> float:
        return self.turns // self.step * self.step


class Still:
    """A counter that never moves."""

    name = "still"

    def joules(self) -> float:
        return 1.0


@pytest.mark.slow
@pytest.mark.opencl
@pytest.mark.parametrize("told_s", [1e-3, 0.0])
def test_what_a_launch_uses_is_counted_between_steps_of_a_coarse_counter(pocl_device: Device, told_s: float) -> None:
    kernel = pocl_device.compile(SPIN, ["spin"]).kernel("spin")
    turns, alive = (100_000 if told_s else 10), []
    queued = 10 if told_s else 10_000
    meter = Work((2 if told_s else 1) * queued * turns)
    with pocl_device.zeros(16, np.float32) as y:

        def launch(turn: int) -> Event:
            meter.turns += turns
            return kernel.launch((1,), (16,), (y, np.uint32(turns)))

        launch(0).wait()
        energy = measure_energy(pocl_device, launch, meter, told_s, alive=lambda: alive.append(meter.turns))
        assert energy.window_s >= 1.0
        assert 0 < energy.uncertainty <= 1
        # At least 20 steps were counted, and the work between the first and the last is known up to one.
        assert abs(energy.joules / turns - 1) <= 1 / 19
        assert {later - sooner for sooner, later in itertools.pairwise(alive)} == {queued * turns}, "before each 10 ms"
        if told_s:
            with pytest.raises(MmsbgenError, match="does not move"):
                measure_energy(pocl_device, launch, Still(), told_s)


def test_a_counter_that_is_lost_meanwhile_is_told_in_words() -> None:
    """Without NVML's library, which this machine may not have: it has the one call and the error of that library."""

    class GoneError(Exception):
        pass

    class Library:
        NVMLError = GoneError

        def nvmlDeviceGetTotalEnergyConsumption(self, handle: object) -> int:  # noqa: N802
            raise GoneError("GPU is lost")

    meter = object.__new__(NvmlMeter)
    meter._nvml, meter._handle = Library(), None
    with pytest.raises(MmsbgenError, match=r"cannot be read any more \(NVML: GPU is lost\)"):
        meter.joules()


@pytest.mark.opencl
def test_a_device_that_tells_no_energy_is_refused_by_name(pocl_device: Device, store: Store, faulty: str) -> None:
    with pytest.raises(InputError, match=r"Portable Computing Language\) tells no energy.*--objective time"):
        meter_of(pocl_device)
    problem = resolve_family(faulty).problem(n=1000)
    for objective in ("energy", "edp"):
        with pytest.raises(InputError, match="tells no energy"):
            tune(pocl_device.info.spec, faulty, ["many"], problem, store=store, objective=objective)
    assert store.runs() == []
    with pytest.raises(InputError, match="no objective 'beauty'; there are time, energy, edp"):
        check_objective("beauty")
    words = ["tune", "--device", pocl_device.info.spec, "--objective", "energy", "--kernel", "update_beta"]
    result = CliRunner().invoke(main, [*words, "--database", store.location])
    assert result.exit_code == 2
    assert "tells no energy" in result.output


def test_nvml_without_a_gpu_is_told_in_words() -> None:
    with pytest.raises(InputError, match="a board tells no energy"):
        NvmlMeter("0000:ff:1f.7", "a board")


@pytest.mark.alone
@pytest.mark.cuda
def test_nvml_counts_what_it_says(cuda_device: Device, store: Store, tmp_path: object) -> None:
    """Mean power times time is energy: both counters are of the same board."""
    pynvml = pytest.importorskip("pynvml")
    meter = meter_of(cuda_device)
    handle = pynvml.nvmlDeviceGetHandleByPciBusId(str(cuda_device.pci_address()).encode())
    source = SPIN.replace("__kernel", 'extern "C" __global__').replace("__global ", "").replace("uint", "unsigned")
    source = source.replace("get_global_id(0)", "(blockIdx.x * blockDim.x + threadIdx.x)")
    kernel = cuda_device.compile(source, ["spin"]).kernel("spin")
    with cuda_device.zeros(132 * 8 * 256, np.float32) as y:

        def launch(turn: int) -> None:
            kernel.launch((132 * 8,), (256,), (y, np.uint32(100_000)))

        launch(0)
        cuda_device.synchronize()
        begin = time.perf_counter()
        for turn in range(50):
            launch(turn)
        cuda_device.synchronize()
        took = (time.perf_counter() - begin) / 50
        energies = [measure_energy(cuda_device, launch, meter, took) for _ in range(3)]  # type: ignore[arg-type]
        limit = pynvml.nvmlDeviceGetPowerManagementLimit(handle) * 1e-3
    for energy in energies:
        print(energy, energy.joules / took, "W")
        assert 50 < energy.joules / took < 1.1 * limit, "watts of a board that computes"
        assert energy.uncertainty < 0.2
    spread = max(e.joules for e in energies) / min(e.joules for e in energies) - 1
    assert spread < 0.1 + 2 * max(e.uncertainty for e in energies)


@pytest.mark.alone
@pytest.mark.cuda
@pytest.mark.parametrize("objective", ["time", "energy", "edp"])
def test_a_tune_by_energy_stores_joules_beside_seconds(cuda_device: Device, store: Store, objective: str) -> None:
    from mmsbgen.families.mmsb import MMSB

    problem = MMSB.problem(K=256, N=20000, m=2048, n=32)
    report = tune(
        "cuda:0",
        MMSB,
        ["update_phi"],
        problem,
        store=store,
        budget_trials=6,
        objective=objective,
        roof_bytes=1 << 28,
    )
    (kernel,) = report.kernels
    assert kernel.best is not None
    assert kernel.best.energy_j is not None
    searched = [trial for trial in store.trials(run=report.run) if trial.round == 0 and trial.status == "ok"]
    told = [trial for trial in searched if trial.energy_j is not None]
    assert bool(told) == (objective != "time")
    finals = [trial for trial in store.trials(run=report.run) if trial.round == 1]
    for trial in finals:
        assert trial.energy_j is not None
        assert trial.median_s is not None
        assert 50 < trial.energy_j / trial.median_s < 1500, "watts"
    costs = {"time": lambda t: t.median_s, "energy": lambda t: t.energy_j, "edp": lambda t: t.energy_j * t.median_s}
    # Of those that cannot be told from the fastest, and are at most 1 % behind it round by round, the simplest is the
    # best; medians over all rounds differ from that by about as much again.
    least, mine = min(map(costs[objective], finals)), costs[objective](kernel.best)
    assert mine <= least * (1.02 if objective == "time" else 1.0)
    best = store.best(kernel.key, objective)
    assert best is not None
    assert best.config == kernel.best.config
    with open_store(store.location, read_only=True) as again:
        assert {t.uid: t.energy_j for t in again.trials(run=report.run)} == {
            t.uid: t.energy_j for t in store.trials(run=report.run)
        }


def test_the_best_follows_the_objective(store: Store) -> None:
    """Trials with the joules of three boards: the fastest uses most, the thriftiest is slowest."""
    from mmsbgen.backends.fake import FakeDevice
    from mmsbgen.db.records.tuning_records import RunRecord, TrialRecord
    from mmsbgen.families.mmsb import MMSB
    from mmsbgen.kernels.record_key import key_of

    key = key_of(FakeDevice().info, MMSB.kernel("update_beta"), MMSB.problem())
    run = RunRecord(strategy="exhaustive")
    store.begin_run(run)
    told = {"fast": (1.0, 9.0), "thrifty": (6.0, 2.0), "between": (2.0, 4.0), "untold": (0.5, None)}
    for name, (seconds, joules) in told.items():
        config = {"name": name}
        store.add_trial(
            TrialRecord(run=run.uuid, key=key, config=config, status="ok", times=(seconds,), energy_j=joules)
        )
    best = {objective: store.best(key, objective) for objective in ("time", "energy", "edp")}
    assert {objective: trial and trial.config["name"] for objective, trial in best.items()} == {
        "time": "untold",
        "energy": "thrifty",
        "edp": "between",
    }
    result = CliRunner().invoke(main, ["db", "--database", store.location, "best", "--objective", "energy", "--json"])
    assert '"thrifty"' in result.output, result.output
    assert known_trials(store, key, "energy").keys() < known_trials(store, key).keys()
