"""Which kernels of a run are launched while the one before ends, on a device that records what it is given."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mmsbgen.backends.fake import FakeDevice, FakeKernel, FakeProgram
from mmsbgen.base.errors import LaunchError
from mmsbgen.families.mmsb import MMSB
from mmsbgen.kernels.runtime import Runtime
from mmsbgen.sampler.chain.sampler import Sampler
from mmsbgen.sampler.options.options import Options
from tests.devices import H200

WAIT = "griddepcontrol.wait;"
_PRODUCTS = {"block_factors", "block_scales", "block_strike", "block_sums"}
ITERATED = {
    "random-node": {"draw_stars", "sample_partners", "update_phi", "exchange_slots", "theta_partial", "theta_end"},
    "block": {"shared_partners", *_PRODUCTS, "block_links", "exchange_slots", "theta_end"},
}


class Overlapping(FakeDevice):
    """Of an architecture that can; keeps what it compiles, by kernel."""

    side_by_side = True
    overlaps = True

    def __init__(self) -> None:
        super().__init__(H200)
        self.ahead: set[str] = set()
        self.compiled: list[tuple[str, str, bool]] = []

    def compile_ahead(self, sources: Sequence[str], options: Sequence[str] = ()) -> None:
        self.ahead |= set(sources)

    def compile(
        self, source: str, kernel_names: Sequence[str], options: Sequence[str] = (), *, overlap: bool = False
    ) -> FakeProgram:
        self.compiled.append((kernel_names[0], source, overlap))
        return super().compile(source, kernel_names, options)


@pytest.mark.parametrize("mini_batch", list(ITERATED))
@pytest.mark.parametrize("overlap", [True, False])
def test_kernels_of_iterations_overlap_and_are_compiled_once(middling, mini_batch, overlap):
    device = Overlapping()
    options = Options(n_communities=5, mini_batch=mini_batch, mini_batch_size=16, average=True)
    Sampler(middling, options, Runtime(device, MMSB, overlap=overlap)).close()
    found = {name for name, _, overlaps in device.compiled if overlaps}
    assert found == (ITERATED[mini_batch] if overlap else set())
    assert all((WAIT in text) == overlaps for _, text, overlaps in device.compiled)
    again = {text for name, text, _ in device.compiled if name != "gather_rows"} - device.ahead
    assert not any(name in text for text in again for name in ITERATED[mini_batch]), "what was compiled ahead is used"


@pytest.mark.parametrize(
    "options",
    [
        {"mini_batch": "random-node"},
        {"mini_batch": "random-pair"},
        {"mini_batch": "random-node", "partners": "shared", "products": "single"},
        {"mini_batch": "random-node", "partners": "shared", "products": "half"},
        {"mini_batch": "random-node", "partners": "shared-uniform", "products": "single"},
        {"mini_batch": "random-pair", "partners": "shared-uniform", "products": "half"},
        {"mini_batch": "block", "products": "single"},
        {"mini_batch": "block", "products": "half"},
    ],
)
def test_all_launches_of_an_iteration_overlap(middling, options):
    device = Overlapping()
    runtime = Runtime(device, MMSB)
    sampler = Sampler(middling, Options(n_communities=5, mini_batch_size=16, **options), runtime)
    sampler.initialise()
    device.launches.clear()
    for _ in range(5):
        sampler.step()
    launched = {launch.kernel for launch in device.launches}
    assert "theta_end" in launched
    assert launched <= runtime.iterated <= set(MMSB.kernels)
    sampler.close()


def test_a_replacement_and_a_variant_overlap_too(monkeypatch):
    device, problem = Overlapping(), MMSB.problem(K=64)
    spec = MMSB.kernel("update_phi")
    runtime = Runtime(device, MMSB, iterated={"update_phi"})
    kernel = runtime.kernel("update_phi", problem)
    runtime.kept["update_phi"] = dict(kernel.config) | {"rows_in_flight": 1}
    kept = runtime.kernel("update_phi", problem)
    assert kept.choice.tier == "kept"
    real = FakeKernel.launch

    def launch(self, *arguments):
        if len(device.compiled) == 2:
            raise LaunchError("too many resources")
        return real(self, *arguments)

    monkeypatch.setattr(FakeKernel, "launch", launch)
    workload = spec.workload(spec.check_problem(problem), 0)
    values = {name: device.upload(v) if getattr(v, "ndim", 0) else v for name, v in workload.arguments.items()}
    kept.launch(workload.count, values)
    assert kept.choice.tier == "default"
    runtime.variant("update_phi", problem.replace(noise="off"))
    assert [(name, overlaps) for name, _, overlaps in device.compiled] == [("update_phi", True)] * 4
    assert all(WAIT in text for _, text, _ in device.compiled)
